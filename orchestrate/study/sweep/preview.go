package sweep

import (
	"path/filepath"

	"gyre/orchestrate/config"
	"gyre/orchestrate/run/rundir"
)

// Preview is what a study would do.
type Preview struct {
	Runs  []*Run
	Rungs []Rung // of a search
	Slots int
	// SecondsPerStep is what steps took in runs of the study, or in a run of the base; 0 where none was logged.
	SecondsPerStep float64
}

// Rung is a rung of a search as a dry run lists it.
type Rung struct{ Steps, Configurations int }

// PreviewSweep lists the runs of a study's first stage, and of later ones as far as it got, without changing anything.
func PreviewSweep(s *Study) (Preview, error) {
	o, err := open(s, sweeps)
	if err != nil {
		return Preview{}, err
	}
	conditions, err := s.Plan(max(s.OnlyStage, 1), s.Start)
	if err != nil {
		return Preview{}, err
	}
	return o.preview(s.runs(o.base, conditions, o.slots[0].threads)), nil
}

// PreviewSearch lists a search's configurations in the order in which they start, and its rungs, without changing
// anything.
func PreviewSearch(s *Study) (Preview, error) {
	o, err := open(s, searches)
	if err != nil {
		return Preview{}, err
	}
	trials, n, err := s.trialRuns(o.base, o.slots[0].threads)
	if err != nil {
		return Preview{}, err
	}
	var all []*Run
	longest := 0
	for _, t := range trials {
		all = append(all, t.runs...)
		if c, err := config.Load(s.BasePath(), t.runs[0].Overrides); err == nil {
			longest = max(longest, c.Run.Steps)
		}
	}
	p := o.preview(all)
	left := len(trials)
	for rung := range n {
		p.Rungs = append(p.Rungs, Rung{s.Search.stepsAt(rung, n, longest), left})
		left = max(left/s.Search.Reduction, 1)
	}
	return p, nil
}

// preview adds to runs what is known of them.
func (o *opened) preview(runs []*Run) Preview {
	p := Preview{Runs: runs, Slots: len(o.slots),
		SecondsPerStep: secondsPerStep(filepath.Join(o.base.Run.Output, o.base.Run.Name))}
	for _, known := range o.state.Runs {
		if v := secondsPerStep(known.Dir); v > 0 {
			p.SecondsPerStep = v
		}
		for _, r := range runs {
			if known.same(r) {
				r.Status, r.Rung, r.Target = known.Status, known.Rung, max(known.Target, r.Target)
			}
		}
	}
	return p
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
