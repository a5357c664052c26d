package rollout

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"gyre/envs"
	"gyre/orchestrate/config"
)

// Overlap counts first states, by what the policy is shown of them.
type Overlap struct {
	HeldOut        int `json:"held_out"`       // validation episodes
	Training       int `json:"training"`       // groups that training plays
	Distinct       int `json:"distinct"`       // different states among them and the demonstrations
	Demonstrations int `json:"demonstrations"` // levels shown by the expert, at most
	Shared         int `json:"shared"`         // validation episodes that begin like one of either
}

// CountOverlap plays the first moment of every training group, demonstration and validation episode of a configuration. A score on
// held-out episodes speaks of new states only as far as Shared is 0: small boards repeat. demonstrations is 0 when there are none.
func CountOverlap(ctx context.Context, c *config.Config, demonstrations int) (Overlap, error) {
	seen := map[[sha256.Size]byte]bool{}
	o := Overlap{Demonstrations: demonstrations}
	add := func(state [sha256.Size]byte) { seen[state] = true }
	for step := range c.Run.Steps {
		plan := TrainingPlan(c, step+1)
		o.Training += plan.Groups()
		if err := firstStates(ctx, plan, add); err != nil {
			return o, err
		}
	}
	for source := range c.Envs { // the expert takes the sources in turn
		one := c.Envs[source]
		one.Groups = 1
		for n := source; n < demonstrations; n += len(c.Envs) {
			if err := firstStates(ctx, Plan{Sources: []config.Env{one}, EnvSeed: c.SFT.EnvSeed + int64(n)}, add); err != nil {
				return o, err
			}
		}
	}
	o.Distinct = len(seen)
	err := firstStates(ctx, ValidationPlan(c, 0), func(state [sha256.Size]byte) {
		o.HeldOut++
		if seen[state] {
			o.Shared++
		}
	})
	return o, err
}

// firstStates calls add with each group's first state.
func firstStates(ctx context.Context, plan Plan, add func(state [sha256.Size]byte)) (err error) {
	seed := plan.EnvSeed
	for _, source := range plan.Sources {
		spec, err := envs.Lookup(source.Tag)
		if err != nil {
			return err
		}
		env, err := spec.Make(source.Options)
		if err != nil {
			return err
		}
		for range source.Groups {
			if err = ctx.Err(); err != nil {
				break
			}
			if err = env.Reset(ctx, seed); err != nil {
				err = fmt.Errorf("%s: reset with seed %d: %w", source.Tag, seed, err)
				break
			}
			add(sha256.Sum256([]byte(spec.Tag + "\n" + env.Instruction() + "\n" + env.Observe().String())))
			seed++
		}
		if err = errors.Join(err, env.Close()); err != nil {
			return err
		}
	}
	return nil
}
