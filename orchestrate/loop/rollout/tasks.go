package rollout

import (
	"fmt"

	"gyre/envs"
	"gyre/orchestrate/loop/budget"
)

// Places are the groups of a plan before they are played, with the names of tasks that come back. Where a share of the
// first states is held out nobody knows beforehand which task a seed leads to, and none has a name.
func (p *Player) Places(plan Plan) (places []budget.Place, err error) {
	for i, source := range plan.Sources {
		kind, err := p.kind(source)
		if err != nil {
			return nil, err
		}
		env, err := kind.pool.take()
		if err != nil {
			return nil, fmt.Errorf("the tasks of %s: %w", source.Tag, err)
		}
		recurrent, named := env.(envs.Recurrent)
		for range source.Groups {
			place := budget.Place{Source: i, Size: source.GroupSize}
			if named && plan.Holdout.Share == 0 {
				place.Task = recurrent.Task(plan.EnvSeed + int64(len(places)))
			}
			places = append(places, place)
		}
		kind.pool.give(env)
	}
	return places, nil
}
