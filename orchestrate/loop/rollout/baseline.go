package rollout

import (
	"context"

	"gyre/envs"
	"gyre/orchestrate/config"
)

// PlayRandom plays a plan's groups once each with uniformly random actions, as many as a policy could take, and
// averages the outcomes per tag under the names that [Summarize] has for them. It is the baseline of the very levels
// that a policy is validated on.
func PlayRandom(ctx context.Context, plan Plan) (map[string]float64, error) {
	sums, count := map[string]float64{}, map[string]float64{}
	seed := plan.EnvSeed
	for _, source := range plan.Sources {
		if err := playRandomly(ctx, source, seed, plan.Holdout, func(o envs.Outcome) {
			count[source.Tag]++
			sums[source.Tag+"/success"] += indicator(o.Success)
			sums[source.Tag+"/num_actions"] += float64(o.Actions)
			sums[source.Tag+"/episodic_return"] += o.Return
		}); err != nil {
			return nil, err
		}
		seed += int64(source.Groups)
	}
	for tag, n := range count {
		for _, key := range []string{"success", "num_actions", "episodic_return"} {
			sums[tag+"/"+key] /= n
		}
	}
	return sums, nil
}

func playRandomly(ctx context.Context, source config.Env, from int64, holdout Holdout, add func(envs.Outcome)) error {
	end := from + int64(source.Groups)
	return eachReset(ctx, source, from, end, 1, holdout, func(spec envs.Spec, env envs.Env, f first) error {
		limit := source.MaxActions
		if limit == 0 {
			limit = spec.MaxActions
		}
		limit = min(limit, source.MaxTurns*source.MaxActionsPerTurn)
		o, err := envs.PlayRandom(ctx, env, f.seed, limit, envs.Rand("random policy", f.seed))
		if err == nil {
			add(o)
		}
		return err
	})
}
