package sweep

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/settings"
	"gyre/internal/statistics"
	"gyre/orchestrate/config"
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

// draw plans a search: its rungs and its trials, whose runs have the steps to the first rung as their target. longest
// is the most steps that a whole run takes.
func (x *execution) draw() (longest int, err error) {
	s := x.study
	configurations, err := s.configurations(x.base.Run.Seed)
	if err != nil {
		return 0, err
	}
	for _, c := range configurations {
		resolved, err := config.Load(s.BasePath(), slices.Concat(s.Set, c.Overrides, s.Override))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", c.Label, err)
		}
		if resolved.Run.ValidateEvery == 0 {
			return 0, fmt.Errorf("%w: %s: run.validate_every is 0, and a search compares configurations by validations",
				settings.ErrInvalid, c.Label)
		}
		x.trials = append(x.trials, trial{s.runs(x.base, []Condition{c}, x.slots[0].threads)})
		longest = max(longest, resolved.Run.Steps)
	}
	x.rungs = s.Search.rungs(longest)
	for _, t := range x.trials {
		for _, r := range t.runs {
			r.Target = s.Search.stepsAt(0, x.rungs, r.steps)
		}
	}
	return longest, nil
}

// search lets configurations go from rung to rung until one has all its steps and nothing is left to start.
func (x *execution) search(ctx context.Context) error {
	longest, err := x.draw()
	if err != nil {
		return err
	}
	var all []*Run
	for i, t := range x.trials {
		if x.trials[i].runs, err = x.state.plan(t.runs); err != nil {
			return err
		}
		all = append(all, x.trials[i].runs...)
	}
	advance := func(t trial) *Run {
		for _, r := range t.runs {
			r.Rung++
			r.Target, r.Status = x.study.Search.stepsAt(r.Rung, x.rungs, r.steps), Pending
		}
		return t.runs[0]
	}
	next := func(busy bool) *Run {
		waiting := slices.IndexFunc(all, func(r *Run) bool { return r.Status == Pending && r.Rung > 0 })
		if waiting >= 0 {
			return all[waiting]
		}
		if t, ok := promote(x.trials, x.rungs, x.study.Search.Reduction); ok {
			return advance(t)
		}
		if r := pending(all)(busy); r != nil || busy {
			return r
		}
		if t, ok := promoteLast(x.trials, x.rungs); ok {
			return advance(t)
		}
		return nil
	}
	return x.run(ctx, next, progress{fmt.Sprintf("search of %d configurations", len(x.trials)),
		StepsOf(x.study.Search.full(len(x.trials), x.rungs, longest)) * x.study.Seeds, all})
}

// Rung is a rung of a search when it is full.
type Rung struct{ Steps, Configurations int }

// full are the rungs of a search of runs of some steps.
func (h Halving) full(configurations, rungs, steps int) (out []Rung) {
	for rung := range rungs {
		out = append(out, Rung{h.stepsAt(rung, rungs, steps), configurations})
		configurations = max(configurations/h.Reduction, 1)
	}
	return out
}

// StepsOf are the steps of a search in which every rung is full.
func StepsOf(rungs []Rung) (total int) {
	before := 0
	for _, r := range rungs {
		total += (r.Steps - before) * r.Configurations
		before = r.Steps
	}
	return total
}

// leaders are the configurations of a search that have started, those further up before others, and at the same rung
// the better before the worse.
func (x *execution) leaders() []trial {
	var out []trial
	for rung := x.rungs - 1; rung >= 0; rung-- {
		for _, t := range ranked(x.trials, rung) {
			if t.rung() == rung {
				out = append(out, t)
			}
		}
	}
	for _, t := range x.trials {
		if _, ok := t.score(t.rung()); !ok && atomicfile.Exists(t.runs[0].Dir) {
			out = append(out, t)
		}
	}
	return out
}

// shown are the runs that a summary lists: all of a sweep, and those of a search that have started.
func (x *execution) shown() []*Run {
	if x.rungs == 0 {
		return x.state.Runs
	}
	var out []*Run
	for _, t := range x.leaders() {
		out = append(out, t.runs...)
	}
	return out
}
