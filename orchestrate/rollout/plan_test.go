package rollout

import (
	"testing"

	"gyre/orchestrate/config"
)

func experiment() *config.Config {
	return &config.Config{
		Run:        config.Run{EnvSeed: 10000},
		Envs:       []config.Env{{Tag: "a", Groups: 5, GroupSize: 4}, {Tag: "b", Groups: 3, GroupSize: 2}},
		Validation: config.Validation{Envs: []config.Env{{Tag: "a", Groups: 20, GroupSize: 2}}, Seed: 123, Temperature: 0.5, TopP: 0.9},
		Rollout:    config.Rollout{Temperature: 1, TopP: 0.95, TopK: 7, MinP: 0.1},
		Analysis:   config.Analysis{Every: 50, Groups: 9, GroupSize: 16},
	}
}

func TestTrainingSeedsCountUpWithoutGaps(t *testing.T) {
	next := int64(10000)
	for step := 1; step <= 3; step++ {
		p := TrainingPlan(experiment(), step)
		if p.EnvSeed != next || p.Groups() != 8 || p.Episodes() != 26 {
			t.Errorf("step %d: seeds from %d, %d groups, %d episodes; want %d, 8, 26", step, p.EnvSeed, p.Groups(), p.Episodes(), next)
		}
		next += int64(p.Groups())
	}
	if s := TrainingPlan(experiment(), 1).Sampling; s.Temperature != 1 || s.TopP != 0.95 || s.TopK != 7 || s.MinP != 0.1 {
		t.Errorf("sampling %+v", s)
	}
}

func TestValidationSetIsFixed(t *testing.T) {
	c := experiment()
	for _, step := range []int{0, 10} {
		p := ValidationPlan(c, step)
		if p.EnvSeed != 123 || p.Groups() != 20 || p.Episodes() != 40 || p.Sampling.Temperature != 0.5 || p.Sampling.TopP != 0.9 {
			t.Errorf("step %d: %+v", step, p)
		}
	}
}

func TestAnalysisBatchIsSharedOut(t *testing.T) {
	for step, seed := range map[int]int64{1: 10000, 51: 10009, 101: 10018} {
		p := AnalysisPlan(experiment(), step)
		if p.EnvSeed != seed || p.Sources[0].Groups != 5 || p.Sources[1].Groups != 4 || p.Episodes() != 9*16 {
			t.Errorf("step %d: seeds from %d, sources %+v; want %d and 5 + 4 groups of 16", step, p.EnvSeed, p.Sources, seed)
		}
	}
}
