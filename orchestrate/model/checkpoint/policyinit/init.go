// Package policyinit makes small policies from nothing: a decoder of any supported family with random weights, and a
// byte-level BPE tokenizer learned from a corpus, or another model's. Everything follows from the options, seed
// included.
package policyinit

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/chat/bpe"
	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// Options describe the policy.
type Options struct {
	Family                                              string // model_type
	Hidden, Layers, Heads, KVHeads, Intermediate, Vocab int64
	MaxPositions, Experts, ChosenExperts                int64
	Tie                                                 bool
	Std                                                 float64 // of the weights
	Seed                                                uint64
	Corpus                                              []string // what the tokenizer is learned from
	Tokenizer                                           string   // instead: that of the model in this directory
}

// Defaults make a Llama of about 0.9 million parameters.
var Defaults = Options{Family: "llama", Hidden: 128, Layers: 4, Heads: 4, KVHeads: 2, Intermediate: 384, Vocab: 512,
	MaxPositions: 4096, Experts: 8, ChosenExperts: 2, Tie: true, Std: 0.02, Seed: 1}

// The special tokens of new policies, ids 0 to 2.
var specials = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}

const (
	padID = 0
	eosID = 2
)

// Create fills the existing directory dir and returns the configuration, whose vocabulary may be smaller than asked
// for: it ends where the corpus has no pair left that occurs twice. With another model's tokenizer it is that model's.
func Create(dir string, o Options) (hf.Config, error) {
	like := hf.Config{PAD: bpe.IDs{padID}, EOS: bpe.IDs{eosID}}
	var err error
	if o.Tokenizer != "" {
		if like, err = hf.ReadConfig(o.Tokenizer); err == nil {
			err = hf.CopyCompanions(dir, o.Tokenizer)
		}
	} else {
		err = learnTokenizer(dir, o)
	}
	if err != nil {
		return hf.Config{}, err
	}
	t, err := chat.Load(dir)
	if err != nil {
		return hf.Config{}, err
	}
	o.Vocab = max(int64(t.VocabSize()), like.VocabSize)
	c, err := o.config()
	if err != nil {
		return hf.Config{}, err
	}
	c.BOS, c.PAD, c.EOS = like.BOS, like.PAD, like.EOS
	return c, hf.Save(dir, c, o.weights(c), hf.ShardSize)
}

func learnTokenizer(dir string, o Options) error {
	tokenizer, err := bpe.Train(o.Corpus, int(o.Vocab), specials)
	if err != nil {
		return fmt.Errorf("training the tokenizer: %w", err)
	}
	return writeTokenizer(dir, tokenizer, o.MaxPositions)
}

// BytesOnly is a tokenizer without merges: enough to render episodes, whose text does not depend on the tokenizer.
func BytesOnly() (*chat.Tokenizer, error) {
	data, err := bpe.Train([]string{"."}, 256+len(specials), specials)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gyre-tokenizer-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := writeTokenizer(dir, data, 1<<20); err != nil {
		return nil, err
	}
	return chat.Load(dir)
}

func writeTokenizer(dir string, tokenizer []byte, maxPositions int64) error {
	// texts and numbers always encode
	settings, _ := bpe.EncodeJSON(map[string]any{"tokenizer_class": "PreTrainedTokenizerFast",
		"pad_token": specials[padID], "eos_token": specials[eosID], "model_max_length": maxPositions,
		"clean_up_tokenization_spaces": false}, "  ")
	generation, _ := bpe.EncodeJSON(map[string]any{"eos_token_id": eosID, "pad_token_id": padID}, "  ")
	for name, data := range map[string][]byte{"tokenizer.json": tokenizer, "tokenizer_config.json": settings,
		"generation_config.json": generation, "chat_template.jinja": []byte(chat.ChatML)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Check says what is wrong with the sizes.
func (o Options) Check() error {
	_, err := o.config()
	return err
}

// config goes through config.json's own checks, so that wrong sizes are named by their keys.
func (o Options) config() (hf.Config, error) {
	if o.Heads < 1 || o.Hidden%o.Heads != 0 {
		return hf.Config{}, fmt.Errorf("a model with hidden size %d and %d heads: expected a multiple of the heads",
			o.Hidden, o.Heads)
	}
	if !(o.Std >= 0 && o.Std <= 100) {
		return hf.Config{}, fmt.Errorf("standard deviation of the weights is %v, expected 0 to 100", o.Std)
	}
	c := hf.Config{ModelConfig: torch.ModelConfig{Family: torch.Family(o.Family), VocabSize: o.Vocab, HiddenSize: o.Hidden,
		IntermediateSize: o.Intermediate, NumLayers: o.Layers, NumHeads: o.Heads, NumKVHeads: o.KVHeads,
		HeadDim: o.Hidden / o.Heads, MaxPositions: o.MaxPositions, RMSNormEps: 1e-6, RopeTheta: 10000,
		TieEmbeddings: o.Tie, Shape: torch.Shape{Experts: o.Experts, ChosenExperts: o.ChosenExperts}}}
	return hf.New(c)
}

// weights are normal with standard deviation Std; those that write into the residual stream are scaled down by the
// square root of their number, 2·layers (GPT-2; Radford et al. 2019). Norms are one, biases zero. Each tensor has its
// own generator, keyed by seed and name.
func (o Options) weights(c hf.Config) []weights.Source {
	var list []weights.Source
	for _, p := range c.Parameters(torch.HeadLM) {
		std, mean := o.Std, 0.0
		switch {
		case strings.HasSuffix(p.Name, "norm.weight"):
			std, mean = 0, 1
			if c.Shape.UnitNorms {
				mean = 0
			}
		case strings.HasSuffix(p.Name, ".bias"):
			std = 0
		case strings.HasSuffix(p.Name, "o_proj.weight"), strings.HasSuffix(p.Name, "down_proj.weight"):
			std /= math.Sqrt(2 * float64(c.NumLayers))
		}
		list = append(list, weights.Source{Name: p.Name, DType: weights.F32, Shape: p.Shape,
			Fill: func(dst []byte) error {
				rng := rand.New(rand.NewChaCha8(sha256.Sum256(fmt.Appendf(nil, "gyre model init/%d/%s", o.Seed,
					p.Name))))
				for i := 0; i < len(dst); i += 4 {
					binary.LittleEndian.PutUint32(dst[i:], math.Float32bits(float32(mean+std*rng.NormFloat64())))
				}
				return nil
			}})
	}
	return list
}
