package hf

import "gyre/orchestrate/checkpoint/tensors"

// refuseUnsupported names the keys whose value asks for something the decoder does not compute.
func refuseUnsupported(f *fields, c Config) {
	if act := f.text("hidden_act", "silu"); act != "silu" {
		f.refuse("hidden_act", "%q is not supported: expected silu", act)
	}
	if f.has("quantization_config") {
		f.refuse("quantization_config", "quantised weights are not supported: use the original checkpoint or a GGUF with `gyre model convert`")
	}
	refuseSliding(f, c)
}

// refuseSliding refuses windows that would hide something: those of at least one layer, shorter than the longest
// sequence.
func refuseSliding(f *fields, c Config) {
	if c.Family == Llama || !f.boolean("use_sliding_window", false) || f.isNull("sliding_window") {
		return
	}
	types := f.texts("layer_types")
	first := f.integer("max_window_layers", 28)
	used := types == nil && first < c.NumLayers
	for _, t := range types {
		used = used || t != "full_attention"
	}
	if window := f.integer("sliding_window", 4096); used && window < c.MaxPositions {
		f.refuse("use_sliding_window", "attention within a window of %d positions is not supported (the model goes up to %d)",
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
	if !(c.Rope.Theta > 0) {
		f.refuse("rope_theta", "must be positive, got %v", c.Rope.Theta)
	}
	if n := c.Count(LanguageModel); n > tensors.MaxElements {
		f.refuse("hidden_size", "these sizes make %d parameters, at most %d are supported", n, int64(tensors.MaxElements))
	}
}
