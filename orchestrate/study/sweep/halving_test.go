package sweep

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func trialsOf(n int) []trial {
	out := make([]trial, n)
	for i := range out {
		out[i] = trial{[]*Run{{Seed: i, Status: Pending}}}
	}
	return out
}

// score gives a trial's run its result at the rung it goes to.
func score(t trial, v float64) {
	r := t.runs[0]
	r.Status, r.Scores = Paused, append(r.Scores, v)
}

func TestRungs(t *testing.T) {
	for _, c := range []struct {
		h     Halving
		steps int
		want  []int
	}{
		{Halving{Reduction: 3, MinSteps: 10}, 400, []int{14, 44, 133, 400}},
		{Halving{Reduction: 4, MinSteps: 1}, 64, []int{1, 4, 16, 64}},
		{Halving{Reduction: 3}, 270, []int{10, 30, 90, 270}},
		{Halving{Reduction: 3}, 5, []int{1, 5}},
		{Halving{Reduction: 2, MinSteps: 9}, 8, []int{8}},
	} {
		n := c.h.rungs(c.steps)
		var got []int
		for rung := range n {
			got = append(got, c.h.stepsAt(rung, n, c.steps))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v of %d steps: rungs at %v, want %v", c.h, c.steps, got, c.want)
		}
	}
}

// The example of the paper's figure: nine configurations, reduction 3. Promotions come as soon as a configuration is
// among the best third of those that have a result, not when the rung is full, and the highest rung is served first.
func TestPromotions(t *testing.T) {
	trials := trialsOf(9)
	next := func() (trial, bool) { return promote(trials, 3, 3) }
	score(trials[0], 0.1)
	score(trials[1], 0.5)
	if p, ok := next(); ok {
		t.Fatalf("with two results %d is promoted", p.runs[0].Seed)
	}
	score(trials[2], 0.3)
	p, ok := next()
	if !ok || p.runs[0].Seed != 1 {
		t.Fatalf("with three results: %v, want 1", ok)
	}
	p.runs[0].Rung, p.runs[0].Status = 1, Running
	if _, ok := next(); ok {
		t.Error("one in three goes on, not two")
	}
	for i, v := range []float64{0.2, 0.9, 0.4} {
		score(trials[3+i], v)
	}
	if p, ok = next(); !ok || p.runs[0].Seed != 4 {
		t.Fatalf("the best of six is %v, %v", p.runs[0].Seed, ok)
	}
	p.runs[0].Rung, p.runs[0].Status = 1, Running
	// A configuration that a collapse rule ended has a result, the worst, and goes no further.
	trials[6].runs[0].Status = StoppedEarly
	trials[7].runs[0].Status, trials[7].runs[0].Scores = StoppedEarly, nil
	score(trials[8], 0.05)
	if p, ok = next(); !ok || p.runs[0].Seed != 5 {
		t.Fatalf("the third of nine: %v", ok)
	}
	p.runs[0].Rung = 1
	for i, v := range map[int]float64{1: 0.6, 4: 0.7, 5: 0.65} {
		score(trials[i], v)
	}
	if p, ok = next(); !ok || p.runs[0].Seed != 4 || p.rung() != 1 {
		t.Fatalf("at the second rung: %+v", p.runs)
	}
	p.runs[0].Rung, p.runs[0].Status = 2, StoppedEarly
	if p, ok = next(); ok {
		t.Errorf("%d is promoted without being one of the best third", p.runs[0].Seed)
	}
	// The one at the top collapsed: the best below it takes its place, so that the search ends with a whole run.
	if p, ok = promoteLast(trials, 3); !ok || p.runs[0].Seed != 5 {
		t.Errorf("the last promotion is of %+v", p.runs)
	}
	p.runs[0].Rung = 2
	score(p, 0.8)
	if _, ok = promoteLast(trials, 3); ok {
		t.Error("a search with a whole run goes on")
	}
}

// Whatever the order in which runs end, the search ends, the best configuration has all its steps when scores only
// grow with it, and far fewer steps are taken than by runs of all configurations.
func TestSearchFindsTheBest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	h := Halving{Reduction: 3, MinSteps: 1}
	const n, steps = 81, 81
	rungs := h.rungs(steps)
	for range 50 {
		trials := trialsOf(n)
		worth := random.Perm(n)
		var busy []trial
		started, taken := 0, 0
		for {
			for len(busy) < 4 {
				if p, ok := promote(trials, rungs, h.Reduction); ok {
					p.runs[0].Rung++
					p.runs[0].Status = Running
					busy = append(busy, p)
				} else if started < n {
					trials[started].runs[0].Status = Running
					busy = append(busy, trials[started])
					started++
				} else {
					break
				}
			}
			if len(busy) == 0 {
				p, ok := promoteLast(trials, rungs)
				if !ok {
					break
				}
				p.runs[0].Rung++
				p.runs[0].Status = Running
				busy = append(busy, p)
			}
			i := random.IntN(len(busy))
			done := busy[i]
			busy = slices.Delete(busy, i, i+1)
			taken += h.stepsAt(done.rung(), rungs, steps)
			if r := done.rung(); r > 0 {
				taken -= h.stepsAt(r-1, rungs, steps)
			}
			score(done, float64(worth[done.runs[0].Seed]))
		}
		best := ranked(trials, rungs-1)
		if len(best) == 0 || worth[best[0].runs[0].Seed] != n-1 {
			t.Fatalf("%d configurations have all steps, the best of all is not among them", len(best))
		}
		if taken > n*steps/4 {
			t.Errorf("%d steps taken; %d when every rung is full, %d in all runs", taken, StepsOf(h.full(n, rungs, steps)),
				n*steps)
		}
	}
}

// A search draws from the axes of all stages, in an order that more configurations only lengthen.
func TestConfigurationsOfASearch(t *testing.T) {
	s, err := load(t, `
study = {name = "s", base = "b.toml"}
[[conditions]]
at = ["batch=4", "rollouts=2"]
set = ["envs.0.groups=4", "envs.0.group_size=2"]
[[conditions]]
at = ["batch=8", "rollouts=2"]
set = ["envs.0.groups=8", "envs.0.group_size=2"]
[[axes]]
key = "actor.lr"
values = [1e-6, 1e-5, 1e-4]
stage = 2
`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.configurations(1)
	if err != nil || len(all) != 6 {
		t.Fatalf("%d configurations, %v", len(all), err)
	}
	i := slices.IndexFunc(all, func(c Condition) bool { return c.Label == "batch=8,rollouts=2,lr=1e-05" })
	if i < 0 || strings.Join(all[i].Overrides, " ") != "envs.0.groups=8 envs.0.group_size=2 actor.lr=1e-05" {
		t.Errorf("%+v", all)
	}
	s.Search.Configurations = 3
	some, err := s.configurations(1)
	if err != nil || len(some) != 3 {
		t.Fatal(len(some), err)
	}
	for i := range some {
		if some[i].Label != all[i].Label {
			t.Errorf("configuration %d is %s of three and %s of six", i, some[i].Label, all[i].Label)
		}
	}
	s.Search.Configurations = 7
	if _, err := s.configurations(1); err == nil || !strings.Contains(err.Error(), "the axes have 6") {
		t.Errorf("seven of six: %v", err)
	}
}
