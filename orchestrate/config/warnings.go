package config

import (
	"cmp"
	"fmt"
	"slices"
)

// Warnings lists what is legal but probably not meant.
func (c *Config) Warnings() []string {
	list := slices.Concat(c.notes, c.training)
	warn := func(when bool, format string, args ...any) {
		if when {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	c.warnRollout(warn)
	c.warnAlgorithm(warn)
	c.warnUpdate(warn)
	c.warnLoRA(warn)
	return list
}

func (c *Config) warnRollout(warn func(bool, string, ...any)) {
	r, f := c.Rollout, c.Filter
	warn(r.TopP < 1 || r.TopK > 0 || r.MinP > 0,
		"rollout: top_p, top_k or min_p change what is sampled, but the update "+
			"trains the whole distribution: ratios are those of another policy")
	for i, part := range c.Rewards {
		placed := part.Placement == "mean" || part.Placement == "spread"
		warn(placed && !r.TurnRewards,
			"rewards.%d.placement = %q has no effect on the update: with rollout.turn_rewards = false "+
				"an episode's last token carries all of it", i, part.Placement)
	}
	thinks := slices.ContainsFunc(c.Envs, func(e Env) bool { return r.For(e).Think })
	warn(c.Collapse.Every > 0 && len(c.Envs) > 0 && !thinks,
		"collapse.every = %d measures thoughts, but rollout.think = false asks for none", c.Collapse.Every)
	warn(r.Context == "full" && r.Window > 0,
		"rollout.window = %d has no effect: rollout.context = \"full\" forgets nothing", r.Window)
	warn(r.Context == "window" && r.Window == 1 && r.Prompt == "chat",
		"rollout.window = 1: the policy never sees an earlier turn, not even its reward")
	warn(r.FormatPenalty > 0, "rollout.format_penalty = %v rewards malformed replies; penalties are negative",
		r.FormatPenalty)
	warn(r.Normalize != "identity" && c.Algorithm.UsesGroups(),
		"rollout.normalize = %q: %s already compares returns with their group", r.Normalize, c.Algorithm.Advantage)
	linear := f.Strategy == "top_p" && f.Value < 1 && f.ProbMode == "linear"
	warn(linear && f.Type == "smallest" && f.IncludeZero, "filter: linear top_p over the smallest scores stops at the "+
		"first zero and keeps nothing; set include_zero = false")
	warn(linear && (f.Metric == "reward" || f.Metric == "reward_sum"),
		"filter: linear top_p adds up positive scores, but "+
			"metric = %q can be negative; prob_mode = \"softmax\" takes any sign", f.Metric)
	warn(f.LossScaling != "none" && !c.Filters(),
		"filter.loss_scaling = %q has no effect: the filter keeps every group", f.LossScaling)
	if kept, ok := c.expectedEpisodes(); ok {
		warn(kept < c.Actor.MiniBatch,
			"filter: about %d of %d episodes stay, less than actor.mini_batch = %d: one short "+
				"optimizer step per training step", kept, c.Episodes(), c.Actor.MiniBatch)
	}
}

func (c *Config) warnAlgorithm(warn func(bool, string, ...any)) {
	a, r := c.Algorithm, c.Rollout
	warn(r.TurnRewards && a.ComparesEpisodes(), "rollout.turn_rewards: %s adds up an episode's "+
		"rewards and credits all of its tokens alike", a.Advantage)
	multiTurn := slices.ContainsFunc(c.Envs, func(e Env) bool { return e.MaxTurns > 1 })
	warn(a.Advantage == "bi_level_gae" && len(c.Envs) > 0 && !multiTurn,
		"algorithm: with one turn per episode bi_level_gae is gae")
	warn(!a.NormByStd && !a.Divides(), "algorithm.norm_by_std has no effect on %s", a.Advantage)
	warn(a.StepWeight != 1 && !a.UsesStates(), "algorithm.step_weight has no effect on %s", a.Advantage)
	warn(a.ZeroTaskAdvantage && a.EntropyCoef == 0 && (a.KLCoef == 0 || a.KLIn == "reward"),
		"algorithm.zero_task_advantage: without an entropy or KL term in the loss nothing is learnt")
	warn(a.ZeroTaskAdvantage && a.KLCoef > 0 && a.KLIn == "reward",
		"algorithm.zero_task_advantage also removes a KL term that is part of the rewards")
	warn(a.EntropyCoef < 0, "algorithm.entropy_coef = %v lowers the entropy; a bonus is positive", a.EntropyCoef)
	warn(a.KLCoef == 0 && c.Model.Reference != "", "model.reference is not used: algorithm.kl_coef is 0")
	warn(a.KLCoef == 0 && a.KLIn != "loss", "algorithm.kl_in = %q has no effect: algorithm.kl_coef is 0", a.KLIn)
	warn(a.KLIn == "advantage" && a.KLEstimator != "k1", "algorithm.kl_in = \"advantage\": only kl_estimator = "+
		"\"k1\" gives "+
		"the gradient of the reverse KL on average, %q does not", a.KLEstimator)
	warn(a.KLControl == "adaptive" && a.KLIn == "loss",
		"algorithm.kl_control = \"adaptive\" acts on kl_in = \"reward\" only")
	warn(a.KLTopK > 0 && a.KLCoef == 0, "algorithm.kl_top_k has no effect: algorithm.kl_coef is 0")
	warn(a.KLCoef > 0 && a.KLIn == "loss" && a.KLEstimator == "k1" && a.KLTopK == 0,
		"algorithm.kl_estimator = \"k1\" in the loss: its gradient has mean zero; take \"k1+\", \"k2\" or \"k3\"")
	warn(c.Critic.Path != "" && !a.UsesCritic(), "critic.path is not used: %s has no critic", a.Advantage)
}

func (c *Config) warnUpdate(warn func(bool, string, ...any)) {
	warn(c.Episodes()%c.Actor.MiniBatch != 0 && !c.Filters(), "actor.mini_batch = %d does not divide "+
		"the %d episodes of a step: the last optimizer step is short", c.Actor.MiniBatch, c.Episodes())
	warn(c.Algorithm.UsesCritic() && c.Critic.Warmup > c.Run.Steps,
		"critic.warmup = %d: the actor never learns in %d steps", c.Critic.Warmup, c.Run.Steps)
	a := c.Analysis
	warn(a.Enabled && a.LogPrefilter && !c.Separate(),
		"analysis.log_prefilter has no effect without a separate analysis batch: "+
			"set analysis.groups or analysis.group_size")
	groups := cmp.Or(a.Groups, GroupsOf(c.Envs))
	warn(a.Enabled && a.Buckets == "quantile" && groups > 0 && a.NumBuckets > groups,
		"analysis.num_buckets = %d, but %d groups fill no more than %d", a.NumBuckets, groups, groups)
}

// expectedEpisodes is how many episodes a filter with a fixed share keeps.
func (c *Config) expectedEpisodes() (int, bool) {
	if len(c.Envs) == 0 {
		return 0, false
	}
	switch c.Filter.Strategy {
	case "top_k":
		return int(c.Filter.Value * float64(c.Episodes())), true
	case "top_k_abs":
		return int(c.Filter.Value) * c.Episodes() / max(GroupsOf(c.Envs), 1), true
	}
	return 0, false
}
