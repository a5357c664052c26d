package rollout

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/model/chat"
)

// Overlap counts first states, by what the policy is shown of them.
type Overlap struct {
	HeldOut        int `json:"held_out"`       // validation episodes
	Different      int `json:"different"`      // different states among them
	Training       int `json:"training"`       // groups that training plays
	Distinct       int `json:"distinct"`       // different states among them and the demonstrations
	Demonstrations int `json:"demonstrations"` // levels shown by the expert, at most
	Shared         int `json:"shared"`         // validation episodes that begin like one of either
}

// CountOverlap makes the first state of every training group, demonstration and validation episode of a
// configuration. A score on held-out episodes is about new states only where Shared is 0: small boards repeat, unless
// validation.holdout keeps them apart. demonstrations is 0 when there are none.
func CountOverlap(ctx context.Context, c *config.Config, demonstrations int) (Overlap, error) {
	seen := map[[sha256.Size]byte]bool{}
	o := Overlap{Demonstrations: demonstrations}
	add := func(state [sha256.Size]byte) { seen[state] = true }
	for step := range c.Run.Steps {
		plan := TrainingPlan(c, step+1)
		o.Training += plan.Groups()
		if err := groupStates(ctx, plan, add); err != nil {
			return o, err
		}
	}
	for i, source := range c.Envs { // the expert takes the sources in turn
		turns := int64(len(c.Envs))
		first, end := c.SFT.EnvSeed+int64(i), c.SFT.EnvSeed+int64(demonstrations)
		if err := firstStates(ctx, source, first, end, turns, Holdout{Share: c.Validation.Holdout}, add); err != nil {
			return o, err
		}
	}
	o.Distinct = len(seen)
	held := map[[sha256.Size]byte]bool{}
	err := groupStates(ctx, ValidationPlan(c, 0), func(state [sha256.Size]byte) {
		o.HeldOut++
		held[state] = true
		if seen[state] {
			o.Shared++
		}
	})
	o.Different = len(held)
	return o, err
}

// groupStates calls add with the first state of each of a plan's groups.
func groupStates(ctx context.Context, plan Plan, add func(state [sha256.Size]byte)) error {
	seed := plan.EnvSeed
	for _, source := range plan.Sources {
		end := seed + int64(source.Groups)
		if err := firstStates(ctx, source, seed, end, 1, plan.Holdout, add); err != nil {
			return err
		}
		seed = end
	}
	return nil
}

// firstStates calls add with a source's first state of every seed from the first to below end, stride apart.
func firstStates(ctx context.Context, source config.Env, from, end, stride int64, holdout Holdout,
	add func(state [sha256.Size]byte)) error {
	return eachReset(ctx, source, from, end, stride, holdout, func(spec envs.Spec, _ envs.Env, f first) error {
		add(sha256.Sum256([]byte(spec.Tag + "\n" + f.Instruction + "\n" + f.state.String())))
		return nil
	})
}

// eachReset calls do with a source's environment reset to every seed from the first to below end, stride apart, as
// holdout lets it. One instance takes them all.
func eachReset(ctx context.Context, source config.Env, from, end, stride int64, holdout Holdout,
	do func(spec envs.Spec, env envs.Env, f first) error) (err error) {
	spec, err := envs.Lookup(source.Tag)
	if err != nil {
		return err
	}
	spec.CountTokens = chat.CountTokens
	env, err := spec.Make(source.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Close()) }()
	for seed := from; seed < end; seed += stride {
		f, err := holdout.reset(ctx, env, seed, 0)
		if err == nil {
			err = do(spec, env, f)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", source.Tag, err)
		}
	}
	return nil
}
