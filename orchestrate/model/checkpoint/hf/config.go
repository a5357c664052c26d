// Package hf reads and writes Hugging Face model directories: config.json in both spellings, the parameters a
// configuration implies, weights in any of the usual file layouts under canonical names, and how the two fit
// together.
//
// Defaults of absent keys are those of transformers' LlamaConfig, Qwen2Config and Qwen3Config. Whatever the decoder
// cannot compute (other architectures, rotary scalings, activations, sliding windows, quantised weights) is refused
// by name of the key.
package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// Config is a validated config.json: the model it describes, with the head that the directory was saved with (a value
// head for …ForTokenClassification with one label), and what else is said of it.
type Config struct {
	torch.ModelConfig               // on no device
	DType             weights.DType // of the weights, as declared; float32 when absent
	// Token ids; nil or empty when absent.
	BOS, PAD *int64
	EOS      []int64
}

// class is the prefix of transformers' class names: "Qwen2".
func class(f torch.Family) string { return strings.ToUpper(f.String()[:1]) + f.String()[1:] }

// maxConfig bounds the size of the small JSON files of a model directory.
const maxConfig = 16 << 20

// ReadConfig reads and validates dir/config.json.
func ReadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, "config.json")
	data, err := readSmall(path, maxConfig)
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

func readSmall(path string, limit int64) ([]byte, error) {
	file, _, err := weights.OpenRegular(path)
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
	c.readRope(f)
	refuseUnsupported(f, c)
	if f.err() == nil {
		c.validate(f)
	}
	return c, f.err()
}

func readFamily(f *fields) (torch.Family, error) {
	architectures := f.texts("architectures")
	name := f.text("model_type", "")
	if name == "" && len(architectures) > 0 {
		for _, family := range []torch.Family{torch.Llama, torch.Qwen2, torch.Qwen3} {
			if strings.HasPrefix(architectures[0], class(family)+"For") || architectures[0] == class(family)+"Model" {
				name = family.String()
			}
		}
	}
	if family, ok := torch.ParseFamily(name); ok {
		return family, f.err()
	}
	return 0, fmt.Errorf("model_type %q (architectures %v) is not supported: expected llama, qwen2 or qwen3", name,
		architectures)
}

// read takes the plain fields, with transformers' defaults for the family.
func read(f *fields, family torch.Family) Config {
	c := Config{ModelConfig: torch.ModelConfig{Family: family}}
	qwen := family != torch.Llama
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
	if c.HeadDim == 0 && family == torch.Qwen3 {
		c.HeadDim = 128
	}
	if c.HeadDim == 0 && c.NumHeads > 0 {
		if c.HiddenSize%c.NumHeads != 0 {
			f.refuse("hidden_size", "%d is not a multiple of num_attention_heads %d, and there is no head_dim",
				c.HiddenSize, c.NumHeads)
		}
		c.HeadDim = c.HiddenSize / c.NumHeads
	}
	c.MaxPositions = f.integer("max_position_embeddings", pick(2048, 32768))
	c.RMSNormEps = f.number("rms_norm_eps", 1e-6)
	c.TieEmbeddings = f.boolean("tie_word_embeddings", false)
	bias := f.boolean("attention_bias", false)
	switch family {
	case torch.Llama:
		c.QKVBias, c.OutBias, c.MLPBias = bias, bias, f.boolean("mlp_bias", false)
	case torch.Qwen2: // its projections have biases whatever the file says
		c.QKVBias = true
	case torch.Qwen3:
		c.QKVBias, c.OutBias, c.QKNorm = bias, bias, true
	}
	c.DType = readDType(f)
	c.BOS = f.optionalID("bos_token_id", family == torch.Llama, 1)
	c.PAD = f.optionalID("pad_token_id", false, 0)
	c.EOS = f.ids("eos_token_id")
	if family == torch.Llama && !f.has("eos_token_id") {
		c.EOS = []int64{2}
	}
	for _, a := range f.texts("architectures") {
		if strings.HasSuffix(a, "ForTokenClassification") {
			c.Head = torch.HeadValue
		}
	}
	return c
}

// readDType takes "dtype" (transformers 5) or "torch_dtype".
func readDType(f *fields) weights.DType {
	for _, key := range []string{"dtype", "torch_dtype"} {
		if name := f.text(key, ""); name != "" && name != "auto" {
			d, err := weights.ParseDType(name)
			if err != nil {
				f.refuse(key, "%v", err)
			}
			return d
		}
	}
	return weights.F32
}

// refuseUnsupported names the keys whose value asks for something the decoder does not compute.
func refuseUnsupported(f *fields, c Config) {
	if act := f.text("hidden_act", "silu"); act != "silu" {
		f.refuse("hidden_act", "%q is not supported: expected silu", act)
	}
	if f.has("quantization_config") {
		f.refuse("quantization_config",
			"quantised weights are not supported: use the original checkpoint or a GGUF with `gyre model convert`")
	}
	refuseSliding(f, c)
}

// refuseSliding refuses windows that would hide something: those of at least one layer, shorter than the longest
// sequence.
func refuseSliding(f *fields, c Config) {
	if c.Family == torch.Llama || !f.boolean("use_sliding_window", false) || f.isNull("sliding_window") {
		return
	}
	types := f.texts("layer_types")
	first := f.integer("max_window_layers", 28)
	used := types == nil && first < c.NumLayers
	for _, t := range types {
		used = used || t != "full_attention"
	}
	if window := f.integer("sliding_window", 4096); used && window < c.MaxPositions {
		f.refuse("use_sliding_window", "attention within a window of %d positions is not supported (the model goes "+
			"up to %d)",
			window, c.MaxPositions)
	}
}

// Upper bounds far beyond any model of these families. With them no product of sizes below overflows.
const (
	maxWidth  = 1 << 20
	maxLayers = 1 << 12
	maxVocab  = 1 << 24
)

// validate checks ranges and how the sizes fit together.
func (c Config) validate(f *fields) {
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
			f.refuse(v.key, "must be between 1 and %d, got %d", v.max, v.value)
		}
	}
	if f.err() != nil {
		return
	}
	if c.NumHeads%c.NumKVHeads != 0 {
		f.refuse("num_attention_heads", "%d is not a multiple of num_key_value_heads %d", c.NumHeads, c.NumKVHeads)
	}
	if c.HeadDim%2 != 0 {
		f.refuse("head_dim", "%d is odd: rotary embedding needs pairs", c.HeadDim)
	}
	if c.NumHeads*c.HeadDim > maxWidth {
		f.refuse("head_dim", "%d heads of %d are wider than %d", c.NumHeads, c.HeadDim, maxWidth)
	}
	if !(c.RMSNormEps > 0 && c.RMSNormEps < 1) {
		f.refuse("rms_norm_eps", "must be between 0 and 1, got %v", c.RMSNormEps)
	}
	if !(c.RopeTheta > 0) {
		f.refuse("rope_theta", "must be positive, got %v", c.RopeTheta)
	}
	if n := c.Count(torch.HeadLM); n > weights.MaxElements {
		f.refuse("hidden_size", "these sizes make %d parameters, at most %d are supported", n,
			int64(weights.MaxElements))
	}
}

// readRope takes rope_scaling and rope_theta (older) or rope_parameters (transformers 5), which may be nested by
// layer type. Precedence is transformers': a non-empty rope_scaling, then rope_parameters; inside either, a
// rope_theta of its own, then the top-level one.
func (c *Config) readRope(f *fields) {
	c.RopeTheta = f.number("rope_theta", 10000)
	refusePartial(f)
	p := f.object("rope_scaling")
	if p == nil {
		p = f.object("rope_parameters")
	}
	if p == nil {
		return
	}
	if nested := p.object("full_attention"); nested != nil {
		p = nested
	}
	refusePartial(p)
	c.RopeTheta = p.number("rope_theta", c.RopeTheta)
	key := "rope_type"
	if !p.has(key) && p.has("type") {
		key = "type"
	}
	name, known := p.text(key, torch.RopePlain.String()), false
	if c.RopeScaling, known = torch.ParseRopeScaling(name); !known {
		p.refuse(key, "%q is not supported: expected default, linear or llama3", name)
		return
	}
	if c.RopeScaling != torch.RopePlain {
		c.RopeFactor = p.required("factor")
	}
	if c.RopeScaling == torch.RopeLlama3 {
		c.RopeLowFreqFactor = p.required("low_freq_factor")
		c.RopeHighFreqFactor = p.required("high_freq_factor")
		c.RopeOriginalMaxPositions = f.integer("original_max_position_embeddings",
			p.integer("original_max_position_embeddings", c.MaxPositions))
		if c.RopeHighFreqFactor <= c.RopeLowFreqFactor {
			p.refuse("high_freq_factor", "%v must be larger than low_freq_factor %v", c.RopeHighFreqFactor,
				c.RopeLowFreqFactor)
		}
		if c.RopeOriginalMaxPositions <= 0 {
			p.refuse("original_max_position_embeddings", "must be positive, got %d", c.RopeOriginalMaxPositions)
		}
	}
}

func (f *fields) required(key string) float64 {
	v := f.number(key, 0)
	if !(v > 0) {
		f.refuse(key, "must be a positive number for this rope_type")
	}
	return v
}

func refusePartial(f *fields) {
	if v := f.number("partial_rotary_factor", 1); v != 1 {
		f.refuse("partial_rotary_factor", "%v is not supported: every head dimension rotates", v)
	}
}

// Encode writes config.json. It uses the older spelling (rope_theta, rope_scaling, torch_dtype), which every release
// of transformers reads.
func (c Config) Encode() ([]byte, error) {
	task := "ForCausalLM"
	m := map[string]any{
		"model_type": c.Family.String(), "vocab_size": c.VocabSize, "hidden_size": c.HiddenSize,
		"intermediate_size": c.IntermediateSize,
		"num_hidden_layers": c.NumLayers, "num_attention_heads": c.NumHeads, "num_key_value_heads": c.NumKVHeads,
		"head_dim": c.HeadDim, "max_position_embeddings": c.MaxPositions, "rms_norm_eps": decimal(c.RMSNormEps),
		"hidden_act": "silu",
		"rope_theta": decimal(c.RopeTheta), "tie_word_embeddings": c.TieEmbeddings, "torch_dtype": c.DType.String(),
		"attention_dropout": decimal(0),
		"initializer_range": 0.02, "use_cache": true,
		"bos_token_id": c.BOS, "pad_token_id": c.PAD, "eos_token_id": eosValue(c.EOS),
	}
	switch c.Family {
	case torch.Llama:
		m["attention_bias"], m["mlp_bias"] = c.QKVBias, c.MLPBias
	case torch.Qwen2:
		m["use_sliding_window"] = false
	case torch.Qwen3:
		m["attention_bias"], m["use_sliding_window"] = c.QKVBias, false
	}
	if c.Head == torch.HeadValue {
		task = "ForTokenClassification"
		m["id2label"], m["label2id"] = map[string]string{"0": "VALUE"}, map[string]int{"VALUE": 0}
	}
	m["architectures"] = []string{class(c.Family) + task}
	if c.RopeScaling != torch.RopePlain {
		rope := map[string]any{"rope_type": c.RopeScaling.String(), "factor": decimal(c.RopeFactor)}
		if c.RopeScaling == torch.RopeLlama3 {
			rope["low_freq_factor"], rope["high_freq_factor"] = decimal(c.RopeLowFreqFactor),
				decimal(c.RopeHighFreqFactor)
			rope["original_max_position_embeddings"] = c.RopeOriginalMaxPositions
		}
		m["rope_scaling"] = rope
	}
	return EncodeJSON(m)
}

// decimal is a number that stays a float when Python reads it: 10000.0, not 10000. transformers checks the types of
// these.
type decimal float64

func (d decimal) MarshalJSON() ([]byte, error) {
	text := strconv.AppendFloat(nil, float64(d), 'g', -1, 64)
	if !bytes.ContainsAny(text, ".e") {
		text = append(text, ".0"...)
	}
	return text, nil
}

// eosValue is null, one id or a list, as config.json has it.
func eosValue(ids []int64) any {
	switch len(ids) {
	case 0:
		return nil
	case 1:
		return ids[0]
	default:
		return ids
	}
}

// EncodeJSON writes a small JSON file's text: indented, with a newline at the end.
func EncodeJSON(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	return append(data, '\n'), err
}
