package sweep

import (
	"context"
	"fmt"
	"slices"

	"gyre/internal/atomicfile"
	"gyre/internal/settings"
	"gyre/orchestrate/config"
)

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
		x.study.Search.expected(len(x.trials), x.rungs, longest) * x.study.Seeds, all})
}

// expected are the steps of a search in which every rung is full.
func (h Halving) expected(configurations, rungs, steps int) (total int) {
	for rung := range rungs {
		each := h.stepsAt(rung, rungs, steps)
		if rung > 0 {
			each -= h.stepsAt(rung-1, rungs, steps)
		}
		total += each * configurations
		configurations = max(configurations/h.Reduction, 1)
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
