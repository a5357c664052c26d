package envs

import (
	"context"
	"errors"
	"math/rand/v2"
)

// Outcome sums up one episode.
type Outcome struct {
	Return  float64
	Actions int
	Success bool // it ended in success
}

// PlayRandom plays one episode with uniformly random actions, at most maxActions of them. It is the baseline that any
// trained policy must beat.
func PlayRandom(ctx context.Context, env Env, seed int64, maxActions int, rng *rand.Rand) (Outcome, error) {
	var o Outcome
	if err := env.Reset(ctx, seed); err != nil {
		return o, err
	}
	actions := env.Actions()
	if len(actions) == 0 {
		return o, errors.New("a random policy needs an environment that names its actions")
	}
	for o.Actions < maxActions {
		r, err := env.Step(ctx, actions[rng.IntN(len(actions))])
		if err != nil {
			return o, err
		}
		o.Actions++
		o.Return += r.Reward
		if r.Done {
			o.Success = r.Success
			break
		}
	}
	return o, nil
}
