package trainer

import (
	"fmt"
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
