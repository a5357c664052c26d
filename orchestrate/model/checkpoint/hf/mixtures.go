package hf

import (
	"cmp"
	"maps"
	"slices"

	"gyre/orchestrate/model/chat/bpe"
	"gyre/torch"
)

// Mixtures of experts. Files have each expert's matrices by themselves, or all of them stacked: as Granite's have
// always been, and as transformers 5 writes any with save_original_format=False.

const mixtureKeys = " num_experts num_local_experts num_experts_per_tok router_aux_loss_coef "

var (
	expertGateUp = []string{"mlp.experts.*.gate_proj", "mlp.experts.*.up_proj"}
	expertDown   = []string{"mlp.experts.*.down_proj"}
	// the names of transformers 5 in memory
	stackedExperts = []fusedModule{{"mlp.experts.gate_up_proj", expertGateUp}, {"mlp.experts.down_proj", expertDown},
		{"block_sparse_moe.experts.gate_up_proj", expertGateUp}, {"block_sparse_moe.experts.down_proj", expertDown}}

	mixtralNames = map[string]string{"mlp.gate": "block_sparse_moe.gate",
		"mlp.experts.*.gate_proj": "block_sparse_moe.experts.*.w1",
		"mlp.experts.*.up_proj":   "block_sparse_moe.experts.*.w3",
		"mlp.experts.*.down_proj": "block_sparse_moe.experts.*.w2"}
	graniteMoeNames = map[string]string{"mlp.gate": "block_sparse_moe.router.layer",
		"mlp.down_proj": "shared_mlp.output_linear"}
	graniteMoeFused = []fusedModule{{"block_sparse_moe.input_linear", expertGateUp},
		{"block_sparse_moe.output_linear", expertDown},
		{"shared_mlp.input_linear", []string{"mlp.gate_proj", "mlp.up_proj"}}}
)

var mixtures = map[torch.Family]family{
	torch.Qwen3Moe: {class: "Qwen3Moe", fresh: mixtureFresh, keys: "attention_bias sliding_window use_sliding_window " +
		mixtureKeys + "moe_intermediate_size norm_topk_prob decoder_sparse_step mlp_only_layers",
		defaults: func(f *configFile) {
			f.HiddenSize, f.IntermediateSize, f.Layers, f.KVHeads = 2048, 6144, 24, new(int64(4))
			f.ChosenExperts, f.ExpertSize, f.SparseStep = 8, 768, 1
		}, shape: func(f *configFile, c *Config, p *problems) {
			c.QKVBias, c.OutBias, c.QKNorm = f.AttentionBias, f.AttentionBias, true
			if !f.UseSlidingWindow {
				f.SlidingWindow = nil
			}
			f.windows(c, p, func(int64) bool { return true })
			f.mixture(c, p, 128, f.ExpertSize, f.NormTopK)
			if f.SparseStep < 1 {
				p.add("decoder_sparse_step", "must be positive, got %d", f.SparseStep)
				return
			}
			c.mark(torch.DenseLayer, func(i int64) bool {
				return slices.Contains(f.DenseLayers, i) || (i+1)%f.SparseStep != 0
			})
		}},
	torch.Olmoe: {class: "Olmoe", fresh: mixtureFresh, keys: "attention_bias norm_topk_prob" + mixtureKeys,
		defaults: func(f *configFile) {
			f.VocabSize, f.HiddenSize, f.IntermediateSize, f.Layers, f.Heads = 50304, 2048, 2048, 16, 16
			f.KVHeads, f.MaxPositions, f.RMSNormEps, f.ChosenExperts = nil, 4096, 1e-5, 8
			f.EOS, f.PAD = bpe.IDs{50279}, bpe.IDs{1}
		}, shape: func(f *configFile, c *Config, p *problems) {
			c.QKVBias, c.OutBias, c.QKNorm, c.Shape.WideQKNorm = f.AttentionBias, f.AttentionBias, true, true
			f.mixture(c, p, 64, f.IntermediateSize, f.NormTopK)
		}},
	torch.Mixtral: {class: "Mixtral", fresh: mixtureFresh, keys: "sliding_window" + mixtureKeys,
		defaults: func(f *configFile) {
			mistralDefaults(f)
			f.RMSNormEps, f.RopeTheta, f.SlidingWindow, f.ChosenExperts = 1e-5, 1000000, nil, 2
		}, shape: func(f *configFile, c *Config, p *problems) {
			f.windows(c, p, func(int64) bool { return true })
			f.mixture(c, p, 8, f.IntermediateSize, true)
		}, names: mixtralNames},
	torch.GraniteMoe: {class: "GraniteMoe", fresh: graniteMoeFresh, keys: "attention_bias" + graniteKeys + mixtureKeys,
		defaults: graniteMoeDefaults, shape: graniteMoe, names: graniteMoeNames, fused: graniteMoeFused},
	torch.GraniteMoeShared: {class: "GraniteMoeShared", fresh: graniteMoeFresh,
		keys:     "attention_bias shared_intermediate_size" + graniteKeys + mixtureKeys,
		defaults: graniteMoeDefaults, shape: graniteMoe, names: graniteMoeNames, fused: graniteMoeFused},
	// Granite 4: of its layers those with attention, and where there are no experts the MLP beside them alone.
	torch.GraniteMoeHybrid: {class: "GraniteMoeHybrid", fresh: graniteHybridFresh, keys: "attention_bias layer_types " +
		"shared_intermediate_size position_embedding_type" + graniteKeys + mixtureKeys + graniteMambaKeys,
		defaults: func(f *configFile) {
			graniteMoeDefaults(f)
			f.LocalExperts, f.SharedSize = 8, 1024
		}, shape: graniteHybrid, names: graniteMoeNames, fused: graniteMoeFused},
}

// graniteMambaKeys are of layers that there are not, and of Granite 4's training.
const graniteMambaKeys = " mamba_n_heads mamba_n_groups mamba_d_state mamba_d_head mamba_d_conv mamba_expand " +
	"mamba_chunk_size mamba_conv_bias mamba_proj_bias time_step_limit normalization_function init_method "

func graniteHybrid(f *configFile, c *Config, p *problems) {
	if n := int64(len(f.LayerTypes)); n != c.NumLayers {
		p.add("layer_types", "%d entries for %d layers", n, c.NumLayers)
	}
	for _, kind := range f.LayerTypes {
		if kind != "attention" && kind != "full_attention" {
			p.add("layer_types", "%q is not supported: expected attention in all layers", kind)
			break
		}
	}
	if f.PositionEmbedding != "rope" {
		c.mark(torch.NoPELayer, func(int64) bool { return true })
	}
	if f.LocalExperts != 0 {
		graniteMoe(f, c, p)
		return
	}
	granite(f, c, p)
	c.IntermediateSize = f.SharedSize
}

func graniteMoeDefaults(f *configFile) {
	graniteDefaults(f)
	f.ChosenExperts = 2
}

func graniteMoe(f *configFile, c *Config, p *problems) {
	granite(f, c, p)
	f.mixture(c, p, 8, f.IntermediateSize, true)
	c.Shape.SharedSize = f.SharedSize
	if f.SharedSize < 0 || f.SharedSize > maxWidth {
		p.add("shared_intermediate_size", "must be between 0 and %d, got %d", maxWidth, f.SharedSize)
	}
}

// maxExperts is far beyond any model's.
const maxExperts = 1 << 12

// mixture puts experts in the place of the layers' MLPs. normalized: their weights sum to 1.
func (f *configFile) mixture(c *Config, p *problems, byDefault, width int64, normalized bool) {
	n := cmp.Or(f.Experts, f.LocalExperts, byDefault)
	s := &c.Shape
	s.Experts, s.ChosenExperts, s.ExpertSize, s.NormalizedRouting = n, f.ChosenExperts, width, normalized
	if n < 1 || n > maxExperts || f.LocalExperts != 0 && f.LocalExperts != n {
		p.add("num_experts or num_local_experts", "must be one number between 1 and %d, got %d and %d", maxExperts,
			f.Experts, f.LocalExperts)
	}
	if s.ChosenExperts < 1 || s.ChosenExperts > n {
		p.add("num_experts_per_tok", "must be between 1 and the %d experts, got %d", n, s.ChosenExperts)
	}
	if width < 1 || width > maxWidth {
		p.add("moe_intermediate_size or intermediate_size", "must be between 1 and %d, got %d", maxWidth, width)
	}
}

// mixtureFresh are few experts, each as wide as the MLP of a dense model.
func mixtureFresh(c Config) map[string]any {
	keys := map[string]any{"num_experts": c.Shape.Experts, "num_experts_per_tok": c.Shape.ChosenExperts}
	switch c.Family {
	case torch.Qwen3Moe:
		keys["moe_intermediate_size"], keys["norm_topk_prob"] = c.IntermediateSize, true
	case torch.Mixtral, torch.GraniteMoe, torch.GraniteMoeShared, torch.GraniteMoeHybrid:
		delete(keys, "num_experts")
		keys["num_local_experts"] = c.Shape.Experts
	}
	return keys
}

func graniteMoeFresh(c Config) map[string]any {
	keys := mixtureFresh(c)
	maps.Copy(keys, graniteFresh(c))
	if c.Family != torch.GraniteMoe {
		keys["shared_intermediate_size"] = c.IntermediateSize
	}
	return keys
}

// graniteHybridFresh is a dense Granite 4.
func graniteHybridFresh(c Config) map[string]any {
	keys := graniteMoeFresh(c)
	keys["num_local_experts"], keys["mamba_n_heads"], keys["position_embedding_type"] = 0, 1, "rope"
	keys["layer_types"] = slices.Repeat([]string{"full_attention"}, int(c.NumLayers))
	return keys
}
