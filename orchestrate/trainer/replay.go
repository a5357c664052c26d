package trainer

import (
	"fmt"
	"math"
	"slices"

	"gyre/orchestrate/episode"
)

// replay feeds saved or hand-written episodes to the update instead of played ones. A file whose episodes all carry the same step number
// (or none) is used at every step; one with several is used in their order, one per training step.
type replay struct {
	path  string
	steps [][]*episode.Episode
}

func openReplay(path string, steps int) (*replay, error) {
	episodes, err := episode.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	byStep := map[int][]*episode.Episode{}
	var order []int
	for _, e := range episodes {
		if byStep[e.Step] == nil {
			order = append(order, e.Step)
		}
		byStep[e.Step] = append(byStep[e.Step], e)
	}
	slices.Sort(order)
	r := &replay{path: path}
	for _, step := range order {
		r.steps = append(r.steps, byStep[step])
	}
	if len(r.steps) > 1 && len(r.steps) < steps {
		return nil, fmt.Errorf("replay: %s holds episodes of %d steps but run.steps is %d: set run.steps=%d or fewer", path, len(r.steps), steps, len(r.steps))
	}
	return r, nil
}

// at returns the episodes of training step 1, 2, …
func (r *replay) at(step int) []*episode.Episode {
	if len(r.steps) == 1 {
		return r.steps[0]
	}
	return r.steps[step-1]
}

// analysable reports whether a step's gradients can be analysed: replayed groups may have one member, and nothing plays a separate batch.
func (t *Trainer) analysable(step int, s selection) bool {
	if t.replay == nil {
		return true
	}
	if t.config.Separate() {
		t.log.Warnf("step %d: no gradient analysis: with --replay nothing plays its separate batch (analysis.groups, analysis.group_size)", step)
		return false
	}
	for _, x := range s.samples {
		if math.IsNaN(x.Spread) {
			t.log.Warnf("step %d: no gradient analysis: group %d has one member, so it has no reward spread", step, x.Group)
			return false
		}
	}
	return true
}
