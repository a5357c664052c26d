package config

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// check reports combinations that cannot work. Single values are checked while decoding.
func (c *Config) check(given bool, report func(key, format string, args ...any)) {
	if len(c.Envs) == 0 && !given {
		report("envs", "missing: at least one [[envs]] table with a tag is needed; `gyre env list` names the tags")
	}
	c.checkRun(report)
	c.checkSources(report)
	c.checkRewards(report)
	if given {
		c = c.Given()
	}
	c.checkFilter(report)
	c.checkAlgorithm(report)
	c.checkUpdate(report)
	c.checkAhead(report)
	c.checkRefill(report)
	c.checkSampling(report)
	c.checkReference(report)
	c.checkImportance(report)
	c.checkAnalysis(report)
	c.checkComponents(report)
}

// Given is the configuration as it bears on episodes that are given instead of played (train --replay, sft.data):
// without [[envs]], since their groups are of any number and size. Other keys are shared with c.
func (c *Config) Given() *Config {
	given := *c
	given.Envs = nil
	return &given
}

func (c *Config) checkSources(report func(key, format string, args ...any)) {
	for i, e := range c.Envs {
		checkEnv(fmt.Sprintf("envs.%d", i), e, report)
	}
	for i, e := range c.Validation.Envs {
		if i < len(c.Envs) && e.Tag == "" && c.Envs[i].Tag == "" {
			continue // copied from a training source, reported there
		}
		checkEnv(fmt.Sprintf("validation.envs.%d", i), e, report)
	}
}

// checkRewards reports parts of the reward without a name or named twice.
func (c *Config) checkRewards(report func(key, format string, args ...any)) {
	at := map[string]int{}
	for i, r := range c.Rewards {
		if r.Name == "" {
			report(fmt.Sprintf("rewards.%d.name", i), "missing: which part of the reward is it?")
		} else if first, twice := at[r.Name]; twice {
			report(fmt.Sprintf("rewards.%d.name", i), "%q is weighted by rewards.%d already", r.Name, first)
		} else {
			at[r.Name] = i
		}
	}
}

// reservedComponents are gradients that are measured beside those of the parts.
var reservedComponents = []string{"total", "entropy", "kl", "other", "baseline"}

// checkComponents reports parts that cannot be told apart in metrics and files, and settings without effect.
func (c *Config) checkComponents(report func(key, format string, args ...any)) {
	k := c.Components
	for i, name := range k.Names {
		key := fmt.Sprintf("components.names.%d", i)
		switch {
		case name == "" || strings.ContainsAny(name, "/\\\x00"):
			report(key, "expected the name of a part of the reward, without slashes, got %q", name)
		case slices.Contains(reservedComponents, name):
			report(key, "%q is measured beside the parts: no part can have this name", name)
		case slices.Contains(k.Names[:i], name):
			report(key, "%q is named twice", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.Weights)) {
		if !slices.Contains(k.Names, name) {
			report("components.weights."+name, "components.names does not list this part")
		}
	}
	if strings.ContainsAny(k.Data, "/\\\x00") || k.Data == "." || k.Data == ".." {
		report("components.data", "expected a part of a folder's name, got %q", k.Data)
	}
	if _, single := c.singleMember(); k.Enabled && single {
		report("components.enabled", "parts are compared within groups, but an environment has group_size = 1")
	}
}

var devices = regexp.MustCompile(`^(cpu|aten|cuda(:[0-9]{1,3})?)$`)

// CheckDevice says what is wrong with the name of a device, but not whether the machine has it.
func CheckDevice(name string) error {
	if !devices.MatchString(name) {
		return fmt.Errorf("expected cpu, cuda, cuda:N or aten, got %q", name)
	}
	return nil
}

func (c *Config) checkRun(report func(key, format string, args ...any)) {
	if c.Run.Name == "" || c.Run.Name == "." || c.Run.Name == ".." || strings.ContainsAny(c.Run.Name, "/\\\x00") {
		report("run.name", "expected a name for a folder, got %q", c.Run.Name)
	}
	if c.Model.Path == "" {
		report("model.path", "missing: name a Hugging Face directory; `gyre model` makes or fetches one")
	}
	if err := CheckDevice(c.Model.Device); err != nil {
		report("model.device", "%v", err)
	}
	if strings.TrimSpace(c.Rollout.ActionSeparator) == "" {
		report("rollout.action_separator", "is blank: expected something that no action contains")
	}
	if t := c.Validation.Temperature; t > 0 && t < 1e-4 { // the least that the sampler divides by: engine/request.cc
		report("validation.temperature", "expected 0 (greedy) or a number >= 1e-4 and <= 1e4, got %v", t)
	}
	if r := c.Rollout; r.OverlongTokens >= r.MaxLength {
		report("rollout.overlong_tokens", "%d is not below rollout.max_length = %d", r.OverlongTokens, r.MaxLength)
	}
	if c.Rollout.MaxTokens >= c.Rollout.MaxLength {
		report("rollout.max_length", "%d leaves no room for a prompt and rollout.max_tokens = %d new ones",
			c.Rollout.MaxLength, c.Rollout.MaxTokens)
	}
}

// maxEpisodes is the largest batch of one source.
const maxEpisodes = 1 << 24

func checkEnv(path string, e Env, report func(key, format string, args ...any)) {
	if e.Tag == "" {
		report(path+".tag", "missing: which environment is it? `gyre env list` names the tags")
	}
	if e.ActionSeparator != "" && strings.TrimSpace(e.ActionSeparator) == "" {
		report(path+".action_separator", "is blank: expected something that no action contains")
	}
	// Far beyond what memory holds, and small enough that sums and products of counts never overflow.
	if episodes := float64(e.Groups) * float64(e.GroupSize); episodes > maxEpisodes {
		report(path+".groups", "groups x group_size = %.4g episodes: at most %d can be played at once", episodes,
			maxEpisodes)
	}
}

func (c *Config) checkFilter(report func(key, format string, args ...any)) {
	for i, text := range c.Filter.Without {
		if _, err := ParseWithout(text); err != nil {
			report(fmt.Sprintf("filter.without.%d", i), "%v", err)
		}
	}
	f := c.Filter
	if f.Strategy == "none" {
		return
	}
	switch {
	case f.Strategy == "top_k_abs" && (f.Value < 1 || f.Value != float64(int(f.Value))):
		report("filter.value", "top_k_abs keeps a number of groups: expected an integer >= 1, got %v", f.Value)
	case f.Strategy == "top_k_abs" && len(c.Envs) > 0 && int(f.Value) > GroupsOf(c.Envs):
		report("filter.value", "top_k_abs cannot keep %v of %d groups", f.Value, GroupsOf(c.Envs))
	case f.Strategy != "top_k_abs" && (f.Value <= 0 || f.Value > 1):
		report("filter.value", "%s takes a share: expected a number > 0 and <= 1, got %v", f.Strategy, f.Value)
	}
	if i, ok := c.singleMember(); ok && c.Filters() && (f.Metric == "reward_variance" ||
		f.Metric == "entropy_variance") {
		report("filter.metric", "%s needs groups of at least 2 episodes, but envs.%d.group_size = 1: raise it, or "+
			"choose another metric or strategy = \"none\"", f.Metric, i)
	}
}

func (c *Config) checkAlgorithm(report func(key, format string, args ...any)) {
	a := c.Algorithm
	if i, ok := c.singleMember(); ok && a.UsesGroups() {
		report("algorithm.advantage", "%s compares the members of a group, but envs.%d.group_size = 1: raise it to 2 "+
			"or more", a.Advantage, i)
	}
	if (a.Advantage == "bi_level_gae" || a.Advantage == "mt_grpo") && !c.Rollout.TurnRewards {
		report("algorithm.advantage", "%s needs a reward per turn: set rollout.turn_rewards = true", a.Advantage)
	}
	if a.Advantage == "gdpo" && c.Components.Enabled && c.Components.Mode == "exact" {
		report("components.mode", "gdpo normalises each part by itself, so no part has a share of the total's "+
			"advantages: take \"independent\"")
	}
	for key, set := range map[string]bool{"soft_reweight": a.SoftReweight, "length_weight": a.LengthWeight} {
		if set && a.Advantage != "grpo" {
			report("algorithm."+key, "is for advantage = \"grpo\" only, which is %q here", a.Advantage)
		}
	}
}

func (c *Config) checkUpdate(report func(key, format string, args ...any)) {
	const larger = "%d episodes per optimizer step, but a training step plays only %d (groups x group_size)"
	episodes := c.Episodes()
	if episodes > 0 && c.Actor.MiniBatch > episodes {
		report("actor.mini_batch", larger, c.Actor.MiniBatch, episodes)
	}
	if episodes > 0 && c.Algorithm.UsesCritic() && c.Critic.MiniBatch > max(episodes, c.Actor.MiniBatch) {
		report("critic.mini_batch", larger, c.Critic.MiniBatch, episodes)
	}
	if c.Actor.ClipDual > 0 && c.Actor.ClipDual <= 1 {
		report("actor.clip_dual", "expected 0 (off) or a number > 1, got %v", c.Actor.ClipDual)
	}
}

// checkReference reports a server that cannot be the KL reference, and what is for servers alone.
func (c *Config) checkReference(report func(key, format string, args ...any)) {
	m := c.Model
	if k := c.Algorithm.KLTopK; k > 0 && c.Algorithm.KLIn != "loss" {
		report("algorithm.kl_top_k", "is a term of the loss, but algorithm.kl_in = %q: expected \"loss\" there, or 0 "+
			"here", c.Algorithm.KLIn)
	} else if k > 0 && m.RemoteReference() {
		report("algorithm.kl_top_k", "%d tokens of each distribution are asked for, but servers give log-probs of the "+
			"sampled tokens alone (model.reference = %q): expected a directory there, or 0 here", k, m.Reference)
	}
	if remote := m.RemoteReference(); !remote {
		for key, value := range map[string]string{"name": m.ReferenceName, "key_env": m.ReferenceKeyEnv} {
			if value != "" {
				report("model.reference_"+key, "is for a server, but model.reference = %q: expected http://HOST:PORT "+
					"there", m.Reference)
			}
		}
	} else if t := c.Rollout.Temperature; t > 0 && t != 1 {
		report("model.reference", "servers give log-probs at temperature 1, but rollout.temperature = %v: set it to "+
			"1, or give a directory", t)
	} else if name := m.ReferenceKeyEnv; name != "" && os.Getenv(name) == "" {
		report("model.reference_key_env", "the variable %s is not set", name)
	}
}

// checkRefill reports filters that cannot say when there are enough groups.
func (c *Config) checkRefill(report func(key, format string, args ...any)) {
	f := c.Filter
	if f.MaxBatches > 1 && (f.Strategy == "none" || f.IncludeZero || strings.HasPrefix(f.Metric, "entropy")) {
		report("filter.max_batches", "more are played in place of groups that the filter leaves out for a score of "+
			"zero: expected a strategy other than none, include_zero = false and a metric of rewards or lengths, got "+
			"%q, %v and %q",
			f.Strategy, f.IncludeZero, f.Metric)
	}
}

// checkAhead reports what cannot be done while batches are played ahead of their steps.
func (c *Config) checkAhead(report func(key, format string, args ...any)) {
	if n := c.FSDP.Samplers; n > 0 && c.Rollout.Staleness == 0 {
		report("fsdp.samplers", "%d ranks that only sample would wait while the others train (rollout.staleness = 0): "+
			"set rollout.staleness to 1 or more, or leave it 0", n)
	} else if together := c.Engine.TensorParallel; n > 0 && together > 1 {
		report("fsdp.samplers", "%d ranks that sample each have a whole copy of the policy, but "+
			"engine.tensor_parallel = %d: set one of them to its default", n, together)
	}
	if c.Rollout.Staleness == 0 {
		return
	}
	if c.Rollout.OnUpdate == "keep" && c.Engine.KVMiB > 0 {
		report("engine.kv_mib", "keys and values can only be kept where there is room for engine.max_sequences "+
			"replies of rollout.max_length tokens (rollout.on_update = \"keep\"): leave it 0 and lower "+
			"engine.max_sequences")
	}
	if c.Rollout.Replies == "action" {
		report("rollout.staleness", "the log-probs under the weights that drew a reply are not known of the action "+
			"that stands for it (rollout.replies = \"action\"): leave it 0")
	}
}

func (c *Config) checkAnalysis(report func(key, format string, args ...any)) {
	a := c.Analysis
	if !a.Enabled {
		for key, set := range map[string]bool{"only": a.Only, "exit_after": a.ExitAfter} {
			if set {
				report("analysis."+key, "needs analysis.enabled = true")
			}
		}
		return
	}
	single, ok := c.singleMember()
	switch {
	case a.GroupSize == 1:
		report("analysis.group_size", "buckets are made by the spread of rewards within groups: expected at least 2, "+
			"got 1")
	case ok && a.GroupSize == 0:
		report("analysis.enabled", "buckets are made by the spread of rewards within groups, but envs.%d.group_size = "+
			"1: set analysis.group_size, or analysis.enabled = false", single)
	}
	if mini := c.Actor.MiniBatch; a.Profile == "paper" && mini%(a.PaperRanks*a.PaperMicroBatch) != 0 {
		report("analysis.paper_micro_batch", "actor.mini_batch = %d is not a multiple of analysis.paper_ranks x "+
			"analysis.paper_micro_batch = %d x %d", mini, a.PaperRanks, a.PaperMicroBatch)
	}
}
