package trainer

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"gyre/orchestrate/ranks"
	"gyre/torch"
)

// update is the phase in which critic and actor learn from a prepared batch.
type update struct{ *equipment }

// mean collects sums and weights per metric name, apart for each lane, and reports their ratios.
type mean map[counted][2]float64

type counted struct {
	Name string
	Lane int // 0 but for passes whose gradients are added in lanes
}

func (m mean) add(name string, sum, weight float64) { m.addIn(0, name, sum, weight) }

func (m mean) addIn(lane int, name string, sum, weight float64) {
	v := m[counted{name, lane}]
	m[counted{name, lane}] = [2]float64{v[0] + sum, v[1] + weight}
}

// total adds up the lanes in their order.
func (m mean) total() map[string][2]float64 {
	out := map[string][2]float64{}
	for _, key := range slices.SortedFunc(maps.Keys(m), func(a, b counted) int { return a.Lane - b.Lane }) {
		v, part := out[key.Name], m[key]
		out[key.Name] = [2]float64{v[0] + part[0], v[1] + part[1]}
	}
	return out
}

// ofAll adds up what the ranks have. It is collective.
func (m mean) ofAll(ctx context.Context, w *ranks.World) (mean, error) {
	return sums(ctx, w, m, func(a, b [2]float64) [2]float64 { return [2]float64{a[0] + b[0], a[1] + b[1]} })
}

func (m mean) into(metrics map[string]float64) {
	for name, v := range m.total() {
		if v[1] > 0 {
			metrics[name] = v[0] / v[1]
		}
	}
}

// errDiverged marks a run whose losses or gradients stopped being finite.
type errDiverged struct{ what string }

func (e *errDiverged) Error() string { return "training diverged: " + e.what }

// Diverged tells the command line to exit with code 3.
func (e *errDiverged) Diverged() bool { return true }

// actorSteps runs the PPO epochs over the samples: one optimizer step per mini-batch, gradients accumulated over micro-batches.
func (u update) actorSteps(ctx context.Context, s selection, metrics map[string]float64) error {
	samples, c := s.samples, u.config.Actor
	loss := u.policyLoss()
	means, norms, batches := mean{}, mean{}, 0.0
	clippedSteps := 0
	measure, err := u.newShares(samples, len(miniBatches(len(samples), c.MiniBatch)))
	if err != nil {
		return fmt.Errorf("actor update: %w", err)
	}
	defer measure.close()
	bar := u.console.Bar("actor update", c.Epochs*len(samples))
	defer bar.Close()
	done := 0
	for epoch := range c.Epochs {
		for b, indices := range miniBatches(len(samples), c.MiniBatch) {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			weights, err := lossWeights(samples, indices, c.LossAggregation, s.width)
			if err != nil {
				return err
			}
			if err := u.actor.gradients.Zero(); err != nil {
				return err
			}
			pass := func(indices []int, into *torch.Gradients) error {
				passes, err := u.micro(ctx, samples, indices)
				if err != nil {
					return err
				}
				for _, micro := range passes {
					stats, err := u.policyBackward(samples, micro, weights, loss, torch.Terms(into, into, into))
					if err != nil {
						return fmt.Errorf("actor update: %w", err)
					}
					// The first mini-batch is computed with the weights that sampled: its gap is the sampler's error.
					if epoch == 0 && b == 0 && s.oldFromSampler {
						metrics["rollout/logprob_gap_max"] = math.Max(metrics["rollout/logprob_gap_max"], stats.LogprobGapMax)
					}
					means.addIn(u.lane, "actor/pg_loss", stats.Components[torch.Task].Loss, 0)
					means.addIn(u.lane, "actor/entropy_loss", stats.Components[torch.Entropy].Value, 0)
					means.addIn(u.lane, "actor/kl_loss", stats.Components[torch.KL].Value, 0)
					means.addIn(u.lane, "actor/pg_clipfrac", stats.Components[torch.Task].Clipped, stats.Tokens)
					means.addIn(u.lane, "actor/pg_clipfrac_lower", stats.Components[torch.Task].ClippedLower, stats.Tokens)
					means.addIn(u.lane, "actor/ppo_kl", stats.LogRatio, stats.Tokens)
					done += begun(micro)
					bar.Set(done)
				}
				return nil
			}
			run := func(indices []int, into *torch.Gradients) error {
				return u.spread(u.actor.model, samples, indices, []*torch.Gradients{into}, func(indices []int) error { return pass(indices, into) })
			}
			measured := measure
			if epoch > 0 {
				measured = nil
			}
			if err := measured.backward(indices, u.actor.gradients, run); err != nil {
				return err
			}
			result, lr, err := u.actor.apply()
			if err != nil {
				return fmt.Errorf("actor update: %w", err)
			}
			// Losses are already normalised over the mini-batch: their sums count once per mini-batch.
			batches++
			if !result.Applied {
				clippedSteps++
				metrics["actor/skipped_steps"] = float64(clippedSteps)
				u.log.Warnf("the actor's gradient norm is %v: this optimizer step was skipped", result.GradNorm)
				continue
			}
			norms.add("actor/grad_norm", result.GradNorm, 1)
			metrics["actor/lr"] = lr
		}
	}
	if err := measure.into(metrics); err != nil {
		return fmt.Errorf("actor update: %w", err)
	}
	if means, err = means.ofAll(ctx, u.world); err != nil {
		return fmt.Errorf("actor update: %w", err)
	}
	if gap, ok := metrics["rollout/logprob_gap_max"]; ok || u.world != nil && s.oldFromSampler {
		if metrics["rollout/logprob_gap_max"], err = u.world.Max(ctx, gap); err != nil {
			return fmt.Errorf("actor update: %w", err)
		}
	}
	for _, name := range []string{"actor/pg_loss", "actor/entropy_loss", "actor/kl_loss"} {
		means.add(name, 0, batches)
	}
	means.into(metrics)
	norms.into(metrics)
	if loss.KL == torch.KLNone {
		delete(metrics, "actor/kl_loss")
	} else {
		metrics["actor/kl_coef"] = loss.KLCoef
	}
	metrics["actor/entropy"] = metrics["actor/entropy_loss"]
	if len(norms) == 0 {
		return &errDiverged{"no mini-batch of this step had a finite gradient"}
	}
	if v := metrics["actor/pg_loss"]; math.IsNaN(v) || math.IsInf(v, 0) {
		return &errDiverged{fmt.Sprintf("the policy loss is %v", v)}
	}
	return nil
}

// policyBackward is one forward and backward of the actor on the chosen samples. The analysis uses the same call with one buffer per component.
func (e *equipment) policyBackward(samples []*Sample, micro []stretch, weights map[int][]float32, loss torch.PolicyLoss,
	out []torch.Component) (torch.PolicyStats, error) {
	in := torch.PolicyInputs{
		OldLogprobs: gather(micro, func(i int) []float32 { return samples[i].Old }),
		Advantages:  gather(micro, func(i int) []float32 { return samples[i].Advantages }),
		Weights:     gather(micro, func(i int) []float32 { return weights[i] }),
	}
	if loss.KL != torch.KLNone {
		in.RefLogprobs = gather(micro, func(i int) []float32 { return samples[i].Reference })
	}
	return e.actor.model.PolicyBackward(pack(samples, micro), in, loss, out)
}

// policyLoss is the configured loss; its KL term is off when the KL penalty sits in the reward or its coefficient is zero.
func (e *equipment) policyLoss() torch.PolicyLoss {
	a, g := e.config.Actor, e.config.Algorithm
	loss := torch.PolicyLoss{
		Objective: torch.ObjectivePPO, Temperature: e.temperature(),
		ClipLow: a.ClipLow, ClipHigh: a.ClipHigh, ClipDual: a.ClipDual, EntropyCoef: g.EntropyCoef,
	}
	if g.KLCoef != 0 && g.KLIn == "loss" {
		name, straight := g.KLEstimator, false
		if name[len(name)-1] == '+' {
			name, straight = name[:len(name)-1], true
		}
		loss.KL = map[string]torch.KLEstimator{"k1": torch.KLK1, "abs": torch.KLAbs, "k2": torch.KLK2, "k3": torch.KLK3}[name]
		loss.KLStraightThrough, loss.KLCoef = straight, g.KLCoef
	}
	return loss
}

// criticSteps fits the value network to the returns; its loss is always a token mean, as in verl.
func (u update) criticSteps(ctx context.Context, samples []*Sample, metrics map[string]float64) error {
	c := u.config.Critic
	means, norms, batches := mean{}, mean{}, 0.0
	bar := u.console.Bar("critic update", c.Epochs*len(samples))
	defer bar.Close()
	done := 0
	for range c.Epochs {
		for _, indices := range miniBatches(len(samples), c.MiniBatch) {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			weights, err := lossWeights(samples, indices, "token-mean", 0)
			if err != nil {
				return err
			}
			if err := u.critic.gradients.Zero(); err != nil {
				return err
			}
			err = u.spread(u.critic.model, samples, indices, []*torch.Gradients{u.critic.gradients}, func(indices []int) error {
				passes, err := u.micro(ctx, samples, indices)
				if err != nil {
					return err
				}
				for _, micro := range passes {
					stats, err := u.critic.model.ValueBackward(pack(samples, micro), torch.ValueInputs{
						Returns:   gather(micro, func(i int) []float32 { return samples[i].Returns }),
						OldValues: gather(micro, func(i int) []float32 { return samples[i].Values }),
						Weights:   gather(micro, func(i int) []float32 { return weights[i] }), Clip: c.ClipValue,
					}, u.critic.gradients)
					if err != nil {
						return fmt.Errorf("critic update: %w", err)
					}
					means.addIn(u.lane, "critic/vf_loss", stats.Loss, 0)
					means.addIn(u.lane, "critic/vf_clipfrac", stats.Clipped, stats.Tokens)
					means.addIn(u.lane, "critic/vpred_mean", stats.ValueSum, stats.Tokens)
					done += begun(micro)
					bar.Set(done)
				}
				return nil
			})
			if err != nil {
				return err
			}
			result, lr, err := u.critic.apply()
			if err != nil {
				return fmt.Errorf("critic update: %w", err)
			}
			batches++
			if !result.Applied {
				metrics["critic/skipped_steps"]++
				u.log.Warnf("the critic's gradient norm is %v: this optimizer step was skipped", result.GradNorm)
				continue
			}
			norms.add("critic/grad_norm", result.GradNorm, 1)
			metrics["critic/lr"] = lr
		}
	}
	means, err := means.ofAll(ctx, u.world)
	if err != nil {
		return fmt.Errorf("critic update: %w", err)
	}
	means.add("critic/vf_loss", 0, batches)
	means.into(metrics)
	norms.into(metrics)
	return nil
}
