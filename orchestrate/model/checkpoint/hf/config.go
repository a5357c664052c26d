// Package hf reads and writes Hugging Face model directories: config.json in both spellings, the parameters a
// configuration implies, weights in any of the usual file layouts under canonical names, and how the two fit
// together.
//
// Defaults of absent keys are those of transformers' configurations of the families in families.go. Whatever the
// decoder cannot compute (other architectures, activations, quantised weights, keys that are not known) is refused by
// name of the key.
package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gyre/internal/regular"
	"gyre/orchestrate/model/chat/bpe"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// Config is a validated config.json: the model it describes, with the head that the directory was saved with (a value
// head for …ForTokenClassification with one label), and what else is said of it.
type Config struct {
	torch.ModelConfig               // on no device
	DType             weights.DType // of the weights, as declared; float32 when absent
	BOS, PAD, EOS     bpe.IDs       // empty when absent

	// that it was read from, where ModelConfig does not say all of it
	text string
	rope *rope // its first rotary embedding's scaling; nil: none
}

// class is the prefix of transformers' class names: "Qwen2".
func class(f torch.Family) string { return families[f].class }

// ReadConfig reads and validates dir/config.json.
func ReadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, "config.json")
	data, err := regular.Read(path)
	if errors.Is(err, os.ErrNotExist) {
		return Config{}, fmt.Errorf("%s has no config.json: expected a Hugging Face model directory: %w", dir,
			os.ErrNotExist)
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

// problems collects what is wrong with a configuration.
type problems []error

func (p *problems) add(key, format string, args ...any) {
	*p = append(*p, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
}

// ParseConfig reads and validates the text of a config.json. Every problem is reported, in one error. Rotary scalings
// that depend on a sequence's length are those of short sequences: see Settle.
func ParseConfig(data []byte) (Config, error) { return parseConfig(data, 0) }

// Settle sets what depends on the length of sequences as it is for the longest of a run; 0 leaves it as it is for short
// ones. MaxPositions then says which sequences that is right for.
func (c *Config) Settle(longest int64) error {
	if longest == 0 || c.text == "" {
		return nil
	}
	settled, err := parseConfig([]byte(c.text), longest)
	if err == nil {
		c.RopeTheta, c.MaxPositions = settled.RopeTheta, settled.MaxPositions
		c.Shape.LocalTheta = settled.Shape.LocalTheta
		c.Shape.Rope, c.Shape.LocalRope = settled.Shape.Rope, settled.Shape.LocalRope
	}
	return err
}

func parseConfig(data []byte, longest int64) (Config, error) {
	var kind configFile
	if err := decode(data, &kind); err != nil {
		return Config{}, err
	}
	family, err := kind.family()
	if err != nil {
		return Config{}, err
	}
	f := defaults(family)
	var p problems
	checkKeys(data, family, &p)
	if err := decode(data, &f); err != nil {
		return Config{}, err
	}
	c := f.config(family, &p)
	families[family].shape(&f, &c, &p)
	c.readRope(f, longest, &p)
	f.refuseUnsupported(&c, &p)
	if !c.plain() {
		c.text = string(data)
	}
	if p == nil {
		c.validate(&p)
	}
	return c, errors.Join(p...)
}

func decode(data []byte, f *configFile) error {
	err := json.Unmarshal(data, f)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return fmt.Errorf("%s: expected %v, got a %s", wrong.Field, wrong.Type, wrong.Value)
	}
	if err != nil {
		return fmt.Errorf("not a configuration: %w", err)
	}
	return nil
}

func (f *configFile) family() (torch.Family, error) {
	name := torch.Family(f.ModelType)
	if name == "" && len(f.Architectures) > 0 {
		for family := range families {
			a := f.Architectures[0]
			if strings.HasPrefix(a, class(family)+"For") || a == class(family)+"Model" {
				name = family
			}
		}
	}
	if _, known := families[name]; !known {
		return "", fmt.Errorf("model_type %q (architectures %v) is not supported: expected one of %v", name,
			f.Architectures, slices.Sorted(maps.Keys(families)))
	}
	return name, nil
}

// config takes the plain keys.
func (f *configFile) config(family torch.Family, p *problems) Config {
	c := Config{BOS: f.BOS, PAD: f.PAD, EOS: f.EOS, ModelConfig: torch.ModelConfig{
		Family: family, VocabSize: f.VocabSize, HiddenSize: f.HiddenSize, IntermediateSize: f.IntermediateSize,
		NumLayers: f.Layers, NumHeads: f.Heads, NumKVHeads: f.Heads, HeadDim: f.HeadDim,
		MaxPositions: f.MaxPositions, RMSNormEps: float64(f.RMSNormEps), TieEmbeddings: f.TieEmbeddings,
	}}
	if f.KVHeads != nil {
		c.NumKVHeads = *f.KVHeads
	}
	if c.HeadDim == 0 && c.NumHeads > 0 {
		if c.HiddenSize%c.NumHeads != 0 {
			p.add("hidden_size", "%d is not a multiple of num_attention_heads %d, and there is no head_dim",
				c.HiddenSize, c.NumHeads)
		}
		c.HeadDim = c.HiddenSize / c.NumHeads
	}
	name := f.DType
	if name == "" || name == "auto" {
		name = f.TorchDType
	}
	if name != "" && name != "auto" {
		var err error
		if c.DType, err = weights.ParseDType(name); err != nil {
			p.add("dtype or torch_dtype", "%v", err)
		}
	}
	if slices.ContainsFunc(f.Architectures, func(a string) bool { return strings.HasSuffix(a, valueTask) }) {
		c.Head = torch.HeadValue
	}
	return c
}

// valueTask ends the class name of a model with a value head.
const valueTask = "ForTokenClassification"

// refuseUnsupported names the keys whose value asks for something the decoder does not compute.
func (f *configFile) refuseUnsupported(c *Config, p *problems) {
	key, name := "hidden_act", f.HiddenAct
	if f.Activation != "" { // Gemma's, which has hidden_act besides and does not read it
		key, name = "hidden_activation", f.Activation
	}
	switch name {
	case "silu", "swish":
		c.Shape.Activation = torch.SiLU
	case "gelu_pytorch_tanh", "gelu_new":
		c.Shape.Activation = torch.GELUTanh
	default:
		p.add(key, "%q is not supported: expected silu or gelu_pytorch_tanh", name)
	}
	if f.Quantization != nil {
		p.add("quantization_config", "quantised weights are not supported: use the original checkpoint or a GGUF with "+
			"`gyre model convert`")
	}
}

// Upper bounds far beyond any model of these families. With them no product of sizes below overflows.
const (
	maxWidth  = 1 << 20
	maxLayers = 1 << 12
	maxVocab  = 1 << 24
)

// validate checks ranges and how the sizes fit together.
func (c Config) validate(p *problems) {
	for _, v := range []struct {
		key        string
		value, max int64
	}{
		{"vocab_size", c.VocabSize, maxVocab}, {"hidden_size", c.HiddenSize, maxWidth},
		{"intermediate_size", c.IntermediateSize, maxWidth}, {"num_hidden_layers", c.NumLayers, maxLayers},
		{"num_attention_heads", c.NumHeads, maxWidth}, {"num_key_value_heads", c.NumKVHeads, maxWidth},
		{"head_dim", c.HeadDim, maxWidth}, {"max_position_embeddings", c.MaxPositions, 1 << 31},
	} {
		if v.value < 1 || v.value > v.max {
			p.add(v.key, "must be between 1 and %d, got %d", v.max, v.value)
		}
	}
	if *p != nil {
		return
	}
	if c.NumHeads%c.NumKVHeads != 0 {
		p.add("num_attention_heads", "%d is not a multiple of num_key_value_heads %d", c.NumHeads, c.NumKVHeads)
	}
	if c.HeadDim%2 != 0 {
		p.add("head_dim", "%d is odd: rotations and kernels need pairs", c.HeadDim)
	}
	if c.NumHeads*c.HeadDim > maxWidth {
		p.add("head_dim", "%d heads of %d are wider than %d", c.NumHeads, c.HeadDim, maxWidth)
	}
	if !(c.RMSNormEps > 0 && c.RMSNormEps < 1) {
		p.add("rms_norm_eps", "must be between 0 and 1, got %v", c.RMSNormEps)
	}
	if !(c.RopeTheta > 0) {
		p.add("rope_theta", "must be positive, got %v", c.RopeTheta)
	}
	if c.NumLayers > torch.MaxLayers && c.Shape.Layers != [torch.MaxLayers]torch.LayerKind{} {
		p.add("num_hidden_layers", "%d layers that differ from each other, at most %d are supported", c.NumLayers,
			torch.MaxLayers)
	}
	if d := int64(c.Shape.RotaryDims); d < 0 || d%2 != 0 || d > c.HeadDim {
		p.add("partial_rotary_factor", "makes %d components rotate, expected an even number up to head_dim %d", d,
			c.HeadDim)
	}
	if n := c.Count(torch.HeadLM); n > weights.MaxElements {
		p.add("hidden_size", "these sizes make %d parameters, at most %d are supported", n, int64(weights.MaxElements))
	}
}
