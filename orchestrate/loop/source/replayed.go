package source

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
)

// ReadSteps reads saved or hand-written episodes, by the number of their step. It returns the numbers in ascending order.
func ReadSteps(path string) (steps map[int][]*episode.Episode, numbers []int, err error) {
	episodes, err := session.ReadGiven(path)
	if err != nil {
		return nil, nil, err
	}
	steps = map[int][]*episode.Episode{}
	for _, e := range episodes {
		steps[e.Step] = append(steps[e.Step], e)
	}
	return steps, slices.Sorted(maps.Keys(steps)), nil
}

// Replayed is the provenance of episodes that are read from a file.
var Replayed = Provenance{Weights: Unknown, Given: true}

// replayed gives steps the episodes of a file. A file whose episodes all carry the same step number (or none) is used
// at every step; one with several is used in their order, one per training step.
type replayed struct {
	path    string
	numbers []int // of the steps, ascending
	steps   map[int][]*episode.Episode
}

// openReplay reads the episodes for a run of so many steps.
func openReplay(path string, steps int) (r *replayed, err error) {
	r = &replayed{path: path}
	if r.steps, r.numbers, err = ReadSteps(path); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	if n := len(r.numbers); n > 1 && n < steps {
		return nil, fmt.Errorf("replay: %s holds episodes of %d steps but run.steps is %d: set run.steps=%d or fewer",
			path, n, steps, n)
	}
	return r, nil
}

// at returns the episodes of training step 1, 2, …
func (r *replayed) at(step int) []*episode.Episode {
	if len(r.numbers) == 1 {
		step = 1
	}
	return r.steps[r.numbers[step-1]]
}

// Next implements Source.
func (r *replayed) Next(_ context.Context, step int, _ metrics.Line) (Batch, error) {
	return Batch{Episodes: r.at(step), Provenance: Replayed}, nil
}

// Updated implements Source.
func (r *replayed) Updated(metrics.Line) error { return nil }

// UnderWay implements Source: nothing is.
func (r *replayed) UnderWay(context.Context) (func(string) error, error) { return nothing, nil }

// Close implements Source.
func (r *replayed) Close() error { return nil }

// nothing writes what is under way where nothing is.
func nothing(string) error { return nil }
