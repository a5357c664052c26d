package trainer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"

	"gyre/internal/masks"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/importance"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// preparation is the phase between rollout and update: it filters a batch and fills its columns. It remembers nothing
// of a batch.
type preparation struct {
	*session.Session
	clock   *session.Clock        // nil: its times are not taken
	penalty *advantage.Controller // of the divergence in the rewards; nil: it is not in them
}

// Prepared is a selection whose columns are filled: what observers look at and the update learns from.
type Prepared struct {
	Selection
	objective train.Objective   // the loss of its update
	from      source.Provenance // where its tokens come from
	step      int               // that it is of; 0: none, it is there for an analysis
	sampled   bool              // the old log-probs are the sampler's, unchecked
	onPolicy  bool              // the old log-probs are those of the policy before the update
	gap       *float64          // the most that the sampler's log-probs are away from the trainer's; nil: not measured
	// from the reference, where that is part of the rewards
	divergence float64
	energies   [][]float64 // see Trajectory.Energies, where the estimator reads them
}

// prepare fills all columns of a selection.
func (p *preparation) prepare(ctx context.Context, chosen Selection, from source.Provenance, step int,
	line metrics.Line) (s Prepared, err error) {
	s = Prepared{Selection: chosen, objective: train.Objective{PolicyLoss: experiment.Loss(p.Config)}, from: from, step: step}
	line.Add(from.Staleness(s.Episodes, step))
	if err := p.score(ctx, &s, line); err != nil {
		return s, err
	}
	p.advantages(&s, line)
	return s, p.correct(ctx, &s, line)
}

// score fills the columns that models compute: old and reference log-probs, and values.
func (p *preparation) score(ctx context.Context, s *Prepared, line metrics.Line) (err error) {
	if err := p.oldLogprobs(ctx, s, line); err != nil {
		return err
	}
	b := s.Batch
	if p.Teacher != nil {
		end := p.clock.Phase("ref")
		b.Reference, err = p.Actor.ComputeBy(ctx, b, p.Teacher.Logprobs)
		end(&err)
	} else if k := p.Config.Algorithm.KLTopK; p.Reference != nil && k > 0 {
		end := p.clock.Phase("ref")
		b.Reference, b.Support, err = p.Reference.Likeliest(ctx, b, experiment.Temperature(p.Config), k)
		end(&err)
	} else if p.Reference != nil {
		b.Reference, err = p.column(ctx, "ref", "reference log-probs", p.Reference, b)
	}
	if err != nil {
		return err
	}
	if b.Reference != nil {
		line.Add(scoreMetrics{Reference: new(b.SampledMean(b.Reference))})
	}
	if b.Support != nil {
		line.Add(scoreMetrics{Mass: new(b.SupportMass())})
	}
	if ctx.Err() == nil && p.Config.Algorithm.UsesEnergies() {
		if s.energies, err = p.energies(ctx, s); err != nil {
			return err
		}
	}
	if ctx.Err() == nil && p.Critic != nil {
		b.Values, err = p.column(ctx, "values", "values", p.Critic, b)
		return err
	}
	return context.Cause(ctx)
}

// column has a model compute a column; phase is what its time is logged as.
func (p *preparation) column(ctx context.Context, phase, name string, model *train.Learner,
	b *train.Batch) (column [][]float32, err error) {
	defer p.clock.Phase(phase)(&err)
	if column, err = model.Compute(ctx, b, train.What{Temperature: experiment.Temperature(p.Config)}); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return column, nil
}

// oldLogprobs takes the log-probs that episodes carry where they serve as old ones, and computes the others.
func (p *preparation) oldLogprobs(ctx context.Context, s *Prepared, line metrics.Line) error {
	serves := !p.Config.Actor.RecomputeLogprobs && s.from.Serves(p.Config.Corrects())
	var others []int
	s.Batch.Old, s.Batch.Behaviour = make([][]float32, s.Batch.Len()), make([][]float32, s.Batch.Len())
	for i, e := range s.Episodes {
		s.Batch.Behaviour[i] = e.Logprob
		if serves && e.Logprob != nil {
			s.Batch.Old[i] = e.Logprob
		} else {
			others = append(others, i)
		}
	}
	present := s.from.Weights == source.Present
	s.sampled, s.onPolicy = present && len(others) == 0, present || len(others) == s.Batch.Len()
	if len(others) == 0 {
		return nil
	}
	computed, err := p.column(ctx, "old_log_prob", "old log-probs", p.Actor, s.Batch.Take(others))
	if err != nil {
		return err
	}
	for k, i := range others {
		s.Batch.Old[i] = computed[k]
		if s.Batch.Behaviour[i] == nil {
			s.Batch.Behaviour[i] = computed[k]
		}
	}
	if present { // the distance of other policies' log-probs says nothing about the sampler
		s.gap = widest(s.Episodes, others, s.Batch.Old)
		line.Add(scoreMetrics{Gap: s.gap})
	}
	return nil
}

// presentLogprobs are the log-probs of the present policy: the old ones where these are its own.
func presentLogprobs(ctx context.Context, e *session.Session, b *train.Batch, onPolicy bool) ([][]float32, error) {
	if onPolicy {
		return b.Old, nil
	}
	return e.Actor.Compute(ctx, b, train.What{Temperature: experiment.Temperature(e.Config)})
}

// widest is the largest distance of the sampler's log-probs from those of a column; nil where the sampler has given
// none.
func widest(episodes []*episode.Episode, rows []int, column [][]float32) *float64 {
	gap, known := 0.0, false
	for _, i := range rows {
		if episodes[i].Logprob == nil {
			continue
		}
		for t := range masks.Tokens(episodes[i].Mask) {
			gap, known = math.Max(gap, math.Abs(float64(column[i][t])-float64(episodes[i].Logprob[t]))), true
		}
	}
	if !known {
		return nil
	}
	return &gap
}

// correct weighs tokens for the policy that drew them, leaves out those that are too far away, and fills what the
// policy loss reads of the whole batch.
func (p *preparation) correct(ctx context.Context, s *Prepared, line metrics.Line) (err error) {
	b, c := s.Batch, p.Config
	if c.Corrects() {
		line.Add(p.weigh(b), source.Mixed(s.Episodes, b.Old, s.step))
	}
	if c.Actor.EntropyTop < 1 {
		what := train.What{Entropy: true, Temperature: experiment.Temperature(c)}
		if s.entropies, err = p.Actor.Compute(ctx, b, what); err != nil {
			return fmt.Errorf("entropies for actor.entropy_top: %w", err)
		}
	}
	return p.fillMiniBatch(ctx, b, fill{entropies: s.entropies, onPolicy: s.onPolicy, step: s.step})
}

// weigh fills the importance weights of a batch and takes what is rejected out of its masks.
func (p *preparation) weigh(b *train.Batch) importance.Correction {
	o := importance.Options(p.Config.Importance)
	c := o.Correct(b.Old, b.Behaviour, b.Masks())
	for i, kept := range c.Kept {
		b.Sequences[i].Mask = kept
	}
	if p.Config.Importance.Weighs() || p.Config.Actor.Loss == "decoupled_ppo" {
		b.Importance = make([][]float32, b.Len())
		for i, weights := range c.Weights {
			b.Importance[i] = convert[float32](weights)
		}
	}
	return c
}

// fill is what the policy loss reads of one mini-batch as a whole.
type fill struct {
	entropies          [][]float32 // where actor.entropy_top asks for them
	onPolicy           bool        // the policy is still the one of the old log-probs
	step, epoch, index int
}

// fillMiniBatch fills what the policy loss reads of a whole mini-batch.
func (p *preparation) fillMiniBatch(ctx context.Context, mini *train.Batch, f fill) error {
	c := p.Config
	if c.Actor.EntropyTop < 1 {
		mini.KeepEntropyTop(c.Actor.EntropyTop, f.entropies)
	}
	task := experiment.Loss(c).Task
	if task.Info().OverBatch == torch.OverBatchNone {
		return nil
	}
	current, err := presentLogprobs(ctx, p.Session, mini, f.onPolicy)
	if err != nil {
		return fmt.Errorf("log-probs of a mini-batch for actor.loss: %w", err)
	}
	key := sha256.Sum256(fmt.Appendf(nil, "actor.loss/%d/%d/%d/%d", c.Run.Seed, f.step, f.epoch, f.index))
	mini.FillOverBatch(task, current, rand.New(rand.NewChaCha8(key)))
	return nil
}
