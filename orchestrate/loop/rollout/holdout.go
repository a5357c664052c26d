package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"gyre/envs"
)

// Holdout divides the first states of episodes between validation and everything else, by a hash of what the policy
// is shown. No training episode and no demonstration begins with a state of validation, whatever the seeds, the
// number of steps and the environment; both sides have the distribution that the environment gives them.
type Holdout struct {
	Share float64 // of the states that are validation's; 0 = every state is anybody's
	Held  bool    // this is validation
}

// holdoutTries bounds the seeds that are tried for one state. With a hundredth of the states to choose from, all of
// them fail for one state in 23,000.
const holdoutTries = 1000

// admits says whether an episode may begin with a state.
func (h Holdout) admits(state envs.Observation) bool {
	if h.Share == 0 {
		return true
	}
	sum := sha256.Sum256([]byte(state.String()))
	return (float64(binary.LittleEndian.Uint64(sum[:])) < h.Share*math.MaxUint64) == h.Held
}

// first is how an episode begins.
type first struct {
	envs.Start
	seed  int64 // taken
	state envs.Observation
}

// reset starts an environment from a seed, or from the first of its successors whose state is admitted.
func (h Holdout) reset(ctx context.Context, env envs.Env, seed int64, member int) (first, error) {
	next := seed
	for range holdoutTries {
		if err := ctx.Err(); err != nil {
			return first{}, context.Cause(ctx)
		}
		start, err := env.Reset(ctx, next, member)
		if err != nil {
			return first{}, fmt.Errorf("reset with seed %d: %w", next, err)
		}
		if state := env.Observe(); h.admits(state) {
			return first{start, next, state}, nil
		}
		next = envs.Reseed(next)
	}
	side := "training"
	if h.Held {
		side = "validation"
	}
	return first{}, fmt.Errorf("seed %d and its %d successors give no first state that validation.holdout = %g "+
		"leaves for %s: has the environment so few states? Set validation.holdout to 0", seed, holdoutTries-1, h.Share, side)
}
