package hf

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Encode writes config.json. It uses the older spelling (rope_theta, rope_scaling, torch_dtype), which every release
// of transformers reads.
func (c Config) Encode() ([]byte, error) {
	class := "ForCausalLM"
	m := map[string]any{
		"model_type": c.Family, "vocab_size": c.VocabSize, "hidden_size": c.HiddenSize, "intermediate_size": c.IntermediateSize,
		"num_hidden_layers": c.NumLayers, "num_attention_heads": c.NumHeads, "num_key_value_heads": c.NumKVHeads,
		"head_dim": c.HeadDim, "max_position_embeddings": c.MaxPositions, "rms_norm_eps": decimal(c.RMSNormEps), "hidden_act": "silu",
		"rope_theta": decimal(c.Rope.Theta), "tie_word_embeddings": c.Tie, "torch_dtype": c.DType.String(), "attention_dropout": decimal(0),
		"initializer_range": 0.02, "use_cache": true,
		"bos_token_id": c.BOS, "pad_token_id": c.PAD, "eos_token_id": eosValue(c.EOS),
	}
	switch c.Family {
	case Llama:
		m["attention_bias"], m["mlp_bias"] = c.QKVBias, c.MLPBias
	case Qwen2:
		m["use_sliding_window"] = false
	case Qwen3:
		m["attention_bias"], m["use_sliding_window"] = c.QKVBias, false
	}
	if c.Value {
		class = "ForTokenClassification"
		m["id2label"], m["label2id"] = map[string]string{"0": "VALUE"}, map[string]int{"VALUE": 0}
	}
	m["architectures"] = []string{c.Family.Class() + class}
	switch c.Rope.Type {
	case RopeLinear:
		m["rope_scaling"] = map[string]any{"rope_type": RopeLinear, "factor": decimal(c.Rope.Factor)}
	case RopeLlama3:
		m["rope_scaling"] = map[string]any{"rope_type": RopeLlama3, "factor": decimal(c.Rope.Factor),
			"low_freq_factor": decimal(c.Rope.LowFreqFactor), "high_freq_factor": decimal(c.Rope.HighFreqFactor),
			"original_max_position_embeddings": c.Rope.OriginalMaxPositions}
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
