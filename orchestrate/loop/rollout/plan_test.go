package rollout

import (
	"math"
	"slices"
	"testing"

	"gyre/orchestrate/config"
)

func experiment() *config.Config {
	return &config.Config{
		Run:  config.Run{EnvSeed: 10000},
		Envs: []config.Env{{Tag: "a", Groups: 5, GroupSize: 4}, {Tag: "b", Groups: 3, GroupSize: 2}},
		Validation: config.Validation{Envs: []config.Env{{Tag: "a", Groups: 20, GroupSize: 2}}, Seed: 123,
			Temperature: 0.5, TopP: 0.9},
		Rollout:  config.Rollout{Temperature: 1, TopP: 0.95, TopK: 7, MinP: 0.1},
		Analysis: config.Analysis{Every: 50, Groups: 9, GroupSize: 16},
	}
}

func TestTrainingSeedsCountUpWithoutGaps(t *testing.T) {
	next := int64(10000)
	for step := 1; step <= 3; step++ {
		p := TrainingPlan(experiment(), 1, step)
		if p.EnvSeed != next || p.Groups() != 8 || p.Episodes() != 26 {
			t.Errorf("step %d: seeds from %d, %d groups, %d episodes; want %d, 8, 26", step, p.EnvSeed, p.Groups(),
				p.Episodes(), next)
		}
		next += int64(p.Groups())
	}
	if s := TrainingPlan(experiment(), 1, 1).Sampling; s.Temperature != 1 || s.TopP != 0.95 || s.TopK != 7 ||
		s.MinP != 0.1 {
		t.Errorf("sampling %+v", s)
	}
}

func TestValidationSetIsFixed(t *testing.T) {
	c := experiment()
	for _, step := range []int{0, 10} {
		p := ValidationPlan(c, step)
		if p.EnvSeed != 123 || p.Groups() != 20 || p.Episodes() != 40 || p.Sampling.Temperature != 0.5 ||
			p.Sampling.TopP != 0.9 {
			t.Errorf("step %d: %+v", step, p)
		}
	}
}

func TestAnalysisBatchIsSharedOut(t *testing.T) {
	c := experiment()
	total, size := c.Envs[0].Groups+c.Envs[1].Groups, c.Envs[1].Groups
	for step, seed := range map[int]int64{1: 10000, 51: 10009, 101: 10018} {
		p := AnalysisPlan(c, step)
		if p.EnvSeed != seed || p.Groups() != 9 || p.Episodes() != 9*16 {
			t.Errorf("step %d: seeds from %d, sources %+v; want %d and 9 groups of 16", step, p.EnvSeed, p.Sources,
				seed)
		}
		if exact := float64(9*size) / float64(total); math.Abs(float64(p.Sources[1].Groups)-exact) >= 1 {
			t.Errorf("the second source has %d groups, its share is %.2f", p.Sources[1].Groups, exact)
		}
	}
	if p := AnalysisPlan(c, 50); p.EnvSeed != 10000 { // the analysis of step 1 is the only one before
		t.Errorf("step 50: seeds from %d", p.EnvSeed)
	}
	c.Analysis.Groups = 0
	if p := AnalysisPlan(c, 51); p.Groups() != total || p.EnvSeed != 10000+int64(total) ||
		p.Sources[0].GroupSize != 16 {
		t.Errorf("without analysis.groups: %+v", p)
	}
	c.Analysis.GroupSize = 0
	for i, s := range AnalysisPlan(c, 1).Sources {
		if s.GroupSize != c.Envs[i].GroupSize {
			t.Errorf("without analysis.group_size source %d has groups of %d, want its own %d", i, s.GroupSize,
				c.Envs[i].GroupSize)
		}
	}
}

// 128 groups over sources of 5 and 3: 80 and 48; 2 over 1, 1 and 1: the first two; the third is left out.
func TestShare(t *testing.T) {
	of := func(total int, groups ...int) (out []int) {
		var sources []config.Env
		for _, g := range groups {
			sources = append(sources, config.Env{Groups: g})
		}
		for _, s := range apportion(sources, total) {
			out = append(out, s.Groups)
		}
		return out
	}
	for _, x := range []struct{ got, want []int }{
		{of(128, 5, 3), []int{80, 48}}, {of(2, 1, 1, 1), []int{1, 1}}, {of(7, 2, 2), []int{4, 3}},
		{of(10, 1, 8), []int{1, 9}},
		{of(3, 1, 2, 3), []int{1, 2}}, {of(4, 1, 3, 2), []int{1, 2, 1}}, {of(5, 3, 3, 1, 1), []int{2, 2, 1}},
	} {
		if !slices.Equal(x.got, x.want) {
			t.Errorf("got %v, want %v", x.got, x.want)
		}
	}
}
