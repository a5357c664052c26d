package sweep

import (
	"path/filepath"

	"gyre/orchestrate/config"
	"gyre/orchestrate/run/rundir"
)

// Preview is what a study would do.
type Preview struct {
	Runs  []Previewed
	Rungs []Rung // of a search
	Slots int
}

// Previewed is a run as a dry run lists it.
type Previewed struct {
	Run
	Over bool
	// SecondsPerStep is what steps took: in this run, in others of the study, or in a run of the base; 0 where none
	// was logged.
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
	all := secondsPerStep(filepath.Join(o.base.Run.Output, o.base.Run.Name))
	for _, r := range o.state.Runs {
		if v := secondsPerStep(r.Dir); v > 0 {
			all = v
		}
	}
	p := Preview{Slots: len(o.slots)}
	for _, r := range runs {
		for _, known := range o.state.Runs {
			if known.Condition == r.Condition && known.Seed == r.Seed {
				r.Status, r.Rung, r.Target = known.Status, known.Rung, max(known.Target, r.Target)
			}
		}
		seen := Previewed{Run: *r, Over: r.over(), SecondsPerStep: secondsPerStep(r.Dir)}
		if seen.SecondsPerStep == 0 {
			seen.SecondsPerStep = all
		}
		p.Runs = append(p.Runs, seen)
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
