package sweep

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gyre/orchestrate/config"
	"gyre/orchestrate/run/rundir"
)

// stages runs one stage after the other: each starts from the best condition of the one before.
func (x *execution) stages(ctx context.Context) error {
	start := x.study.Start
	for stage := 1; stage <= x.study.Stages(); stage++ {
		only := x.study.OnlyStage
		if only != 0 && stage > only {
			break
		}
		if only != 0 && (stage < only-1 || stage < only && (len(start) > 0 || len(x.state.of(stage)) == 0)) {
			continue
		}
		runs := x.state.of(stage)
		if stage >= only {
			conditions, err := x.study.Plan(stage, start)
			if err != nil {
				return err
			}
			runs = x.study.runs(x.base, conditions, x.slots[0].threads)
			if err := x.study.checkShared(runs); err != nil {
				return err
			}
			if runs, err = x.state.plan(runs); err != nil {
				return err
			}
			total := 0
			for _, r := range runs {
				total += r.steps
			}
			if err := x.run(ctx, pending(runs), progress{fmt.Sprintf("%d runs", len(runs)), total, runs}); err != nil {
				return err
			}
		}
		if stage < x.study.Stages() && stage != only {
			best, ok := x.best(runs)
			if !ok {
				return fmt.Errorf("stage %d: no condition has a result, so there is nothing for stage %d to start from",
					stage, stage+1)
			}
			fmt.Fprintf(x.options.Console, "stage %d: %s is best; stage %d starts from it\n", stage, best.Condition,
				stage+1)
			if len(best.Ties) > 0 {
				fmt.Fprintf(x.options.Console, "stage %d: as good were %s; the first of them in the study counts\n",
					stage, strings.Join(best.Ties, ", "))
			}
			start = best.Setting
		}
	}
	return nil
}

// pending gives out the runs that are missing, those that have failed already after all others.
func pending(runs []*Run) func(bool) *Run {
	return func(bool) (first *Run) {
		for _, r := range runs {
			if r.Status == Pending && (first == nil || r.Attempts < first.Attempts) {
				first = r
			}
		}
		return first
	}
}

// runs lists the runs of conditions, seed by seed, so that an unfinished study can be compared already.
func (s *Study) runs(base *config.Config, conditions []Condition, threads int) []*Run {
	if len(s.Devices) > 0 { // run.threads is of each rank, and a run has a rank on each device
		threads = max(1, threads/max(s.DevicesPerRun, 1))
	}
	var out []*Run
	for seed := 1; seed <= s.Seeds; seed++ {
		for _, c := range conditions {
			dir := s.runDir(c, seed)
			overrides := slices.Concat(s.Set, c.Overrides, s.Override, seedOverrides(base, seed),
				[]string{fmt.Sprintf("run.threads=%d", threads), "run.output=" + filepath.Dir(dir),
					"run.name=" + filepath.Base(dir)})
			steps := base.Run.Steps
			resolved, err := config.Load(s.BasePath(), overrides)
			if err == nil {
				steps = resolved.Run.Steps
			}
			out = append(out, &Run{Condition: c.Label, Seed: seed, Stage: c.Stage, Dir: dir, Status: Pending,
				Log: s.logFile(c, seed), Overrides: overrides, steps: steps, config: resolved,
				Setting: c.Overrides, Coordinates: c.Coordinates, Line: c.Line})
		}
	}
	return out
}

// Preview is what a study would do.
type Preview struct {
	Runs  []*Run
	Rungs []Rung // of a search
	Slots int
	// SecondsPerStep is what steps took in runs of the study, or in a run of the base; 0 where none was logged.
	SecondsPerStep float64
}

// NewPreview lists the runs of a sweep's first stage, and of later ones as far as it got, or a search's configurations
// in the order in which they start, with its rungs. It changes nothing.
func NewPreview(s *Study, k Kind) (Preview, error) {
	x, err := open(s, k)
	if err != nil {
		return Preview{}, err
	}
	p := Preview{Slots: len(x.slots), SecondsPerStep: secondsPerStep(filepath.Join(x.base.Run.Output, x.base.Run.Name))}
	if k == Searches {
		longest, err := x.draw()
		if err != nil {
			return Preview{}, err
		}
		for _, t := range x.trials {
			p.Runs = append(p.Runs, t.runs...)
		}
		p.Rungs = s.Search.full(len(x.trials), x.rungs, longest)
	} else {
		conditions, err := s.Plan(max(s.OnlyStage, 1), s.Start)
		if err != nil {
			return Preview{}, err
		}
		p.Runs = s.runs(x.base, conditions, x.slots[0].threads)
		if err := s.checkShared(p.Runs); err != nil {
			return Preview{}, err
		}
	}
	if s.OnlyStage < 2 || len(s.Start) > 0 { // else it is not known yet what the stage starts from
		if err := x.state.check(p.Runs); err != nil {
			return Preview{}, err
		}
	}
	for _, known := range x.state.Runs {
		if v := secondsPerStep(known.Dir); v > 0 {
			p.SecondsPerStep = v
		}
		for _, r := range p.Runs {
			if known.same(r) {
				r.Status, r.Rung, r.Target = known.Status, known.Rung, max(known.Target, r.Target)
			}
		}
	}
	return p, nil
}

// secondsPerStep is what a run's steps took, validations included; 0 where none was logged.
func secondsPerStep(dir string) float64 {
	run, err := rundir.Read(dir)
	if err != nil {
		return 0
	}
	o := run.Outcome()
	if o.Steps == 0 {
		return 0
	}
	return o.Total / float64(o.Steps)
}
