package sweep

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gyre/internal/settings"
	"gyre/internal/statistics"
)

// Halving are the settings of a search by asynchronous successive halving (Li et al., "A system for massively
// parallel hyperparameter tuning", 2020): configurations are compared at rungs of a run's steps, and of those at a
// rung the best one in Reduction goes on to the next, as soon as it is known to be among them. Nobody waits for a
// rung to be full.
type Halving struct {
	// Reduction is what the number of configurations is divided by, and the steps multiplied by, from rung to rung.
	Reduction int `toml:"reduction" default:"3" range:"[2,)"`
	// MinSteps to the first rung, at least; 0 = such that there are four rungs.
	MinSteps int `toml:"min_steps" range:"[0,)"`
	// Configurations that are drawn from the grid of all axes, of all stages; 0 = every one.
	Configurations int `toml:"configurations" range:"[0,)"`
}

// defaultRungs of a search that does not say how long its first rung is.
const defaultRungs = 4

// rungs counts the rungs of runs of some steps: the last one is all of them, each before it the reduction's share.
func (h Halving) rungs(steps int) int {
	if h.MinSteps == 0 {
		h.MinSteps = max(1, int(float64(steps)/math.Pow(float64(h.Reduction), defaultRungs-1)))
	}
	n := 1
	for left := steps / h.Reduction; left >= h.MinSteps; left /= h.Reduction {
		n++
	}
	return n
}

// stepsAt are the steps that a run of so many has done at a rung.
func (h Halving) stepsAt(rung, rungs, steps int) int {
	for range rungs - 1 - rung {
		steps /= h.Reduction
	}
	return max(steps, 1)
}

// configurations are the settings that a search tries, in the order in which they start: of the grid of all stages,
// in an order that is keyed by the seed. A search that is given more of them goes on with those that it has.
func (s *Study) configurations(seed uint64) ([]Condition, error) {
	all := []Condition{{Stage: 1}}
	for stage := 1; stage <= s.Stages(); stage++ {
		list := s.conditions(stage, nil)
		for i, c := range list {
			list[i].Label = cmp.Or(strings.Join(c.Coordinates, ","), c.Label)
		}
		if len(list) > 0 {
			all = grid(all, list)
		}
	}
	if err := s.distinct(all); err != nil {
		return nil, err
	}
	n := cmp.Or(s.Search.Configurations, len(all))
	if n > len(all) {
		return nil, fmt.Errorf("%w: %s: search.configurations is %d, and the axes have %d", settings.ErrInvalid,
			s.file, n, len(all))
	}
	out := make([]Condition, n)
	for i, k := range rand.New(rand.NewPCG(seed, 0)).Perm(len(all))[:n] {
		out[i] = all[k]
	}
	return out, nil
}

// trial is a configuration with its runs, one per seed: they go from rung to rung together.
type trial struct{ runs []*Run }

func (t trial) rung() int { return t.runs[0].Rung }

// lost tells whether the configuration goes no further: a collapse rule ended one of its runs, or it cannot be
// finished.
func (t trial) lost() bool {
	return slices.ContainsFunc(t.runs, func(r *Run) bool { return r.Status == StoppedEarly || r.Status == Failed })
}

// reached tells whether every run has a score at a rung.
func (t trial) reached(rung int) bool {
	return !slices.ContainsFunc(t.runs, func(r *Run) bool { return len(r.Scores) <= rung })
}

// score at a rung, the mean over seeds: below all others for a configuration that was lost on its way there; false
// while it is not known.
func (t trial) score(rung int) (float64, bool) {
	switch {
	case t.reached(rung):
		var scores []float64
		for _, r := range t.runs {
			scores = append(scores, r.Scores[rung])
		}
		return statistics.Mean(scores), true
	case t.lost() && t.rung() >= rung:
		return math.Inf(-1), true
	}
	return 0, false
}

// promote chooses the next configuration that goes on to the rung after its own; false when there is none yet. It is
// the rule of asynchronous successive halving: at the highest rung where one of the best 1/reduction of those that
// have a result has not gone on.
func promote(trials []trial, rungs, reduction int) (trial, bool) {
	for rung := rungs - 2; rung >= 0; rung-- {
		best := ranked(trials, rung)
		for _, t := range best[:len(best)/reduction] {
			if t.rung() == rung && !t.lost() {
				return t, true
			}
		}
	}
	return trial{}, false
}

// promoteLast chooses one more when nothing is under way and the rule promotes nobody, so that some configuration has
// all its steps: the best of the highest rung that is held.
func promoteLast(trials []trial, rungs int) (trial, bool) {
	for rung := rungs - 1; rung >= 0; rung-- {
		for _, t := range ranked(trials, rung) {
			if t.rung() == rung && !t.lost() {
				return t, rung < rungs-1
			}
		}
	}
	return trial{}, false
}

// ranked are the configurations with a result at a rung, the best first, and those that started earlier before others
// of the same score.
func ranked(trials []trial, rung int) []trial {
	var out []trial
	for _, t := range trials {
		if _, ok := t.score(rung); ok {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b trial) int {
		x, _ := a.score(rung)
		y, _ := b.score(rung)
		return cmp.Compare(y, x)
	})
	return out
}
