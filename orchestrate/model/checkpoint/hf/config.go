// Package hf reads and writes Hugging Face model directories: config.json in both spellings, the parameters a
// configuration implies, weights in any of the usual file layouts under canonical names, and how the two fit
// together.
//
// Defaults of absent keys are those of transformers' LlamaConfig, Qwen2Config and Qwen3Config. Whatever the decoder
// cannot compute (other architectures, rotary scalings, activations, sliding windows, quantised weights) is refused
// by name of the key.
package hf

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
}

// class is the prefix of transformers' class names: "Qwen2".
func class(f torch.Family) string { return strings.ToUpper(f.String()[:1]) + f.String()[1:] }

// ReadConfig reads and validates dir/config.json.
func ReadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(path)
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

// ParseConfig reads and validates the text of a config.json. Every problem is reported, in one error.
func ParseConfig(data []byte) (Config, error) {
	var kind configFile
	if err := decode(data, &kind); err != nil {
		return Config{}, err
	}
	family, err := kind.family()
	if err != nil {
		return Config{}, err
	}
	f := defaults(family)
	if err := decode(data, &f); err != nil {
		return Config{}, err
	}
	var p problems
	c := f.config(family, &p)
	c.readRope(f, &p)
	f.refuseUnsupported(c, &p)
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
	name := f.ModelType
	if name == "" && len(f.Architectures) > 0 {
		for _, family := range []torch.Family{torch.Llama, torch.Qwen2, torch.Qwen3} {
			a := f.Architectures[0]
			if strings.HasPrefix(a, class(family)+"For") || a == class(family)+"Model" {
				name = family.String()
			}
		}
	}
	if family, ok := torch.ParseFamily(name); ok {
		return family, nil
	}
	return 0, fmt.Errorf("model_type %q (architectures %v) is not supported: expected llama, qwen2 or qwen3", name,
		f.Architectures)
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
	switch family {
	case torch.Llama:
		c.QKVBias, c.OutBias, c.MLPBias = f.AttentionBias, f.AttentionBias, f.MLPBias
	case torch.Qwen2: // its projections have biases whatever the file says
		c.QKVBias = true
	case torch.Qwen3:
		c.QKVBias, c.OutBias, c.QKNorm = f.AttentionBias, f.AttentionBias, true
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
func (f *configFile) refuseUnsupported(c Config, p *problems) {
	if f.HiddenAct != "silu" {
		p.add("hidden_act", "%q is not supported: expected silu", f.HiddenAct)
	}
	if f.Quantization != nil {
		p.add("quantization_config", "quantised weights are not supported: use the original checkpoint or a GGUF with "+
			"`gyre model convert`")
	}
	// A window is refused where it would hide something: in a layer that has one, if it is shorter than the longest
	// sequence.
	if c.Family == torch.Llama || !f.UseSlidingWindow || f.SlidingWindow == nil || *f.SlidingWindow >= c.MaxPositions {
		return
	}
	windowed := func(layer string) bool { return layer != "full_attention" }
	if f.LayerTypes == nil && f.MaxWindowLayers < c.NumLayers || slices.ContainsFunc(f.LayerTypes, windowed) {
		p.add("use_sliding_window", "attention within a window of %d positions is not supported (the model goes up to "+
			"%d)", *f.SlidingWindow, c.MaxPositions)
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
		p.add("head_dim", "%d is odd: rotary embedding needs pairs", c.HeadDim)
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
	if n := c.Count(torch.HeadLM); n > weights.MaxElements {
		p.add("hidden_size", "these sizes make %d parameters, at most %d are supported", n, int64(weights.MaxElements))
	}
}

// readRope takes rope_scaling and rope_theta (older) or rope_parameters (transformers 5), which may be nested by
// layer type. Precedence is transformers': a non-empty rope_scaling, then rope_parameters; inside either, a
// rope_theta of its own, then the top-level one.
func (c *Config) readRope(f configFile, p *problems) {
	key, r := "rope_scaling.", f.RopeScaling
	if r == nil || *r == (rope{}) {
		key, r = "rope_parameters.", f.RopeParameters
	}
	if r == nil {
		r = &rope{}
	}
	if r.FullAttention != nil {
		r = r.FullAttention
	}
	if partial := cmp.Or(r.PartialRotary, f.PartialRotary, 1); partial != 1 {
		p.add(key+"partial_rotary_factor", "%v is not supported: every head dimension rotates", partial)
	}
	c.RopeTheta = float64(cmp.Or(r.Theta, f.RopeTheta))
	name, known := cmp.Or(r.Type, r.OldType, torch.RopePlain.String()), false
	if c.RopeScaling, known = torch.ParseRopeScaling(name); !known {
		p.add(key+"rope_type", "%q is not supported: expected default, linear or llama3", name)
		return
	}
	positive := func(name string, v decimal) float64 {
		if !(v > 0) {
			p.add(key+name, "must be a positive number for this rope_type, got %v", float64(v))
		}
		return float64(v)
	}
	if c.RopeScaling != torch.RopePlain {
		c.RopeFactor = positive("factor", r.Factor)
	}
	if c.RopeScaling == torch.RopeLlama3 {
		c.RopeLowFreqFactor = positive("low_freq_factor", r.LowFreqFactor)
		c.RopeHighFreqFactor = positive("high_freq_factor", r.HighFreqFactor)
		c.RopeOriginalMaxPositions = cmp.Or(f.OriginalMaxPositions, r.OriginalMaxPositions, c.MaxPositions)
		if c.RopeHighFreqFactor <= c.RopeLowFreqFactor {
			p.add(key+"high_freq_factor", "%v must be larger than low_freq_factor %v", c.RopeHighFreqFactor,
				c.RopeLowFreqFactor)
		}
		if c.RopeOriginalMaxPositions <= 0 {
			p.add(key+"original_max_position_embeddings", "must be positive, got %d", c.RopeOriginalMaxPositions)
		}
	}
}
