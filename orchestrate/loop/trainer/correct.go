package trainer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"

	"gyre/internal/statistics"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// ratioMetrics say how far the policy that drew the tokens is from the one that learns from them, before any bound.
type ratioMetrics struct {
	Mean float64 `metric:"ratio/mean" doc:"mean of proximal over behaviour policy over sampled tokens, at the level of importance.level: around 1. In runs with rollout.staleness that correct nothing: of the present over the behaviour policy, in the step's first mini-batch"`
	P99  float64 `metric:"ratio/p99" doc:"its 0.99 quantile"`
	ESS  float64 `metric:"ratio/ess" unit:"share" doc:"effective sample size (Σw)²/(n Σw²) of the tokens' weights: near 1; 0.1 means that a tenth of the tokens decides"`
}

// correctionMetrics say what a correction has done about it.
type correctionMetrics struct {
	ratioMetrics
	Bounded  float64 `metric:"ratio/bounded" unit:"share" doc:"of tokens whose weight importance.correction has changed"`
	Rejected float64 `metric:"ratio/rejected" unit:"share" doc:"of tokens that importance.reject has left out of the update"`
}

// correct weighs tokens for the policy that drew them, leaves out those that are too far away, and fills what the
// policy loss reads of the whole batch.
func (p *preparation) correct(ctx context.Context, s *Selection, line metrics.Line) (err error) {
	b, c := s.Batch, p.Config
	if c.Corrects() {
		line.Add(p.weigh(s))
		if m, ok := newMixedMetrics(s.Episodes, b.Old, s.step); ok {
			line.Add(m)
		}
	}
	if c.Actor.EntropyTop < 1 {
		what := train.What{Entropy: true, Temperature: experiment.Temperature(c)}
		if s.entropies, err = p.Actor.Score(ctx, b, what); err != nil {
			return fmt.Errorf("entropies for actor.entropy_top: %w", err)
		}
	}
	s.proximal = !p.given && !p.older || c.Corrects() || c.Actor.RecomputeLogprobs
	return p.fillMiniBatch(ctx, b, fill{entropies: s.entropies, proximal: s.proximal, step: s.step})
}

// weigh fills the importance weights of a batch and takes what is rejected out of its masks.
func (p *preparation) weigh(s *Selection) (m correctionMetrics) {
	b, o := s.Batch, p.Config.Importance.Options()
	free := o
	free.Correction = "none"
	var ratios []float64
	var sum, squares, tokens float64
	b.Importance = make([][]float32, b.Len())
	for i := range b.Sequences {
		mask := b.Sequences[i].Mask
		plain, weights := free.Weights(b.Old[i], b.Behaviour[i], mask), o.Weights(b.Old[i], b.Behaviour[i], mask)
		kept := o.Kept(b.Old[i], b.Behaviour[i], mask)
		for t, sampled := range mask {
			if !sampled {
				continue
			}
			tokens++
			ratios = append(ratios, plain[t])
			if weights[t] != plain[t] {
				m.Bounded++
			}
			if !kept[t] {
				m.Rejected++
				continue
			}
			sum, squares = sum+weights[t], squares+weights[t]*weights[t]
		}
		b.Importance[i], b.Sequences[i].Mask = convert[float32](weights), kept
	}
	m.Mean, m.P99 = statistics.Mean(ratios), statistics.Quantile(0.99, ratios)
	m.Bounded, m.Rejected = m.Bounded/max(tokens, 1), m.Rejected/max(tokens, 1)
	if squares > 0 {
		m.ESS = sum * sum / (tokens - m.Rejected*tokens) / squares
	}
	if !o.Weighs() && p.Config.Actor.Loss != "decoupled_ppo" {
		b.Importance = nil
	}
	return m
}

// drift compares a policy with the one that drew the tokens of a batch.
func drift(b *train.Batch) (m ratioMetrics) {
	var ratios []float64
	var sum, squares float64
	for i, s := range b.Sequences {
		for t, sampled := range s.Mask {
			if !sampled {
				continue
			}
			ratio := math.Exp(min(max(float64(b.Current[i][t])-float64(b.Behaviour[i][t]), -20), 20))
			ratios, sum, squares = append(ratios, ratio), sum+ratio, squares+ratio*ratio
		}
	}
	m.Mean, m.P99 = statistics.Mean(ratios), statistics.Quantile(0.99, ratios)
	m.ESS = sum * sum / (float64(len(ratios)) * squares)
	return m
}

// fill is what the policy loss reads of one mini-batch as a whole.
type fill struct {
	entropies          [][]float32 // where actor.entropy_top asks for them
	proximal           bool        // the policy is still the one of the old log-probs
	step, epoch, index int
}

// fillMiniBatch fills what the policy loss reads of a whole mini-batch.
func (p *preparation) fillMiniBatch(ctx context.Context, mini *train.Batch, f fill) (err error) {
	c := p.Config
	if c.Actor.EntropyTop < 1 {
		mini.KeepEntropyTop(c.Actor.EntropyTop, f.entropies)
	}
	task := experiment.Objective(c).Task
	if task.Info().OverBatch == torch.OverBatchNone {
		return nil
	}
	current := mini.Old
	if !f.proximal {
		if current, err = p.Actor.Score(ctx, mini, train.What{Temperature: experiment.Temperature(c)}); err != nil {
			return fmt.Errorf("log-probs of a mini-batch for actor.loss: %w", err)
		}
	}
	key := sha256.Sum256(fmt.Appendf(nil, "actor.loss/%d/%d/%d/%d", c.Run.Seed, f.step, f.epoch, f.index))
	mini.FillOverBatch(task, current, rand.New(rand.NewChaCha8(key)))
	return nil
}
