package sweep

import (
	"fmt"
	"path/filepath"
	"time"

	"gyre/orchestrate/config"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// progress says how many steps of how many are done. The state is locked for done.
type progress struct {
	label string
	total int
	done  func() int
}

// show shows progress until the runs are over.
func (x *execution) show(p progress, done <-chan struct{}) {
	bar := x.options.Console.Bar(p.label, p.total)
	defer bar.Close()
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		x.state.mu.Lock()
		n := p.done()
		x.state.mu.Unlock()
		bar.Set(min(n, p.total))
		select {
		case <-done:
			return
		case <-every.C:
		}
	}
}

// stepsOf are the steps of whole runs.
func (x *execution) stepsOf(r *Run) int {
	if c, err := config.Load(x.study.BasePath(), r.Overrides); err == nil {
		return c.Run.Steps
	}
	return x.base.Run.Steps
}

// sweepProgress counts a run that is over as done, whatever its last step.
func (x *execution) sweepProgress(runs []*Run) progress {
	p := progress{label: fmt.Sprintf("%d runs", len(runs))}
	steps := make([]int, len(runs))
	for i, r := range runs {
		steps[i] = x.stepsOf(r)
		p.total += steps[i]
	}
	p.done = func() (n int) {
		for i, r := range runs {
			if r.over() {
				n += steps[i]
			} else {
				n += min(stepsDone(r.Dir), steps[i])
			}
		}
		return n
	}
	return p
}

// stepsDone is the last step that a run has logged; 0 where that cannot be read.
func stepsDone(dir string) int {
	step, _, _ := metrics.LastStep(filepath.Join(dir, metrics.File))
	return step
}

// Previewed is a run as a dry run lists it.
type Previewed struct {
	Run
	Over bool
	// SecondsPerStep is what steps took: in this run, in others of the study, or in a run of the base; 0 where none was logged.
	SecondsPerStep float64
}

// Preview lists the runs of a study's first stage, and of later ones as far as it got, without changing anything.
func Preview(s *Study) (list []Previewed, slots int, err error) {
	if err := s.begin(sweeps); err != nil {
		return nil, 0, err
	}
	base, err := s.base()
	if err != nil {
		return nil, 0, err
	}
	places, err := s.deal()
	if err != nil {
		return nil, 0, err
	}
	st, err := openState(s)
	if err != nil {
		return nil, 0, err
	}
	conditions, err := s.Plan(max(s.OnlyStage, 1), s.Start)
	if err != nil {
		return nil, 0, err
	}
	return preview(st, base, s.runs(base, conditions, places[0].threads)), len(places), nil
}

// preview adds to runs what is known of them.
func preview(st *state, base *config.Config, runs []*Run) (list []Previewed) {
	all := secondsPerStep(filepath.Join(base.Run.Output, base.Run.Name))
	for _, r := range st.Runs {
		if v := secondsPerStep(r.Dir); v > 0 {
			all = v
		}
	}
	for _, r := range runs {
		for _, known := range st.Runs {
			if known.Condition == r.Condition && known.Seed == r.Seed {
				r.Status, r.Rung, r.Target = known.Status, known.Rung, max(known.Target, r.Target)
			}
		}
		p := Previewed{Run: *r, Over: r.over(), SecondsPerStep: secondsPerStep(r.Dir)}
		if p.SecondsPerStep == 0 {
			p.SecondsPerStep = all
		}
		list = append(list, p)
	}
	return list
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
