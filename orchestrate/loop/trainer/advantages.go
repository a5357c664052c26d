package trainer

import (
	"context"
	"fmt"
	"math"
	"time"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/importance"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
)

// advantages computes token rewards, the KL penalty in them, advantages and returns.
func (p *preparation) advantages(s *Prepared, line metrics.Line) {
	begin := time.Now()
	defer func() { p.clock.Add("adv", time.Since(begin)) }()
	a, b, trajectories := p.Config.Algorithm, s.Batch, trajectories(s, p.Config)
	if a.KLIn == "reward" {
		rewards := make([][]float64, b.Len())
		for i, e := range trajectories {
			rewards[i] = e.Rewards
		}
		p.penalize(s, rewards, line)
	}
	how := advantage.From(a)
	for _, part := range p.Config.Rewards {
		how.PartWeights = append(how.PartWeights, part.Weight)
	}
	estimate := advantage.Compute(trajectories, how, s.scale)
	line.Add(estimate.Reweighting)
	if a.KLIn == "advantage" {
		p.penalize(s, estimate.Advantages, line)
	}
	b.Advantages, b.Returns = make([][]float32, b.Len()), make([][]float32, b.Len())
	for i := range trajectories {
		b.Advantages[i], b.Returns[i] = convert[float32](estimate.Advantages[i]), convert[float32](estimate.Returns[i])
	}
	line.Add(newDataMetrics(s, trajectories))
}

// penalize subtracts the divergence from the reference from rewards or advantages.
func (p *preparation) penalize(s *Prepared, rows [][]float64, line metrics.Line) {
	if p.penalty == nil || p.penalty.Coef == 0 {
		return
	}
	masks, divergences := make([][]bool, len(rows)), make([][]float64, len(rows))
	for i, e := range s.Episodes {
		masks[i] = e.Mask
		divergences[i] = advantage.KL(p.Config.Algorithm.KLEstimator, s.Batch.Old[i], s.Batch.Reference[i], e.Mask)
	}
	s.divergence = advantage.Penalize(rows, masks, divergences, p.penalty.Coef)
	line.Add(scoreMetrics{Coef: &p.penalty.Coef, Divergence: &s.divergence})
}

// trajectories are the episodes of a batch as estimators read them.
func trajectories(s *Prepared, c *config.Config) []advantage.Trajectory {
	out := make([]advantage.Trajectory, len(s.Episodes))
	for i, e := range s.Episodes {
		out[i] = advantage.Trajectory{Group: e.Group, Mask: e.Mask, Rewards: e.TokenRewards(creditsTurns(c))}
		out[i].TurnEnds, out[i].States = e.TurnEnds()
		for _, part := range c.Rewards {
			out[i].Parts = append(out[i].Parts, episode.Sum(e.Components[part.Name]))
		}
		if s.energies != nil {
			out[i].Energies = s.energies[i]
		}
		if s.Batch.Values != nil {
			out[i].Values = convert[float64](s.Batch.Values[i])
		}
	}
	return out
}

// creditsTurns reports whether rewards are credited turn by turn. Estimators that compare whole episodes take the
// score: the rewards' sum after normalisation.
func creditsTurns(c *config.Config) bool {
	return c.Rollout.TurnRewards && !c.Algorithm.ComparesEpisodes()
}

// energies are the squared norms of the score functions, times the squared importance weights where there are any:
// 1 − 2π + Σπ² of each token's distribution. Σπ² follows from two log-probs of the token, since the sum of the squared
// probabilities is the denominator of the softmax at half the temperature over the square of the one at the whole.
func (p *preparation) energies(ctx context.Context, s *Prepared) (out [][]float64, err error) {
	defer p.clock.Phase("energies")(&err)
	b := s.Batch
	var whole [][]float32
	temperature, o := experiment.Temperature(p.Config), importance.Options(p.Config.Importance)
	half, err := p.Actor.Compute(ctx, b, train.What{Temperature: temperature / 2})
	if err == nil { // the old log-probs may be those of another policy, whose distributions nobody knows
		whole, err = presentLogprobs(ctx, p.Session, b, s.onPolicy)
	}
	if err != nil {
		return nil, fmt.Errorf("distributions for %s: %w", p.Config.Algorithm.Advantage, err)
	}
	out = make([][]float64, b.Len())
	for i := range b.Sequences {
		out[i] = make([]float64, len(half[i]))
		for t := range half[i] {
			out[i][t] = 1 - 2*math.Exp(float64(b.Old[i][t])) + math.Exp(2*float64(whole[i][t])-float64(half[i][t]))
		}
		if !p.Config.Corrects() {
			continue
		}
		for t, w := range o.Weights(b.Old[i], b.Behaviour[i], b.Sequences[i].Mask) {
			out[i][t] *= w * w
		}
	}
	return out, nil
}

// convert gives numbers another precision; of a column that is not filled there are none.
func convert[To, From float32 | float64](x []From) []To {
	if x == nil {
		return nil
	}
	out := make([]To, len(x))
	for i, v := range x {
		out[i] = To(v)
	}
	return out
}
