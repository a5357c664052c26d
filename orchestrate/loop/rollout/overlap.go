package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"

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
	seen, held := map[string]bool{}, map[string]bool{}
	o := Overlap{Demonstrations: demonstrations}
	state := func(f level) string { return f.spec.Tag + "\n" + f.Instruction + "\n" + f.state.String() }
	add := func(f level) error {
		seen[state(f)] = true
		return nil
	}
	for step := range c.Run.Steps {
		plan := TrainingPlan(c, step+1, step+1)
		o.Training += plan.Groups()
		if err := eachGroup(ctx, plan, add); err != nil {
			return o, err
		}
	}
	for i, source := range c.Envs { // the expert takes the sources in turn
		var seeds []int64
		for n := i; n < demonstrations; n += len(c.Envs) {
			seeds = append(seeds, c.SFT.EnvSeed+int64(n))
		}
		if err := eachReset(ctx, source, seeds, Holdout{Share: c.Validation.Holdout}, add); err != nil {
			return o, err
		}
	}
	o.Distinct = len(seen)
	err := eachGroup(ctx, ValidationPlan(c, 0), func(f level) error {
		o.HeldOut++
		held[state(f)] = true
		if seen[state(f)] {
			o.Shared++
		}
		return nil
	})
	o.Different = len(held)
	return o, err
}

// PlayRandom plays a plan's groups once each with uniformly random actions, as many as a policy could take, and
// averages the outcomes per tag under the names that [Summarize] has for them. It is the baseline of the very levels
// that a policy is validated on.
func PlayRandom(ctx context.Context, plan Plan) (map[string]float64, error) {
	sums, count := map[string]float64{}, map[string]float64{}
	err := eachGroup(ctx, plan, func(f level) error {
		tag, limit := f.source.Tag, cmp.Or(f.source.MaxActions, f.spec.MaxActions)
		limit = min(limit, f.source.MaxTurns*f.source.MaxActionsPerTurn)
		o, err := envs.PlayRandom(ctx, f.env, f.seed, limit, envs.Rand("random policy", f.seed))
		count[tag]++
		sums[tag+"/success"] += envs.Indicator(o.Success)
		sums[tag+"/num_actions"] += float64(o.Actions)
		sums[tag+"/episodic_return"] += o.Return
		return err
	})
	for key := range sums {
		sums[key] /= count[path.Dir(key)]
	}
	return sums, err
}

// level is an environment as an episode of a source begins.
type level struct {
	first
	source config.Env
	spec   envs.Spec
	env    envs.Env
}

// eachGroup calls do with the environment of each of a plan's groups as it begins.
func eachGroup(ctx context.Context, plan Plan, do func(level) error) error {
	next := plan.EnvSeed
	for _, source := range plan.Sources {
		var seeds []int64
		for range source.Groups {
			seeds = append(seeds, next)
			next++
		}
		if err := eachReset(ctx, source, seeds, plan.Holdout, do); err != nil {
			return err
		}
	}
	return nil
}

// eachReset calls do with a source's environment reset to every seed, as holdout lets it. One instance takes them all.
func eachReset(
	ctx context.Context, source config.Env, seeds []int64, holdout Holdout, do func(level) error,
) (err error) {
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
	for _, seed := range seeds {
		f, err := holdout.reset(ctx, env, seed, 0)
		if err == nil {
			err = do(level{f, source, spec, env})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", source.Tag, err)
		}
	}
	return nil
}
