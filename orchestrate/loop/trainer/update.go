package trainer

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"gyre/orchestrate/loop/ranks"
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

// fitting is how a learner is fitted to a batch: one optimizer step per mini-batch, gradients accumulated over micro-batches.
type fitting struct {
	*learner
	who               string // actor or critic, which its metrics are named after
	epochs, miniBatch int
	aggregation       string // of tokens in the loss
	width             int    // see lossWeights
	measure           *shares
}

// fit runs the epochs. pass computes a micro-batch with the weights of its tokens in the loss and adds its gradient to into; sampled says that the
// model's weights are still those that the batch was sampled with. It returns how many mini-batches there were and how many of them changed the model.
func (u update) fit(ctx context.Context, f fitting, samples []*Sample, metrics map[string]float64,
	pass func(micro []stretch, weights map[int][]float32, into *torch.Gradients, sampled bool) error) (batches, applied int, err error) {
	norms, done := mean{}, 0
	bar := u.console.Bar(f.who+" update", f.epochs*len(samples))
	defer bar.Close()
	for epoch := range f.epochs {
		for b, indices := range miniBatches(len(samples), f.miniBatch) {
			if ctx.Err() != nil {
				return 0, 0, context.Cause(ctx)
			}
			weights, err := lossWeights(samples, indices, f.aggregation, f.width)
			if err != nil {
				return 0, 0, err
			}
			if err := f.gradients.Zero(); err != nil {
				return 0, 0, err
			}
			backward := func(indices []int, into *torch.Gradients) error {
				return u.eachPass(ctx, f.model, samples, indices, []*torch.Gradients{into}, func(micro []stretch) error {
					if err := pass(micro, weights, into, epoch == 0 && b == 0); err != nil {
						return err
					}
					done += begun(micro)
					bar.Set(done)
					return nil
				})
			}
			measure := f.measure
			if epoch > 0 {
				measure = nil
			}
			if err := measure.backward(indices, f.gradients, backward); err != nil {
				return 0, 0, err
			}
			result, lr, err := f.apply()
			if err != nil {
				return 0, 0, err
			}
			batches++
			if !result.Applied {
				metrics[f.who+"/skipped_steps"]++
				u.log.Warnf("the %s's gradient norm is %v: this optimizer step was skipped", f.who, result.GradNorm)
				continue
			}
			applied++
			norms.add(f.who+"/grad_norm", result.GradNorm, 1)
			metrics[f.who+"/lr"] = lr
		}
	}
	norms.into(metrics)
	return batches, applied, nil
}

// actorSteps fits the policy to the batch by PPO.
func (u update) actorSteps(ctx context.Context, s selection, metrics map[string]float64) error {
	samples, c, loss, means := s.samples, u.config.Actor, u.policyLoss(), mean{}
	measure, err := u.newShares(samples, len(miniBatches(len(samples), c.MiniBatch)))
	if err != nil {
		return err
	}
	defer measure.close()
	how := fitting{learner: u.actor, who: "actor", epochs: c.Epochs, miniBatch: c.MiniBatch, aggregation: c.LossAggregation, width: s.width, measure: measure}
	batches, applied, err := u.fit(ctx, how, samples, metrics, func(micro []stretch, weights map[int][]float32, into *torch.Gradients, sampled bool) error {
		stats, err := u.policyBackward(samples, micro, weights, loss, torch.Terms(into, into, into))
		if err != nil {
			return err
		}
		if sampled && s.oldFromSampler { // the gap is the sampler's error
			metrics["rollout/logprob_gap_max"] = math.Max(metrics["rollout/logprob_gap_max"], stats.LogprobGapMax)
		}
		means.addIn(u.lane, "actor/pg_loss", stats.Terms[torch.Task].Loss, 0)
		means.addIn(u.lane, "actor/entropy_loss", stats.Terms[torch.Entropy].Value, 0)
		means.addIn(u.lane, "actor/kl_loss", stats.Terms[torch.KL].Value, 0)
		means.addIn(u.lane, "actor/pg_clipfrac", stats.Terms[torch.Task].Clipped, stats.Tokens)
		means.addIn(u.lane, "actor/pg_clipfrac_lower", stats.Terms[torch.Task].ClippedLower, stats.Tokens)
		means.addIn(u.lane, "actor/ppo_kl", stats.LogRatio, stats.Tokens)
		return nil
	})
	if err != nil {
		return err
	}
	if err := measure.into(metrics); err != nil {
		return err
	}
	if gap, ok := metrics["rollout/logprob_gap_max"]; ok || u.world != nil && s.oldFromSampler {
		if metrics["rollout/logprob_gap_max"], err = u.world.Max(ctx, gap); err != nil {
			return err
		}
	}
	if err := u.average(ctx, means, batches, metrics, "actor/pg_loss", "actor/entropy_loss", "actor/kl_loss"); err != nil {
		return err
	}
	if loss.KL == torch.KLNone {
		delete(metrics, "actor/kl_loss")
	} else {
		metrics["actor/kl_coef"] = loss.KLCoef
	}
	metrics["actor/entropy"] = metrics["actor/entropy_loss"]
	if applied == 0 {
		return &errDiverged{"no mini-batch of this step had a finite gradient"}
	}
	if v := metrics["actor/pg_loss"]; math.IsNaN(v) || math.IsInf(v, 0) {
		return &errDiverged{fmt.Sprintf("the policy loss is %v", v)}
	}
	return nil
}

// average writes what the passes of all ranks found. Losses are normalised over a mini-batch already: their sums count once per mini-batch.
func (u update) average(ctx context.Context, means mean, batches int, metrics map[string]float64, losses ...string) error {
	means, err := means.ofAll(ctx, u.world)
	for _, name := range losses {
		means.add(name, 0, float64(batches))
	}
	means.into(metrics)
	return err
}

// policyBackward is one forward and backward of the actor on the chosen samples. The analysis uses the same call with one buffer per component.
func (e *equipment) policyBackward(samples []*Sample, micro []stretch, weights map[int][]float32, loss torch.PolicyLoss,
	out []torch.Term) (torch.PolicyStats, error) {
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
	c, means := u.config.Critic, mean{}
	how := fitting{learner: u.critic, who: "critic", epochs: c.Epochs, miniBatch: c.MiniBatch, aggregation: "token-mean"}
	batches, _, err := u.fit(ctx, how, samples, metrics, func(micro []stretch, weights map[int][]float32, into *torch.Gradients, _ bool) error {
		stats, err := u.critic.model.ValueBackward(pack(samples, micro), torch.ValueInputs{
			Returns:   gather(micro, func(i int) []float32 { return samples[i].Returns }),
			OldValues: gather(micro, func(i int) []float32 { return samples[i].Values }),
			Weights:   gather(micro, func(i int) []float32 { return weights[i] }), Clip: c.ClipValue,
		}, into)
		if err != nil {
			return err
		}
		means.addIn(u.lane, "critic/vf_loss", stats.Loss, 0)
		means.addIn(u.lane, "critic/vf_clipfrac", stats.Clipped, stats.Tokens)
		means.addIn(u.lane, "critic/vpred_mean", stats.ValueSum, stats.Tokens)
		return nil
	})
	if err != nil {
		return err
	}
	return u.average(ctx, means, batches, metrics, "critic/vf_loss")
}
