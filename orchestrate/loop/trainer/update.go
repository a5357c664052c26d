package trainer

import (
	"context"
	"fmt"

	"gyre/internal/statistics"
	"gyre/orchestrate/loop/importance"
	"gyre/orchestrate/loop/schedule"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/loop/train"
	"gyre/torch"
)

// update is the phase in which critic and actor learn from a prepared batch.
type update struct {
	*session.Session
	clock                 *session.Clock
	preparation           *preparation
	actorRate, criticRate schedule.Schedule
}

// fitting is how a policy or value network is fitted to a batch: one optimizer step per mini-batch.
type fitting struct {
	who               string // actor or critic, for people
	policy            train.Policy
	rate              float64 // of learning, that of the training step
	epochs, miniBatch int
	aggregation       string // of tokens in the loss
	width             int    // see train.Batch.Weigh
	objective         train.Objective
	dropout           func() torch.Dropout // of the next optimizer step
	columns           []train.Column
	// fill, if not nil, fills what the loss reads of a whole mini-batch of rows of the batch.
	fill func(ctx context.Context, mini *train.Batch, rows []int, at fill) error
	// first, if not nil, is shown the first mini-batch with the log-probs that the update found.
	first func(mini *train.Batch, rows []int)
}

// fit runs the epochs and sums up what the mini-batches found.
func (u *update) fit(ctx context.Context, f fitting, b *train.Batch) (sum train.Losses, m fitMetrics, err error) {
	bar, done := u.Console.Bar(f.who+" update", f.epochs*b.Len()), 0
	defer bar.Close()
	norm := 0.0
	for epoch := range f.epochs {
		for index, rows := range train.MiniBatches(b.Len(), f.miniBatch) {
			mini := b.Take(rows)
			if f.fill != nil {
				if err := f.fill(ctx, mini, rows, fill{epoch: epoch, index: index,
					onPolicy: m.applied == 0}); err != nil {
					return sum, m, fmt.Errorf("%s update: %w", f.who, err)
				}
			}
			if mini.Sampled() == 0 { // all of them were rejected
				continue
			}
			mini.Progress = func(sequences int) { done += sequences; bar.Set(done) }
			mini.Weigh(f.aggregation, f.width)
			if f.first != nil && m.batches == 0 {
				mini.Current = make([][]float32, mini.Len())
			}
			f.objective.Dropout = f.dropout()
			losses, err := f.policy.Backward(ctx, mini, f.objective, f.columns)
			if err != nil {
				return sum, m, fmt.Errorf("%s update: %w", f.who, err)
			}
			if m.batches == 0 {
				m.gap = losses.LogprobGapMax
				if f.first != nil {
					f.first(mini, rows)
				}
			}
			sum.Add(losses)
			end := u.clock.Phase("optimizer")
			result, err := f.policy.Step(f.rate)
			end(&err)
			if err != nil {
				return sum, m, fmt.Errorf("%s update: %w", f.who, err)
			}
			m.batches++
			if !result.Applied {
				m.Skipped++
				u.Log.Warnf("the %s's gradient norm is %v: this optimizer step was skipped", f.who, result.GradNorm)
				continue
			}
			m.applied++
			norm += result.GradNorm
			m.Rate = &f.rate
		}
	}
	if m.applied > 0 {
		norm /= float64(m.applied)
		m.GradNorm = &norm
	}
	return sum, m, nil
}

// actor fits the policy to the batch.
func (u *update) actor(ctx context.Context, s *Step) (err error) {
	defer u.clock.Phase("update_actor")(&err)
	c, policy := u.Config.Actor, u.Session.Actor
	f := fitting{who: "actor", policy: policy, rate: u.actorRate.At(s.Number - 1), epochs: c.Epochs,
		miniBatch: c.MiniBatch, aggregation: c.LossAggregation, width: s.Chosen.width,
		objective: s.Chosen.objective,
		dropout:   policy.Dropout,
		columns:   train.Terms(policy.Gradients(), policy.Model.Config.Shape.Experts > 0)}
	f.fill = func(ctx context.Context, mini *train.Batch, rows []int, at fill) error {
		at.step, at.entropies = s.Number, train.Rows(s.Chosen.entropies, rows)
		at.onPolicy = at.onPolicy && s.Chosen.onPolicy
		return u.preparation.fillMiniBatch(ctx, mini, at)
	}
	if s.Weights == source.Older && !u.Config.Corrects() {
		f.first = func(mini *train.Batch, rows []int) {
			s.Line.Add(importance.Drift(mini.Current, mini.Behaviour, mini.Masks()), source.Mixed(train.Rows(s.Chosen.Episodes, rows), mini.Current, s.Number))
		}
	}
	sum, fit, err := u.fit(ctx, f, s.Chosen.Batch)
	if err != nil {
		return err
	}
	if fit.batches == 0 {
		u.Log.Warnf("step %d: importance.reject has left no token: the policy stays as it is", s.Number)
		return nil
	}
	if s.Chosen.sampled && f.dropout().Probability == 0 { // the gap is the sampler's error
		s.Chosen.gap = &fit.gap
	}
	m := newActorMetrics(f.objective, fit, sum)
	s.Line.Add(m, scoreMetrics{Gap: s.Chosen.gap})
	if fit.applied == 0 {
		return &session.Divergence{What: "no mini-batch of this step had a finite gradient"}
	}
	if v := m.PolicyLoss; !statistics.Finite(v) {
		return &session.Divergence{What: fmt.Sprintf("the policy loss is %v", v)}
	}
	return nil
}

// critic fits the value network to the returns; its loss is always a token mean, as in verl.
func (u *update) critic(ctx context.Context, s *Step) (err error) {
	defer u.clock.Phase("update_critic")(&err)
	c, own := u.Config.Critic, u.Session.Critic
	f := fitting{who: "critic", policy: own, rate: u.criticRate.At(s.Number - 1), epochs: c.Epochs,
		miniBatch: c.MiniBatch, aggregation: "token-mean", objective: train.Objective{ClipValue: c.ClipValue},
		dropout: own.Dropout, columns: []train.Column{{Name: "value", Into: own.Gradients()}}}
	sum, fit, err := u.fit(ctx, f, s.Chosen.Batch)
	s.Line.Add(newCriticMetrics(fit, sum))
	return err
}
