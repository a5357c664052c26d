package hf

import (
	"maps"
	"math"
	"slices"
	"strings"

	"gyre/orchestrate/model/chat/bpe"
	"gyre/torch"
)

// family says how config.json and the tensors of one model_type are read: transformers' defaults, what its keys come to
// in a decoder's shape, and what its tensors are called. A new family is a row of the table below.
type family struct {
	class    string // of transformers: "Gemma3" for Gemma3ForCausalLM
	keys     string // that it reads besides the common ones, separated by spaces
	defaults func(f *configFile)
	shape    func(f *configFile, c *Config, p *problems)
	// theta of the layers within a window, which have a rotary embedding of their own; 0: they have not
	localTheta float64
	partial    bool              // partial_rotary_factor counts
	names      map[string]string // of modules in a block: what they are called in C++, and in files
	fused      []fusedModule     // of modules that lie in one tensor of a file
	// keys of a new small model besides its sizes; nil: none
	fresh func(c Config) map[string]any
}

// fusedModule is a matrix of a file whose rows are those of several modules.
type fusedModule struct {
	name  string
	parts []string
}

// Keys that several families read.
const (
	windowKeys = " sliding_window layer_types use_sliding_window max_window_layers "
	biasKeys   = " attention_bias mlp_bias "

	graniteKeys = " embedding_multiplier logits_scaling residual_multiplier attention_multiplier "
)

// sandwich are the names of norms around a branch in families that call the norm after attention
// post_attention_layernorm.
var sandwich = map[string]string{"post_self_attn_layernorm": "post_attention_layernorm",
	"post_attention_layernorm": "pre_feedforward_layernorm", "post_mlp_layernorm": "post_feedforward_layernorm"}

var gateUp = fusedModule{"mlp.gate_up_proj", []string{"mlp.gate_proj", "mlp.up_proj"}}

// The table refers to functions that look into it.
var families map[torch.Family]family

func init() {
	families = table
	maps.Copy(families, mixtures)
}

var table = map[torch.Family]family{
	torch.Llama: {class: "Llama", keys: biasKeys + windowKeys, defaults: func(f *configFile) {
		f.VocabSize, f.IntermediateSize, f.KVHeads, f.MaxPositions = 32000, 11008, nil, 2048
		f.BOS, f.EOS = bpe.IDs{1}, bpe.IDs{2}
	}, shape: func(f *configFile, c *Config, _ *problems) {
		c.QKVBias, c.OutBias, c.MLPBias = f.AttentionBias, f.AttentionBias, f.MLPBias
	}},
	torch.Qwen2: {class: "Qwen2", keys: biasKeys + windowKeys, defaults: func(*configFile) {},
		shape: func(f *configFile, c *Config, p *problems) {
			c.QKVBias = true // its projections have biases whatever the file says
			f.qwenWindows(c, p)
		}},
	torch.Qwen3: {class: "Qwen3", keys: biasKeys + windowKeys, defaults: func(f *configFile) { f.HeadDim = 128 },
		shape: func(f *configFile, c *Config, p *problems) {
			c.QKVBias, c.OutBias, c.QKNorm = f.AttentionBias, f.AttentionBias, true
			f.qwenWindows(c, p)
		}},
	torch.Mistral: {class: "Mistral", keys: "sliding_window", defaults: mistralDefaults,
		shape: func(f *configFile, c *Config, p *problems) {
			f.windows(c, p, func(int64) bool { return true })
		}},
	torch.Ministral: {class: "Ministral", keys: "sliding_window layer_types", defaults: mistralDefaults,
		shape: func(f *configFile, c *Config, p *problems) {
			f.windows(c, p, func(int64) bool { return f.SlidingWindow != nil })
		}},
	torch.SmolLM3: {class: "SmolLM3", keys: biasKeys + windowKeys + "no_rope_layers no_rope_layer_interval",
		defaults: func(f *configFile) {
			f.VocabSize, f.HiddenSize, f.IntermediateSize, f.Layers, f.Heads = 128256, 2048, 11008, 36, 16
			f.KVHeads, f.RopeTheta, f.TieEmbeddings, f.NoRopeInterval = new(int64(4)), 2000000, true, 4
			f.SlidingWindow = nil
			f.BOS, f.EOS, f.PAD = bpe.IDs{128000}, bpe.IDs{128001}, bpe.IDs{128004}
		}, shape: smolLM3},
	torch.Granite: {class: "Granite", fresh: graniteFresh, keys: biasKeys + graniteKeys, defaults: graniteDefaults,
		shape: granite},
	torch.Olmo2: {class: "Olmo2", keys: "attention_bias", defaults: olmoDefaults, shape: olmo, names: olmoNames},
	torch.Olmo3: {class: "Olmo3", keys: "attention_bias sliding_window layer_types", localTheta: 500000,
		defaults: func(f *configFile) {
			olmoDefaults(f)
			f.RopeTheta, f.SlidingWindow = 500000, new(int64(4096))
		}, shape: func(f *configFile, c *Config, p *problems) {
			olmo(f, c, p)
			f.windows(c, p, func(i int64) bool { return (i+1)%4 != 0 })
		}, names: olmoNames},
	torch.Phi3: {class: "Phi3", keys: "sliding_window", partial: true, defaults: func(f *configFile) {
		f.VocabSize, f.HiddenSize, f.IntermediateSize, f.KVHeads, f.MaxPositions = 32064, 3072, 8192, nil, 4096
		f.OriginalMaxPositions, f.RMSNormEps, f.SlidingWindow = 4096, 1e-5, nil
		f.BOS, f.EOS, f.PAD = bpe.IDs{1}, bpe.IDs{32000}, bpe.IDs{32000}
	}, shape: func(f *configFile, c *Config, p *problems) {
		f.windows(c, p, func(int64) bool { return true })
	}, fused: []fusedModule{{"self_attn.qkv_proj", []string{"self_attn.q_proj", "self_attn.k_proj",
		"self_attn.v_proj"}}, gateUp}},
	torch.Glm4: {class: "Glm4", keys: "attention_bias", partial: true, defaults: glmDefaults,
		shape: func(f *configFile, c *Config, _ *problems) {
			c.QKVBias, c.Shape.OutputNorms, c.Shape.RopeInterleaved = f.AttentionBias, true, true
		}, fused: []fusedModule{gateUp}},
	torch.Glm: {class: "Glm", keys: "attention_bias", partial: true, defaults: glmDefaults,
		shape: func(f *configFile, c *Config, _ *problems) {
			c.QKVBias, c.Shape.RopeInterleaved = f.AttentionBias, true
		}, fused: []fusedModule{gateUp}},
	torch.Gemma2: {class: "Gemma2", keys: gemmaKeys, defaults: func(f *configFile) {
		gemmaDefaults(f)
		f.VocabSize, f.MaxPositions = 256000, 8192
		f.ScoreCap, f.LogitCap = new(decimal(50)), new(decimal(30))
	}, shape: func(f *configFile, c *Config, p *problems) {
		gemma(f, c, p)
		f.windows(c, p, func(i int64) bool { return i%2 == 0 })
	}, names: sandwich, fresh: gemmaFresh},
	// Its attention has no soft-capping, whatever attn_logit_softcapping says.
	torch.Gemma3: {class: "Gemma3", keys: gemmaKeys + " sliding_window_pattern rope_local_base_freq",
		localTheta: 10000, defaults: func(f *configFile) {
			gemmaDefaults(f)
			f.VocabSize, f.MaxPositions, f.RopeTheta, f.WindowPattern = 262208, 131072, 1000000, 6
		}, shape: func(f *configFile, c *Config, p *problems) {
			gemma(f, c, p)
			c.QKNorm, c.Shape.ScoreCap = true, 0
			f.windows(c, p, func(i int64) bool { return (i+1)%max(f.WindowPattern, 1) != 0 })
		}, names: sandwich, fresh: gemmaFresh},
}

const gemmaKeys = "attention_bias sliding_window layer_types query_pre_attn_scalar final_logit_softcapping " +
	"attn_logit_softcapping hidden_activation"

var olmoNames = map[string]string{"post_self_attn_layernorm": "post_attention_layernorm",
	"post_mlp_layernorm": "post_feedforward_layernorm"}

func mistralDefaults(f *configFile) {
	f.VocabSize, f.IntermediateSize, f.KVHeads, f.MaxPositions = 32000, 14336, new(int64(8)), 131072
	f.BOS, f.EOS = bpe.IDs{1}, bpe.IDs{2}
}

func olmoDefaults(f *configFile) {
	f.VocabSize, f.IntermediateSize, f.KVHeads, f.MaxPositions, f.RMSNormEps = 50304, 11008, nil, 2048, 1e-5
	f.EOS, f.PAD = bpe.IDs{50279}, bpe.IDs{1}
}

func glmDefaults(f *configFile) {
	f.VocabSize, f.IntermediateSize, f.Layers, f.KVHeads, f.HeadDim = 151552, 13696, 40, new(int64(2)), 128
	f.MaxPositions, f.RMSNormEps, f.PartialRotary, f.AttentionBias = 131072, 0.00000015625, 0.5, true
	f.EOS, f.PAD = bpe.IDs{151329, 151336, 151338}, bpe.IDs{151329}
}

func gemmaDefaults(f *configFile) {
	f.HiddenSize, f.IntermediateSize, f.Layers, f.Heads, f.KVHeads = 2304, 9216, 26, 8, new(int64(4))
	f.HeadDim, f.QueryPreAttnScalar, f.TieEmbeddings, f.Activation = 256, 256, true, "gelu_pytorch_tanh"
	f.BOS, f.EOS, f.PAD = bpe.IDs{2}, bpe.IDs{1}, bpe.IDs{0}
}

func gemmaFresh(c Config) map[string]any {
	return map[string]any{"query_pre_attn_scalar": c.HeadDim, "hidden_activation": "gelu_pytorch_tanh",
		"hidden_act": "gelu_pytorch_tanh"}
}

func smolLM3(f *configFile, c *Config, p *problems) {
	c.QKVBias, c.OutBias, c.MLPBias = f.AttentionBias, f.AttentionBias, f.MLPBias
	nope := func(i int64) bool { return f.NoRopeInterval > 0 && (i+1)%f.NoRopeInterval == 0 }
	if f.NoRopeLayers != nil {
		if int64(len(f.NoRopeLayers)) < c.NumLayers {
			p.add("no_rope_layers", "%d entries for %d layers", len(f.NoRopeLayers), c.NumLayers)
			return
		}
		nope = func(i int64) bool { return f.NoRopeLayers[i] == 0 }
	}
	if !f.UseSlidingWindow {
		f.SlidingWindow = nil
	}
	f.windows(c, p, nope)
	c.mark(torch.NoPELayer, nope)
}

func graniteFresh(c Config) map[string]any {
	return map[string]any{"attention_multiplier": 1 / math.Sqrt(float64(c.HeadDim))}
}

func graniteDefaults(f *configFile) {
	f.VocabSize, f.IntermediateSize, f.KVHeads, f.MaxPositions = 32000, 11008, nil, 2048
	f.EmbeddingMultiplier, f.LogitsScaling, f.ResidualMultiplier, f.AttentionMultiplier = 1, 1, 1, 1
	f.BOS, f.EOS = bpe.IDs{1}, bpe.IDs{2}
}

func granite(f *configFile, c *Config, p *problems) {
	c.QKVBias, c.OutBias, c.MLPBias = f.AttentionBias, f.AttentionBias, f.MLPBias
	for key, v := range map[string]decimal{"logits_scaling": f.LogitsScaling,
		"attention_multiplier": f.AttentionMultiplier, "residual_multiplier": f.ResidualMultiplier,
		"embedding_multiplier": f.EmbeddingMultiplier} {
		if !(v > 0) {
			p.add(key, "must be positive, got %v", float64(v))
		}
	}
	c.Shape.QueryScale, c.Shape.LogitScale = float64(f.AttentionMultiplier), 1/float64(f.LogitsScaling)
	c.Shape.EmbeddingScale, c.Shape.ResidualScale = float64(f.EmbeddingMultiplier), float64(f.ResidualMultiplier)
}

func olmo(f *configFile, c *Config, _ *problems) {
	c.QKVBias, c.OutBias, c.QKNorm = f.AttentionBias, f.AttentionBias, true
	c.Shape.NoInputNorms, c.Shape.OutputNorms, c.Shape.WideQKNorm = true, true, true
}

func gemma(f *configFile, c *Config, p *problems) {
	c.QKVBias, c.OutBias = f.AttentionBias, f.AttentionBias
	if !(f.QueryPreAttnScalar > 0) {
		p.add("query_pre_attn_scalar", "must be positive, got %v", float64(f.QueryPreAttnScalar))
	}
	s := &c.Shape
	s.OutputNorms, s.UnitNorms = true, true
	s.QueryScale = 1 / math.Sqrt(float64(f.QueryPreAttnScalar))
	s.EmbeddingScale = math.Sqrt(float64(c.HiddenSize))
	for key, cap := range map[string]*decimal{"attn_logit_softcapping": f.ScoreCap,
		"final_logit_softcapping": f.LogitCap} {
		if cap != nil && !(*cap > 0) {
			p.add(key, "must be positive or null, got %v", float64(*cap))
		}
	}
	if f.ScoreCap != nil {
		s.ScoreCap = float64(*f.ScoreCap)
	}
	if f.LogitCap != nil {
		s.LogitCap = float64(*f.LogitCap)
	}
}

// mark gives the layers that are chosen a bit.
func (c *Config) mark(bit torch.LayerKind, chosen func(layer int64) bool) {
	for i := range min(c.NumLayers, torch.MaxLayers) {
		if chosen(i) {
			c.Shape.Layers[i] |= bit
		}
	}
}

// qwenWindows are those of Qwen, which use_sliding_window switches on from layer max_window_layers on.
func (f *configFile) qwenWindows(c *Config, p *problems) {
	if !f.UseSlidingWindow {
		f.SlidingWindow = nil
	}
	f.windows(c, p, func(i int64) bool { return i >= f.MaxWindowLayers })
}

// windows takes the window of the layers that layer_types names, or else of those that have one by default. Layers
// within a window are the local ones, where these have a rotary embedding of their own.
func (f *configFile) windows(c *Config, p *problems, byDefault func(layer int64) bool) {
	named := f.LayerTypes != nil && strings.Contains(families[c.Family].keys, "layer_types")
	if f.SlidingWindow == nil && named && slices.Contains(f.LayerTypes, "sliding_attention") {
		p.add("layer_types", "sliding_attention, and no sliding_window (or use_sliding_window is false)")
	}
	if f.SlidingWindow == nil && families[c.Family].localTheta == 0 {
		return
	}
	sliding := byDefault
	if named {
		if int64(len(f.LayerTypes)) != c.NumLayers {
			p.add("layer_types", "%d entries for %d layers", len(f.LayerTypes), c.NumLayers)
			return
		}
		for _, kind := range f.LayerTypes {
			if !slices.Contains([]string{"full_attention", "sliding_attention"}, kind) {
				p.add("layer_types", "%q is not supported: expected full_attention or sliding_attention", kind)
				return
			}
		}
		sliding = func(i int64) bool { return f.LayerTypes[i] == "sliding_attention" }
	}
	if families[c.Family].localTheta > 0 {
		c.mark(torch.LocalLayer, sliding)
	}
	if f.SlidingWindow == nil {
		return
	}
	if *f.SlidingWindow < 1 {
		p.add("sliding_window", "must be positive or null, got %d", *f.SlidingWindow)
		return
	}
	c.Shape.Window = *f.SlidingWindow
	c.mark(torch.WindowLayer, sliding)
}
