package trainer

import (
	"context"
	"fmt"
	"math"

	"gyre/orchestrate/advantage"
	"gyre/orchestrate/schedule"
	"gyre/torch"
)

// learner is a model with what it takes to change it.
type learner struct {
	model     *torch.Model
	optimizer *torch.Optimizer
	gradients *torch.Gradients
	clipGrad  float64
	lr        schedule.Schedule
}

func newLearner(model *torch.Model, adamw torch.AdamW, clipGrad float64, lr schedule.Schedule) (*learner, error) {
	optimizer, err := torch.NewOptimizer(model, adamw)
	if err != nil {
		return nil, fmt.Errorf("creating the optimizer: %w", err)
	}
	gradients, err := torch.NewGradients(model)
	if err != nil {
		optimizer.Close()
		return nil, fmt.Errorf("creating the gradient buffer: %w", err)
	}
	return &learner{model: model, optimizer: optimizer, gradients: gradients, clipGrad: clipGrad, lr: lr}, nil
}

func (l *learner) Close() {
	if l == nil {
		return
	}
	l.gradients.Close()
	l.optimizer.Close()
	l.model.Close()
}

// apply takes one optimizer step with the accumulated gradients. A gradient norm that is not finite leaves the weights as they are.
func (l *learner) apply() (torch.StepResult, float64, error) {
	lr := l.lr.At(int(l.optimizer.Steps()))
	result, err := l.optimizer.Step(l.gradients, lr, l.clipGrad)
	return result, lr, err
}

// mean collects sums and weights per metric name and reports their ratios.
type mean map[string][2]float64

func (m mean) add(name string, sum, weight float64) {
	v := m[name]
	m[name] = [2]float64{v[0] + sum, v[1] + weight}
}

func (m mean) into(metrics map[string]float64) {
	for name, v := range m {
		if v[1] > 0 {
			metrics[name] = v[0] / v[1]
		}
	}
}

// miniBatches cuts 0…n-1 into consecutive runs of size; the last may be shorter.
func miniBatches(n, size int) [][]int {
	var out [][]int
	indices := all(n)
	for len(indices) > 0 {
		k := min(size, len(indices))
		out = append(out, indices[:k])
		indices = indices[k:]
	}
	return out
}

// lossWeights gives every token of the chosen samples its weight under the aggregation mode, normalised over all of them, keyed by
// sample index. The width of seq-mean-token-sum-norm is that of the whole batch as verl lays it out: its longest episode less the first
// token, which is never predicted.
func lossWeights(samples []*Sample, indices []int, mode string) (map[int][]float32, error) {
	width := 0
	for _, s := range samples {
		width = max(width, len(s.IDs)-1)
	}
	masks := make([][]bool, len(indices))
	for j, i := range indices {
		masks[j] = samples[i].Mask
	}
	weights, err := advantage.LossWeights(mode, masks, width)
	if err != nil {
		return nil, err
	}
	out := make(map[int][]float32, len(indices))
	for j, i := range indices {
		out[i] = weights[j]
	}
	return out, nil
}

// errDiverged marks a run whose losses or gradients stopped being finite.
type errDiverged struct{ what string }

func (e *errDiverged) Error() string { return "training diverged: " + e.what }

// Diverged tells the command line to exit with code 3.
func (e *errDiverged) Diverged() bool { return true }

// updateActor runs the PPO epochs over the samples: one optimizer step per mini-batch, gradients accumulated over micro-batches.
func (t *Trainer) updateActor(ctx context.Context, samples []*Sample, metrics map[string]float64) error {
	c := t.config.Actor
	loss := t.policyLoss()
	means := mean{}
	clippedSteps := 0
	measure, err := t.newShares(samples, len(miniBatches(len(samples), c.MiniBatch)))
	if err != nil {
		return fmt.Errorf("actor update: %w", err)
	}
	defer measure.close()
	for epoch := range c.Epochs {
		for b, indices := range miniBatches(len(samples), c.MiniBatch) {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			weights, err := lossWeights(samples, indices, c.LossAggregation)
			if err != nil {
				return err
			}
			if err := t.actor.gradients.Zero(); err != nil {
				return err
			}
			run := func(indices []int, into *torch.Gradients) error {
				for _, micro := range microBatches(samples, indices, c.MicroBatchTokens) {
					stats, err := t.policyBackward(samples, micro, weights, loss, torch.Terms(into, into, into))
					if err != nil {
						return fmt.Errorf("actor update: %w", err)
					}
					// The first mini-batch is computed with the weights that sampled: its gap is the sampler's error.
					if epoch == 0 && b == 0 && t.oldFromSampler {
						metrics["rollout/logprob_gap_max"] = math.Max(metrics["rollout/logprob_gap_max"], stats.LogprobGapMax)
					}
					means.add("actor/pg_loss", stats.Components[torch.Task].Loss, 0)
					means.add("actor/entropy_loss", stats.Components[torch.Entropy].Value, 0)
					means.add("actor/kl_loss", stats.Components[torch.KL].Value, 0)
					means.add("actor/pg_clipfrac", stats.Components[torch.Task].Clipped, stats.Tokens)
					means.add("actor/pg_clipfrac_lower", stats.Components[torch.Task].ClippedLower, stats.Tokens)
					means.add("actor/ppo_kl", stats.LogRatio, stats.Tokens)
				}
				return nil
			}
			measured := measure
			if epoch > 0 {
				measured = nil
			}
			if err := measured.backward(indices, t.actor.gradients, run); err != nil {
				return err
			}
			// Losses are already normalised over the mini-batch: their sums count once per mini-batch.
			for _, name := range []string{"actor/pg_loss", "actor/entropy_loss", "actor/kl_loss"} {
				means.add(name, 0, 1)
			}
			result, lr, err := t.actor.apply()
			if err != nil {
				return fmt.Errorf("actor update: %w", err)
			}
			if !result.Applied {
				clippedSteps++
				metrics["actor/skipped_steps"] = float64(clippedSteps)
				t.log.Warnf("the actor's gradient norm is %v: this optimizer step was skipped", result.GradNorm)
				continue
			}
			means.add("actor/grad_norm", result.GradNorm, 1)
			metrics["actor/lr"] = lr
		}
	}
	if err := measure.into(metrics); err != nil {
		return fmt.Errorf("actor update: %w", err)
	}
	means.into(metrics)
	if loss.KL == torch.KLNone {
		delete(metrics, "actor/kl_loss")
	} else {
		metrics["actor/kl_coef"] = loss.KLCoef
	}
	metrics["actor/entropy"] = metrics["actor/entropy_loss"]
	if _, ok := means["actor/grad_norm"]; !ok {
		return &errDiverged{"no mini-batch of this step had a finite gradient"}
	}
	if v := metrics["actor/pg_loss"]; math.IsNaN(v) || math.IsInf(v, 0) {
		return &errDiverged{fmt.Sprintf("the policy loss is %v", v)}
	}
	return nil
}

// policyBackward is one forward and backward of the actor on the chosen samples. The analysis uses the same call with one buffer per component.
func (t *Trainer) policyBackward(samples []*Sample, micro []int, weights map[int][]float32, loss torch.PolicyLoss,
	out []torch.Component) (torch.PolicyStats, error) {
	var w []float32
	for _, i := range micro {
		w = append(w, weights[i]...)
	}
	in := torch.PolicyInputs{
		OldLogprobs: gather(samples, micro, func(s *Sample) []float32 { return s.Old }),
		Advantages:  gather(samples, micro, func(s *Sample) []float32 { return s.Advantages }),
		Weights:     w,
	}
	if loss.KL != torch.KLNone {
		in.RefLogprobs = gather(samples, micro, func(s *Sample) []float32 { return s.Reference })
	}
	return t.actor.model.PolicyBackward(pack(samples, micro), in, loss, out)
}

// policyLoss is the configured loss; its KL term is off when the KL penalty sits in the reward or its coefficient is zero.
func (t *Trainer) policyLoss() torch.PolicyLoss {
	a, g := t.config.Actor, t.config.Algorithm
	loss := torch.PolicyLoss{
		Objective: torch.ObjectivePPO, Temperature: t.temperature(),
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

// temperature of the trained policy's log-probs: the rollout's, or 1 when rollouts are greedy.
func (t *Trainer) temperature() float64 {
	if t.config.Rollout.Temperature <= 0 {
		return 1
	}
	return t.config.Rollout.Temperature
}

// updateCritic fits the value network to the returns; its loss is always a token mean, as in verl.
func (t *Trainer) updateCritic(ctx context.Context, samples []*Sample, metrics map[string]float64) error {
	c := t.config.Critic
	means := mean{}
	for range c.Epochs {
		for _, indices := range miniBatches(len(samples), c.MiniBatch) {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			weights, err := lossWeights(samples, indices, "token-mean")
			if err != nil {
				return err
			}
			if err := t.critic.gradients.Zero(); err != nil {
				return err
			}
			for _, micro := range microBatches(samples, indices, t.config.Actor.MicroBatchTokens) {
				var w []float32
				for _, i := range micro {
					w = append(w, weights[i]...)
				}
				stats, err := t.critic.model.ValueBackward(pack(samples, micro), torch.ValueInputs{
					Returns:   gather(samples, micro, func(s *Sample) []float32 { return s.Returns }),
					OldValues: gather(samples, micro, func(s *Sample) []float32 { return s.Values }),
					Weights:   w, Clip: c.ClipValue,
				}, t.critic.gradients)
				if err != nil {
					return fmt.Errorf("critic update: %w", err)
				}
				means.add("critic/vf_loss", stats.Loss, 0)
				means.add("critic/vf_clipfrac", stats.Clipped, stats.Tokens)
				means.add("critic/vpred_mean", stats.ValueSum, stats.Tokens)
			}
			means.add("critic/vf_loss", 0, 1)
			result, lr, err := t.critic.apply()
			if err != nil {
				return fmt.Errorf("critic update: %w", err)
			}
			if !result.Applied {
				t.log.Warnf("the critic's gradient norm is %v: this optimizer step was skipped", result.GradNorm)
				continue
			}
			means.add("critic/grad_norm", result.GradNorm, 1)
			metrics["critic/lr"] = lr
		}
	}
	means.into(metrics)
	return nil
}
