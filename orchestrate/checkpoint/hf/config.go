package hf

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gyre/orchestrate/checkpoint/tensors"
)

// Family is a decoder architecture by its model_type.
type Family string

// The families the decoder computes.
const (
	Llama Family = "llama"
	Qwen2 Family = "qwen2"
	Qwen3 Family = "qwen3"
)

// Class is the prefix of transformers' class names: "Qwen2".
func (f Family) Class() string { return strings.ToUpper(string(f[:1])) + string(f[1:]) }

// Rope types, as rope_type spells them.
const (
	RopeDefault = "default"
	RopeLinear  = "linear"
	RopeLlama3  = "llama3"
)

// Rope is the rotary embedding. Factor and what follows are 0 where the type has no such parameter.
type Rope struct {
	Type                 string
	Theta                float64
	Factor               float64
	LowFreqFactor        float64
	HighFreqFactor       float64
	OriginalMaxPositions int64
}

// Config is a validated config.json.
type Config struct {
	Family                                             Family
	VocabSize, HiddenSize, IntermediateSize, NumLayers int64
	NumHeads, NumKVHeads, HeadDim, MaxPositions        int64
	RMSNormEps                                         float64
	Rope                                               Rope
	QKVBias, OutBias, MLPBias, QKNorm, Tie             bool
	DType                                              tensors.DType // of the weights, as declared; float32 when absent
	// Token ids; nil or empty when absent.
	BOS, PAD *int64
	EOS      []int64
	// Value marks a ForTokenClassification directory: a value head, no language-model head.
	Value bool
}

// maxConfig bounds the size of the small JSON files of a model directory.
const maxConfig = 16 << 20

// ReadConfig reads and validates dir/config.json.
func ReadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, "config.json")
	data, err := readSmall(path, maxConfig)
	if errors.Is(err, os.ErrNotExist) {
		return Config{}, fmt.Errorf("%s has no config.json: expected a Hugging Face model directory: %w", dir, os.ErrNotExist)
	}
	if err != nil {
		return Config{}, err
	}
	c, err := ParseConfig(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func readSmall(path string, limit int64) ([]byte, error) {
	file, _, err := tensors.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s: larger than %d bytes", path, limit)
	}
	return data, err
}

// ParseConfig reads and validates the text of a config.json. Every problem is reported, in one error.
func ParseConfig(data []byte) (Config, error) {
	f, err := parseFields(data)
	if err != nil {
		return Config{}, err
	}
	family, err := readFamily(f)
	if err != nil {
		return Config{}, err
	}
	c := read(f, family)
	c.Rope = readRope(f, c.MaxPositions)
	refuseUnsupported(f, c)
	if f.err() == nil {
		c.validate(f)
	}
	return c, f.err()
}

func readFamily(f *fields) (Family, error) {
	architectures := f.texts("architectures")
	name := f.text("model_type", "")
	if name == "" && len(architectures) > 0 {
		for _, family := range []Family{Llama, Qwen2, Qwen3} {
			if strings.HasPrefix(architectures[0], family.Class()+"For") || architectures[0] == family.Class()+"Model" {
				name = string(family)
			}
		}
	}
	switch family := Family(name); family {
	case Llama, Qwen2, Qwen3:
		return family, f.err()
	}
	return "", fmt.Errorf("model_type %q (architectures %v) is not supported: expected llama, qwen2 or qwen3", name, architectures)
}

// read takes the plain fields, with transformers' defaults for the family.
func read(f *fields, family Family) Config {
	c := Config{Family: family}
	qwen := family != Llama
	pick := func(llama, other int64) int64 {
		if qwen {
			return other
		}
		return llama
	}
	c.VocabSize = f.integer("vocab_size", pick(32000, 151936))
	c.HiddenSize = f.integer("hidden_size", 4096)
	c.IntermediateSize = f.integer("intermediate_size", pick(11008, 22016))
	c.NumLayers = f.integer("num_hidden_layers", 32)
	c.NumHeads = f.integer("num_attention_heads", 32)
	c.NumKVHeads = f.integer("num_key_value_heads", pick(c.NumHeads, 32))
	if f.isNull("num_key_value_heads") {
		c.NumKVHeads = c.NumHeads
	}
	c.HeadDim = f.integer("head_dim", 0)
	if c.HeadDim == 0 && family == Qwen3 {
		c.HeadDim = 128
	}
	if c.HeadDim == 0 && c.NumHeads > 0 {
		if c.HiddenSize%c.NumHeads != 0 {
			f.refuse("hidden_size", "%d is not a multiple of num_attention_heads %d, and there is no head_dim", c.HiddenSize, c.NumHeads)
		}
		c.HeadDim = c.HiddenSize / c.NumHeads
	}
	c.MaxPositions = f.integer("max_position_embeddings", pick(2048, 32768))
	c.RMSNormEps = f.number("rms_norm_eps", 1e-6)
	c.Tie = f.boolean("tie_word_embeddings", false)
	bias := f.boolean("attention_bias", false)
	switch family {
	case Llama:
		c.QKVBias, c.OutBias, c.MLPBias = bias, bias, f.boolean("mlp_bias", false)
	case Qwen2: // its projections have biases whatever the file says
		c.QKVBias = true
	case Qwen3:
		c.QKVBias, c.OutBias, c.QKNorm = bias, bias, true
	}
	c.DType = readDType(f)
	c.BOS = f.optionalID("bos_token_id", family == Llama, 1)
	c.PAD = f.optionalID("pad_token_id", false, 0)
	c.EOS = f.ids("eos_token_id")
	if family == Llama && !f.has("eos_token_id") {
		c.EOS = []int64{2}
	}
	for _, a := range f.texts("architectures") {
		c.Value = c.Value || strings.HasSuffix(a, "ForTokenClassification")
	}
	return c
}

// readDType takes "dtype" (transformers 5) or "torch_dtype".
func readDType(f *fields) tensors.DType {
	for _, key := range []string{"dtype", "torch_dtype"} {
		if name := f.text(key, ""); name != "" && name != "auto" {
			d, err := tensors.ParseDType(name)
			if err != nil {
				f.refuse(key, "%v", err)
			}
			return d
		}
	}
	return tensors.F32
}
