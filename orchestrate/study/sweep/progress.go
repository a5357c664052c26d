package sweep

import (
	"fmt"
	"time"

	"gyre/orchestrate/config"
	"gyre/orchestrate/run/metrics"
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
				n += min(metrics.LastStep(r.Dir), steps[i])
			}
		}
		return n
	}
	return p
}
