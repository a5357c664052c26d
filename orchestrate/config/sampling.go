package config

import (
	"slices"
	"strings"
)

// Sampling says how a step's episodes are shared out among its groups.
type Sampling struct {
	// Episodes of each group: fixed = the source's group_size; adaptive = as many episodes in all, more of them in
	// groups whose gradient is expected to be noisy, by what was seen of their tasks (docs/budget.md). Weights in the
	// loss make up for the sizes.
	Budget string `toml:"budget" default:"fixed" oneof:"fixed,adaptive"`
	// adaptive: the fewest episodes of a group.
	Floor int `toml:"floor" default:"2" range:"[2,)"`
	// adaptive: what the episodes of a task weigh at its next visit, and those of a source at the next step, beside new
	// ones: the policy that played them has changed. 1 = as much.
	Memory float64 `toml:"memory" default:"0.8" range:"[0,1]"`
}

// Adaptive reports whether groups have as many episodes as their gradient's noise asks for.
func (c *Config) Adaptive() bool { return c.Sampling.Budget == "adaptive" }

// wholeBatch are losses that look at a mini-batch as a whole.
var wholeBatch = []string{"clip_cov", "kl_cov"}

// checkSampling reports what an adaptive budget cannot correct for: the expected gradient must be that of groups of
// equal sizes.
func (c *Config) checkSampling(report func(key, format string, args ...any)) {
	if !c.Adaptive() || len(c.Envs) == 0 {
		return
	}
	if a := c.Algorithm; !estimators[a.Advantage].unsized {
		report("algorithm.advantage", "sampling.budget = \"adaptive\" needs baselines of the group's other episodes and of "+
			"nothing else, or the expected gradient depends on the group's size: expected one of %s, got %s",
			strings.Join(unsized(), ", "), a.Advantage)
	}
	switch how := c.Actor.LossAggregation; how {
	case "token-mean", "seq-mean-token-sum-norm":
		report("actor.loss_aggregation", "%s divides by the lengths of other episodes, which depend on the sizes that "+
			"sampling.budget = \"adaptive\" gives groups: expected seq-mean-token-sum, seq-mean-token-mean or token-sum", how)
	case "seq-mean-token-mean":
		if c.Algorithm.Advantage != "rloo" {
			report("actor.loss_aggregation", "%s leaves a trace of the mean baseline in the gradient, and that of %s "+
				"depends on the sizes that sampling.budget = \"adaptive\" gives groups: expected seq-mean-token-sum or "+
				"token-sum, or algorithm.advantage = \"rloo\"", how, c.Algorithm.Advantage)
		}
	}
	if n := c.Episodes(); c.Actor.MiniBatch < n {
		report("actor.mini_batch", "sampling.budget = \"adaptive\" corrects for the sizes of all groups of a step "+
			"together, not within %d of its %d episodes: leave it out, or set it to %d", c.Actor.MiniBatch, n, n)
	}
	if n := c.Filter.MaxBatches; n > 1 {
		report("filter.max_batches", "plays up to %d batches for a step, sampling.budget = \"adaptive\" shares out the "+
			"episodes of one: set one of them to its default", n)
	}
	if how := c.Rollout.Normalize; how != "identity" {
		report("rollout.normalize", "%s takes the episode's own reward into what it is compared with, by the size of "+
			"its group, which sampling.budget = \"adaptive\" changes: expected identity", how)
	}
	if c.Actor.EntropyTop < 1 || slices.Contains(wholeBatch, c.Actor.Loss) {
		report("sampling.budget", "adaptive cannot correct for what is chosen among all tokens of a mini-batch: "+
			"expected actor.entropy_top = 1 and none of the losses %s", strings.Join(wholeBatch, ", "))
	}
	for _, e := range c.Envs {
		if e.GroupSize < c.Sampling.Floor {
			report("sampling.floor", "%d episodes in each group are more than the %d of a group of %s: expected a "+
				"group_size of at least %[1]d, or a lower floor (2 is the least)", c.Sampling.Floor, e.GroupSize, e.Tag)
			return
		}
	}
}

// unsized are the estimators with Unsized, in alphabetical order.
func unsized() (names []string) {
	for name, e := range estimators {
		if e.unsized {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Unsized reports whether the estimator compares episodes with others of their group in such a way that its expected
// gradient depends on no group's size.
func (a Algorithm) Unsized() bool { return estimators[a.Advantage].unsized }
