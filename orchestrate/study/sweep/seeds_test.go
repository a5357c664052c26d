package sweep

import (
	"os"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/run/metrics"
)

// What the seed's sweeps fix, and what they vary, as runs resolve it.
func TestSweepSettings(t *testing.T) {
	study := func(name string) *Study {
		s, err := Load("../../../configs/studies/" + name + ".toml")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	resolve := func(s *Study) map[string]*config.Config {
		preview, err := NewPreview(s, Sweeps)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]*config.Config{}
		for _, r := range preview.Runs {
			c, err := config.Load(s.BasePath(), r.Overrides)
			if err != nil {
				t.Fatalf("%s, %s: %v", s.Name, r.Condition, err)
			}
			if c.Run.Steps != 400 || !c.Run.ValidateFirst || c.Run.ValidateEvery != 10 || c.Run.SaveEvery != -1 ||
				c.Algorithm.Advantage != "gae" ||
				c.Actor.MiniBatch != 32 || c.Critic.MiniBatch != 32 || c.Envs[0].Tag != "CoordSokoban" ||
				c.Envs[0].Groups != 8 || c.Envs[0].GroupSize != 16 ||
				c.Validation.Envs[0].Groups != 512 || c.Validation.Envs[0].GroupSize != 1 ||
				c.Filter.Strategy != "top_p" || c.Filter.ProbMode != "softmax" ||
				c.Filter.Type != "largest" || c.Filter.Metric != "reward_variance" || c.Filter.LossScaling != "none" {
				t.Errorf("%s, %s: a fixed setting differs: %+v", s.Name, r.Condition, c)
			}
			out[r.Condition] = c
		}
		return out
	}
	top := resolve(study("top_p_sweep"))
	for label, value := range map[string]float64{"1.0": 1, "0.98": 0.98, "0.95": 0.95, "0.9": 0.9, "0.8": 0.8,
		"0.6": 0.6, "0.4": 0.4, "nofilter": 1} {
		c := top[label]
		if c == nil || c.Filter.Value != value || c.Filter.IncludeZero != (label == "nofilter") ||
			c.Algorithm.KLCoef != 0.001 || c.Algorithm.EntropyCoef != 0.001 {
			t.Errorf("top-p %s: %+v", label, c)
		}
	}
	kl, entropy := resolve(study("kl_sweep")), resolve(study("entropy_sweep"))
	for label, value := range map[string]float64{"0": 0, "0.001": 0.001, "0.003": 0.003, "0.01": 0.01, "0.03": 0.03,
		"0.1": 0.1} {
		if c := kl[label]; c == nil || c.Algorithm.KLCoef != value || c.Algorithm.KLEstimator != "k1" ||
			c.Algorithm.EntropyCoef != 0 || c.Filter.Value != 1 || !c.Filter.IncludeZero {
			t.Errorf("KL %s: %+v", label, c)
		}
		if c := entropy[label]; c == nil || c.Algorithm.EntropyCoef != value || c.Algorithm.KLCoef != 0 ||
			c.Filter.Value != 1 || !c.Filter.IncludeZero {
			t.Errorf("entropy %s: %+v", label, c)
		}
	}
}

// The four groups of the first RAGEN's search, with its batch rules: an epoch of 500 prompts, one update of all
// episodes per step.
func TestGroupsOfTheHyperparameterSearch(t *testing.T) {
	s, err := Load("../../../configs/studies/hyperparam_search.toml")
	if err != nil {
		t.Fatal(err)
	}
	for stage, want := range [][]string{
		1: {"train_batch_size=4,n_rollout=4", "train_batch_size=4,n_rollout=8", "train_batch_size=4,n_rollout=16",
			"train_batch_size=8,n_rollout=4", "train_batch_size=8,n_rollout=8",
			"train_batch_size=8,n_rollout=16", "train_batch_size=16,n_rollout=4", "train_batch_size=16,n_rollout=8",
			"train_batch_size=16,n_rollout=16"},
		2: {"5e-07", "1e-06", "5e-06", "1e-05"},
		3: {"0.001", "0.005", "0.01", "0.04", "0.1", "0.5"},
		4: {"max_turns=2,temperature=0.1", "max_turns=2,temperature=0.5", "max_turns=2,temperature=1",
			"max_turns=5,temperature=0.1", "max_turns=5,temperature=0.5",
			"max_turns=5,temperature=1", "max_turns=8,temperature=0.1", "max_turns=8,temperature=0.5",
			"max_turns=8,temperature=1"},
	} {
		if stage == 0 {
			continue
		}
		conditions, err := s.Plan(stage, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range conditions {
			got = append(got, c.Label[strings.IndexByte(c.Label, ',')+1:])
			resolved, err := config.Load(s.BasePath(), slices.Concat(s.Set, c.Overrides))
			if err != nil {
				t.Errorf("%s: %v", c.Label, err)
				continue
			}
			e := resolved.Envs[0]
			if stage == 1 && (resolved.Actor.MiniBatch != e.Groups*e.GroupSize || resolved.Run.Steps != 500/e.Groups) {
				t.Errorf("%s: mini-batches of %d episodes, %d steps", c.Label, resolved.Actor.MiniBatch,
					resolved.Run.Steps)
			}
			if stage == 4 && (e.MaxActions != e.MaxTurns || resolved.Rollout.MaxLength != 400+600*e.MaxTurns) {
				t.Errorf("%s: %d actions, %d tokens", c.Label, e.MaxActions, resolved.Rollout.MaxLength)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("group %d: %q, want %q", stage, got, want)
		}
	}
}

// A search has labels of its own and compares nothing with the baseline of the study's sweep.
func TestASearchNeedsNoBaseline(t *testing.T) {
	s, err := Load("../../../configs/studies/kl_sweep.toml", "study.output="+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	said := &strings.Builder{}
	x := &execution{study: s, base: &config.Config{}, slots: []slot{{threads: 1}}, state: &state{},
		options: Options{Console: metrics.NewConsole(said)}, rungs: 1}
	for _, label := range []string{"kl_coef=0", "kl_coef=0.1"} {
		r := &Run{Condition: label, Seed: 1, Stage: 1, Dir: t.TempDir(), Log: t.TempDir() + "/x.log", Status: Pending}
		x.state.Runs = append(x.state.Runs, r)
		x.trials = append(x.trials, trial{[]*Run{r}})
	}
	if err := os.MkdirAll(s.Dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := x.beginLog(); err != nil {
		t.Fatal(err)
	}
	if summary, err := x.summarise(); err != nil || summary.Runs != 2 || len(summary.compared.Rows) != 0 ||
		strings.Contains(said.String(), "baseline") {
		t.Errorf("%v, %+v, said %q", err, summary, said)
	}
}
