package config

import (
	"strings"
	"testing"
)

// An adaptive budget is refused where weights cannot make up for it, with the reason; a step is then one mini-batch.
func TestAdaptiveBudget(t *testing.T) {
	adaptive := smallest + "groups = 8\ngroup_size = 8\n[sampling]\nbudget = 'adaptive'\n[algorithm]\nadvantage = 'rloo'\n" +
		"[actor]\nloss_aggregation = 'seq-mean-token-sum'\n"
	if c := parse(t, adaptive); !c.Adaptive() || c.Actor.MiniBatch != 64 {
		t.Errorf("adaptive: %v, mini-batches of %d, want the step's 64", c.Adaptive(), c.Actor.MiniBatch)
	}
	for _, ok := range []string{"algorithm.advantage=james_stein", "algorithm.advantage=optimal_turn_baseline",
		"actor.loss_aggregation=token-sum", "actor.loss_aggregation=seq-mean-token-mean", "filter.value=0.9",
		"rollout.staleness=3", "sampling.floor=8"} {
		parse(t, adaptive, ok)
	}
	for override, want := range map[string]string{
		"algorithm.advantage=grpo":                       "got grpo",
		"algorithm.advantage=gae":                        "james_stein, optimal_turn_baseline, rloo, turn_rloo",
		"algorithm.advantage=reinforce":                  "got reinforce",
		"actor.loss_aggregation=token-mean":              "divides by the lengths of other episodes",
		"actor.loss_aggregation=seq-mean-token-sum-norm": "divides by the lengths of other episodes",
		"actor.mini_batch=32":                            "set it to 64",
		"rollout.normalize=mean_std":                     "expected identity",
		"actor.entropy_top=0.2":                          "all tokens of a mini-batch",
		"actor.loss=kl_cov":                              "all tokens of a mini-batch",
		"sampling.floor=9":                               "more than the 8",
	} {
		problems := failures(t, adaptive, override)
		if len(problems) != 1 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("%s: %v, want …%s…", override, problems, want)
		}
		parse(t, strings.Replace(adaptive, "'adaptive'", "'fixed'", 1), override)
	}
	if p := failures(t, adaptive, "filter.max_batches=3", "filter.include_zero=false"); len(p) != 1 ||
		p[0].Key != "filter.max_batches" {
		t.Errorf("%v", p)
	}
	turns := []string{"actor.loss_aggregation=seq-mean-token-mean", "algorithm.advantage=turn_rloo"}
	if p := failures(t, adaptive, turns...); len(p) != 1 || !strings.Contains(p[0].String(), "trace of the mean") {
		t.Errorf("%v", p)
	}
}
