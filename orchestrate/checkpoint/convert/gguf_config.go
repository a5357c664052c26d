package convert

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"gyre/orchestrate/checkpoint/gguf"
	"gyre/orchestrate/checkpoint/hf"
	"gyre/orchestrate/checkpoint/tensors"
)

// readConfig translates the metadata into a config.json and lets package hf judge it, so that the same rules hold for
// both.
func readConfig(m gguf.Metadata, byName map[string]*tensors.Tensor) (hf.Config, error) {
	arch, _ := m.Text("general.architecture")
	if arch != "llama" && arch != "qwen2" && arch != "qwen3" {
		return hf.Config{}, fmt.Errorf("general.architecture %q is not supported: expected llama, qwen2 or qwen3", arch)
	}
	embedding := byName["token_embd.weight"]
	if embedding == nil || len(embedding.Shape) != 2 {
		return hf.Config{}, errors.New("no matrix token_embd.weight")
	}
	config := map[string]any{"model_type": arch, "vocab_size": embedding.Shape[0], "bos_token_id": nil, "eos_token_id": nil,
		"tie_word_embeddings": byName["output.weight"] == nil,
		"attention_bias":      byName["blk.0.attn_q.bias"] != nil, "mlp_bias": byName["blk.0.ffn_up.bias"] != nil}
	for from, to := range map[string]string{"block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
		"embedding_length": "hidden_size", "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
		"attention.layer_norm_rms_epsilon": "rms_norm_eps"} {
		v, ok := m.Number(arch + "." + from)
		if !ok {
			return hf.Config{}, fmt.Errorf("metadata key %s.%s is missing or not a number", arch, from)
		}
		config[to] = v
	}
	config["num_key_value_heads"] = config["num_attention_heads"]
	for from, to := range map[string]string{"attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim",
		"rope.freq_base": "rope_theta"} {
		if v, ok := m.Number(arch + "." + from); ok {
			config[to] = v
		}
	}
	for _, name := range []string{"bos", "eos"} {
		if id, ok := m.Integer("tokenizer.ggml." + name + "_token_id"); ok {
			config[name+"_token_id"] = id
		}
	}
	if id, ok := m.Integer("tokenizer.ggml.padding_token_id"); ok {
		config["pad_token_id"] = id
	}
	scaling, err := ropeScaling(m, arch, byName[ropeFactors])
	if err != nil {
		return hf.Config{}, err
	}
	if scaling != nil {
		config["rope_scaling"] = scaling
	}
	text, err := json.Marshal(config)
	if err != nil {
		return hf.Config{}, err
	}
	c, err := hf.ParseConfig(text)
	if err != nil {
		return hf.Config{}, err
	}
	for _, key := range []string{"attention.value_length", "rope.dimension_count"} {
		if v, ok := m.Integer(arch + "." + key); ok && v != c.HeadDim {
			return hf.Config{}, fmt.Errorf("metadata key %s.%s is %d, only the head dimension %d is supported", arch, key, v, c.HeadDim)
		}
	}
	if scaling != nil && scaling["rope_type"] == hf.RopeLlama3 {
		return c, checkRopeFactors(c, byName[ropeFactors])
	}
	return c, nil
}

func ropeScaling(m gguf.Metadata, arch string, factors *tensors.Tensor) (map[string]any, error) {
	kind, _ := m.Text(arch + ".rope.scaling.type")
	factor, hasFactor := m.Number(arch + ".rope.scaling.factor")
	if !hasFactor {
		factor, hasFactor = m.Number(arch + ".rope.scale_linear")
	}
	switch {
	case factors != nil:
		values, err := float32s(factors)
		if err != nil || len(values) == 0 {
			return nil, errors.Join(fmt.Errorf("%s is empty or unreadable", ropeFactors), err)
		}
		// The file keeps one factor per frequency. The parameters behind them are those of every Llama 3 release, but
		// for the largest factor.
		return map[string]any{"rope_type": hf.RopeLlama3, "factor": values[len(values)-1], "low_freq_factor": 1, "high_freq_factor": 4,
			"original_max_position_embeddings": 8192}, nil
	case kind == "linear" || kind == "" && hasFactor && factor != 1:
		return map[string]any{"rope_type": hf.RopeLinear, "factor": factor}, nil
	case kind == "" || kind == "none":
		return nil, nil
	default:
		return nil, fmt.Errorf("metadata key %s.rope.scaling.type %q is not supported: expected none or linear", arch, kind)
	}
}

// checkRopeFactors proves that the assumed Llama 3 parameters give the factors in the file.
func checkRopeFactors(c hf.Config, t *tensors.Tensor) error {
	values, err := float32s(t)
	if err != nil {
		return err
	}
	if int64(len(values)) != c.HeadDim/2 {
		return fmt.Errorf("%s has %d values, expected %d", ropeFactors, len(values), c.HeadDim/2)
	}
	original := float64(c.Rope.OriginalMaxPositions)
	for i, got := range values {
		wavelength := 2 * math.Pi * math.Pow(c.Rope.Theta, 2*float64(i)/float64(c.HeadDim))
		smooth := (original/wavelength - c.Rope.LowFreqFactor) / (c.Rope.HighFreqFactor - c.Rope.LowFreqFactor)
		smooth = min(max(smooth, 0), 1)
		want := 1 / ((1-smooth)/c.Rope.Factor + smooth)
		if math.Abs(got-want) > 1e-3*want {
			return fmt.Errorf("%s[%d] is %v, Llama 3's rotary scaling gives %v: this scaling is not supported", ropeFactors, i, got, want)
		}
	}
	return nil
}

func float32s(t *tensors.Tensor) ([]float64, error) {
	data, _, err := t.Dense(tensors.F32, nil, nil)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(data)/4)
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
	}
	return out, nil
}
