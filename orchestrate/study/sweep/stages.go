package sweep

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"gyre/orchestrate/config"
)

// stages runs one stage after the other: each starts from the best condition of the one before.
func (x *execution) stages(ctx context.Context) error {
	start := x.study.Start
	for stage := 1; stage <= x.study.Stages(); stage++ {
		only := x.study.OnlyStage
		if only != 0 && stage > only {
			break
		}
		if only != 0 && (stage < only-1 || stage < only && (len(start) > 0 || !x.state.has(stage))) {
			continue
		}
		runs := x.state.of(stage)
		if stage >= only {
			conditions, err := x.study.Plan(stage, start)
			if err != nil {
				return err
			}
			if runs, err = x.plan(x.study.runs(x.base, conditions, x.slots[0].threads)); err != nil {
				return err
			}
			total := 0
			for _, r := range runs {
				total += x.steps[r]
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

// plan adds runs to the state, and says how many steps they have.
func (x *execution) plan(runs []*Run) ([]*Run, error) {
	runs, err := x.state.plan(runs)
	for _, r := range runs {
		x.steps[r] = x.base.Run.Steps
		if c, err := config.Load(x.study.BasePath(), r.Overrides); err == nil {
			x.steps[r] = c.Run.Steps
		}
	}
	return runs, err
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
			overrides := append([]string{}, s.Set...)
			overrides = append(overrides, c.Overrides...)
			overrides = append(overrides, s.Override...)
			overrides = append(overrides, seedOverrides(base, seed)...)
			// Threads may change the order of sums: they belong to what a run is.
			overrides = append(overrides, fmt.Sprintf("run.threads=%d", threads), "run.output="+filepath.Dir(dir),
				"run.name="+filepath.Base(dir))
			out = append(out, &Run{Condition: c.Label, Seed: seed, Stage: c.Stage, Dir: dir, Status: Pending,
				Log: s.logFile(c, seed), Overrides: overrides,
				Setting: c.Overrides, Coordinates: c.Coordinates, Line: c.Line})
		}
	}
	return out
}
