package config

import (
	"fmt"
	"strings"

	"gyre/internal/settings"
)

// presets are published recipes as keys of a configuration. What a recipe leaves open (learning rates, sizes, DAPO's
// overlong shaping, which is relative to a length) stays as it is.
var presets = map[string][]string{
	// DeepSeekMath, arXiv 2402.03300
	"grpo": {"algorithm.advantage=grpo", "algorithm.norm_by_std=true", "algorithm.kl_coef=0.04", "algorithm.kl_in=loss",
		"algorithm.kl_estimator=k3", "algorithm.entropy_coef=0", "actor.loss=ppo", "actor.clip_low=0.2",
		"actor.clip_high=0.2", "actor.clip_dual=0", "actor.loss_aggregation=seq-mean-token-mean"},
	// Dr. GRPO, arXiv 2503.20783
	"dr_grpo": {"algorithm.advantage=grpo", "algorithm.norm_by_std=false", "algorithm.kl_coef=0",
		"algorithm.entropy_coef=0", "actor.loss=ppo", "actor.clip_low=0.2", "actor.clip_high=0.2", "actor.clip_dual=0",
		"actor.loss_aggregation=seq-mean-token-sum-norm"},
	// DAPO, arXiv 2503.14476: groups whose members all earned the same are left out, and others played in their place;
	// the bound is that of verl's recipe
	"dapo": {"algorithm.advantage=grpo", "algorithm.norm_by_std=true", "algorithm.kl_coef=0",
		"algorithm.entropy_coef=0", "actor.loss=ppo", "actor.clip_low=0.2", "actor.clip_high=0.28", "actor.clip_dual=0",
		"actor.loss_aggregation=token-mean", "filter.strategy=top_p", "filter.value=1", "filter.include_zero=false",
		"filter.max_batches=10"},
	// GSPO, arXiv 2507.18071
	"gspo": {"algorithm.advantage=grpo", "algorithm.norm_by_std=true", "algorithm.kl_coef=0",
		"algorithm.entropy_coef=0", "actor.loss=gspo", "actor.clip_low=3e-4", "actor.clip_high=4e-4",
		"actor.loss_aggregation=seq-mean-token-mean"},
	// CISPO of MiniMax-M1, arXiv 2506.13585, which has no lower clip
	"cispo": {"algorithm.advantage=grpo", "algorithm.norm_by_std=true", "algorithm.kl_coef=0",
		"algorithm.entropy_coef=0", "actor.loss=cispo", "actor.clip_low=1", "actor.loss_aggregation=token-mean"},
	// SAPO, arXiv 2511.20347
	"sapo": {"algorithm.advantage=grpo", "algorithm.norm_by_std=true", "algorithm.kl_coef=0",
		"algorithm.entropy_coef=0", "actor.loss=sapo", "actor.sapo_tau_pos=1", "actor.sapo_tau_neg=1.05",
		"actor.loss_aggregation=seq-mean-token-mean"},
	// Lite PPO, arXiv 2508.08221: centred in the group, divided by the deviation of the batch
	"lite_ppo": {"algorithm.advantage=reinforce_pp_baseline", "algorithm.kl_coef=0", "actor.loss=ppo",
		"actor.clip_low=0.2", "actor.clip_high=0.2", "actor.loss_aggregation=token-mean"},
}

// usePreset puts the settings of algorithm.preset under those of the document and reports them for people. The document
// is decoded again: what the preset sets may decide what other keys inherit.
func (c *Config) usePreset(document *settings.Document) {
	name := c.Algorithm.Preset
	if name == "" || document.Err() != nil {
		return
	}
	var set, given []string
	for _, setting := range presets[name] {
		key, _, _ := strings.Cut(setting, "=")
		if document.Defined(key) {
			given = append(given, key)
			continue
		}
		document.Override(setting)
		set = append(set, strings.Replace(setting, "=", " = ", 1))
	}
	*c = Config{}
	document.Decode(c)
	c.preset = fmt.Sprintf("algorithm.preset = %q sets %s", name, strings.Join(set, ", "))
	if len(set) == 0 {
		c.preset = fmt.Sprintf("algorithm.preset = %q sets nothing: all of its keys are given", name)
	} else if len(given) > 0 {
		c.preset += "; given already: " + strings.Join(given, ", ")
	}
}

// PresetNote says what algorithm.preset has set; "" where there is none.
func (c *Config) PresetNote() string { return c.preset }
