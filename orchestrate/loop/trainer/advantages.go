package trainer

import (
	"slices"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/loop/episode"
)

// estimate computes token rewards, the KL penalty in them, advantages and returns.
func (p *preparation) estimate(s *selection, metrics map[string]float64) error {
	a := p.config.Algorithm
	trajectories := make([]advantage.Trajectory, len(s.samples))
	for i, x := range s.samples {
		trajectories[i] = advantage.Trajectory{
			Group: x.Group, Mask: x.Mask, Rewards: tokenRewards(x.Episode, creditsTurns(p.config)),
			Values: widen(x.Values), TurnEnds: turnEnds(x.Episode),
		}
	}
	if p.penalty != nil && p.penalty.Coef != 0 {
		divergences := make([][]float64, len(s.samples))
		for i, x := range s.samples {
			var err error
			if divergences[i], err = advantage.KL(a.KLEstimator, x.Old, x.Reference, x.Mask); err != nil {
				return err
			}
		}
		metrics["actor/reward_kl_penalty_coeff"] = p.penalty.Coef
		s.divergence = advantage.Penalize(trajectories, divergences, p.penalty.Coef)
		metrics["actor/reward_kl_penalty"] = s.divergence
	}
	estimate, err := advantage.Compute(trajectories, a, s.scale)
	if err != nil {
		return err
	}
	for name, v := range estimate.Metrics {
		metrics[name] = v
	}
	for i, x := range s.samples {
		x.Advantages, x.Returns = narrow(estimate.Advantages[i]), narrow(estimate.Returns[i])
	}
	dataMetrics(s.samples, trajectories, metrics, p.critic != nil)
	return nil
}

// creditsTurns reports whether rewards are credited turn by turn. Estimators that compare whole episodes take the score: the rewards' sum
// after normalisation.
func creditsTurns(c *config.Config) bool {
	return c.Rollout.TurnRewards && !c.Algorithm.ComparesEpisodes()
}

// tokenRewards places an episode's rewards: by default its whole score on the last token that the policy sampled, with turn rewards
// each amount on its own token, or, where that was not sampled, on the sampled token before it (the first one if there is none).
func tokenRewards(e *episode.Episode, perTurn bool) []float64 {
	out := make([]float64, len(e.IDs))
	if !perTurn {
		if last := sampledBefore(e.Mask, len(e.Mask)); last >= 0 {
			out[last] = e.Score
		}
		return out
	}
	for _, r := range e.Rewards {
		at := sampledBefore(e.Mask, r.Token+1)
		if at < 0 {
			at = slices.Index(e.Mask, true)
		}
		if at >= 0 {
			out[at] += r.Value
		}
	}
	return out
}

// sampledBefore is the last sampled token before end, -1 if there is none.
func sampledBefore(mask []bool, end int) int {
	for i := end - 1; i >= 0; i-- {
		if mask[i] {
			return i
		}
	}
	return -1
}

// turnEnds lists the last sampled token of each turn in which the policy said something.
func turnEnds(e *episode.Episode) []int {
	var ends []int
	for _, turn := range e.Turns {
		if last := sampledBefore(e.Mask, turn.End); last >= turn.Reply {
			ends = append(ends, last)
		}
	}
	return ends
}

func widen(x []float32) []float64 {
	if x == nil {
		return nil
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func narrow(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}
