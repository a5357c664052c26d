package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"

	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// Names of tensors outside and inside blocks, GGUF to Hugging Face.
var (
	rootNames = map[string]string{"token_embd.weight": "model.embed_tokens.weight",
		"output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
	blockNames = map[string]string{"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj",
		"attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
		"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm",
		"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
	inBlock = regexp.MustCompile(`^blk\.(\d{1,4})\.(\w+)(\.weight|\.bias)$`)
)

// readModel sees a GGUF file as a Hugging Face checkpoint.
func readModel(f *weights.File) (hf.Config, *hf.Weights, error) {
	byName := map[string]*weights.Tensor{}
	for _, t := range f.Tensors {
		byName[t.Name] = t
	}
	c, err := readConfig(f.GGUF, byName)
	if err != nil {
		return c, nil, err
	}
	w := &hf.Weights{Tensors: map[string]*weights.Tensor{}}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if name == ropeFactors {
			continue
		}
		renamed, part, ok := huggingFaceName(name)
		if !ok {
			return c, nil, fmt.Errorf("tensor %s has no place in a llama, qwen2 or qwen3 model", name)
		}
		t := *byName[name]
		t.Name = renamed
		if c.Family == torch.Llama {
			switch part {
			case "attn_q":
				unpermute(&t, c.NumHeads, c.HeadDim)
			case "attn_k":
				unpermute(&t, c.NumKVHeads, c.HeadDim)
			}
		}
		w.Tensors[renamed] = &t
	}
	return c, w, nil
}

// huggingFaceName translates "blk.3.attn_q.weight"; part is "attn_q".
func huggingFaceName(name string) (renamed, part string, ok bool) {
	if root, ok := rootNames[name]; ok {
		return root, "", true
	}
	m := inBlock.FindStringSubmatch(name)
	if m == nil || blockNames[m[2]] == "" {
		return "", "", false
	}
	return "model.layers." + m[1] + "." + blockNames[m[2]] + m[3], m[2], true
}

// unpermute puts the rows of each head in Hugging Face's order: GGUF's llama files interleave the two halves of the
// rotary pairs.
func unpermute(t *weights.Tensor, heads, headDim int64) {
	load, rows := t.Load, heads*headDim
	if len(t.Shape) == 0 || t.Shape[0] != rows { // misshapen: matching with the configuration reports it
		return
	}
	t.Load = func(buffer []byte) ([]byte, error) {
		raw, err := load(nil)
		if err != nil {
			return nil, err
		}
		buffer = weights.Resize(buffer, int64(len(raw)))
		row := int64(len(raw)) / rows
		for to := range rows {
			head, i := to/headDim, to%headDim
			from := head*headDim + i%(headDim/2)*2 + i/(headDim/2)
			copy(buffer[to*row:(to+1)*row], raw[from*row:])
		}
		return buffer, nil
	}
}

// configKeys are metadata keys, after the architecture, and those of config.json; requiredKeys have no default.
var (
	configKeys = map[string]string{"block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
		"embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
		"attention.head_count": "num_attention_heads", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
		"attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim",
		"rope.freq_base": "rope_theta"}
	requiredKeys = []string{"block_count", "context_length", "embedding_length", "feed_forward_length",
		"attention.head_count", "attention.layer_norm_rms_epsilon"}
)

// readConfig translates the metadata into a config.json and lets package hf judge it, so that the same rules hold for
// both.
func readConfig(m weights.Metadata, byName map[string]*weights.Tensor) (hf.Config, error) {
	arch, _ := m["general.architecture"].(string)
	if arch != "llama" && arch != "qwen2" && arch != "qwen3" {
		return hf.Config{}, fmt.Errorf("general.architecture %q is not supported: expected llama, qwen2 or qwen3", arch)
	}
	embedding := byName["token_embd.weight"]
	if embedding == nil || len(embedding.Shape) != 2 {
		return hf.Config{}, errors.New("no matrix token_embd.weight")
	}
	config := map[string]any{"model_type": arch, "vocab_size": embedding.Shape[0],
		"tie_word_embeddings": byName["output.weight"] == nil,
		"attention_bias":      byName["blk.0.attn_q.bias"] != nil,
		"mlp_bias":            byName["blk.0.ffn_up.bias"] != nil}
	for from, to := range configKeys {
		if v, ok := m.Number(arch + "." + from); ok {
			config[to] = v
		}
	}
	for _, key := range requiredKeys {
		if config[configKeys[key]] == nil {
			return hf.Config{}, fmt.Errorf("metadata key %s.%s is missing or not a number", arch, key)
		}
	}
	if config["num_key_value_heads"] == nil {
		config["num_key_value_heads"] = config["num_attention_heads"]
	}
	for _, name := range []string{"bos", "eos"} {
		config[name+"_token_id"] = m["tokenizer.ggml."+name+"_token_id"]
	}
	config["pad_token_id"] = m["tokenizer.ggml.padding_token_id"]
	scaling, err := ropeScaling(m, arch, byName[ropeFactors])
	if err != nil {
		return hf.Config{}, err
	}
	config["rope_scaling"] = scaling
	text, err := json.Marshal(config)
	if err != nil {
		return hf.Config{}, err
	}
	c, err := hf.ParseConfig(text)
	if err != nil {
		return hf.Config{}, err
	}
	for _, key := range []string{"attention.value_length", "rope.dimension_count"} {
		if v, ok := m[arch+"."+key].(int64); ok && v != c.HeadDim {
			return hf.Config{}, fmt.Errorf("metadata key %s.%s is %d, only the head dimension %d is supported", arch,
				key, v, c.HeadDim)
		}
	}
	if byName[ropeFactors] != nil {
		return c, checkRopeFactors(c, byName[ropeFactors])
	}
	return c, nil
}

// ropeFactors is the tensor in which GGUF keeps what Llama 3's rotary scaling comes to.
const ropeFactors = "rope_freqs.weight"

// ropeScaling is the rope_scaling of config.json that a file's metadata and factors stand for; nil without scaling.
func ropeScaling(m weights.Metadata, arch string, factors *weights.Tensor) (map[string]any, error) {
	kind, _ := m[arch+".rope.scaling.type"].(string)
	factor, hasFactor := m.Number(arch + ".rope.scaling.factor")
	if !hasFactor {
		factor, hasFactor = m.Number(arch + ".rope.scale_linear")
	}
	switch {
	case factors != nil:
		values, err := factors.Float64s()
		if err != nil || len(values) == 0 {
			return nil, errors.Join(fmt.Errorf("%s is empty or unreadable", ropeFactors), err)
		}
		// The file keeps one factor per frequency. The parameters behind them are those of every Llama 3 release, but
		// for the largest factor.
		return map[string]any{"rope_type": "llama3", "factor": values[len(values)-1], "low_freq_factor": 1,
			"high_freq_factor": 4, "original_max_position_embeddings": 8192}, nil
	case kind == "linear" || kind == "" && hasFactor && factor != 1:
		return map[string]any{"rope_type": "linear", "factor": factor}, nil
	case kind == "" || kind == "none":
		return nil, nil
	default:
		return nil, fmt.Errorf("metadata key %s.rope.scaling.type %q is not supported: expected none or linear", arch,
			kind)
	}
}

// checkRopeFactors proves that the assumed Llama 3 parameters give the factors in the file.
func checkRopeFactors(c hf.Config, t *weights.Tensor) error {
	values, err := t.Float64s()
	if err != nil {
		return err
	}
	if int64(len(values)) != c.HeadDim/2 {
		return fmt.Errorf("%s has %d values, expected %d", ropeFactors, len(values), c.HeadDim/2)
	}
	for i, got := range values {
		if want := c.Shape.Rope.Divisors[i]; math.Abs(got-want) > 1e-3*want {
			return fmt.Errorf("%s[%d] is %v, Llama 3's rotary scaling gives %v: this scaling is not supported",
				ropeFactors, i, got, want)
		}
	}
	return nil
}
