package advantage

import (
	"fmt"

	"gyre/orchestrate/config"
)

// Trajectory is what an estimator reads of one episode.
type Trajectory struct {
	Group    int       // episodes of one group started from the same state
	Mask     []bool    // true where the policy sampled the token
	Rewards  []float64 // per token
	Values   []float64 // the critic's estimate at each token; read by gae and bi_level_gae only
	TurnEnds []int     // index of the last sampled token of each turn, ascending; read by bi_level_gae only
}

// Estimate holds the results, one token-aligned slice per episode.
type Estimate struct {
	Advantages [][]float64
	Returns    [][]float64 // what the critic should predict
	// Reweighting is nil unless groups were re-weighted.
	Reweighting *Reweighting
}

// Compute estimates advantages as the configuration says: estimator, whitening (gae, bi_level_gae and the REINFORCE++
// estimators), soft re-weighting, lossScale (the filter's, 1 for none), length weighting and the zero-advantage ablation,
// in this order. The critic's returns are not scaled.
func Compute(episodes []Trajectory, a config.Algorithm, lossScale float64) (Estimate, error) {
	if err := check(episodes, a); err != nil {
		return Estimate{}, err
	}
	masks := make([][]bool, len(episodes))
	for i, e := range episodes {
		masks[i] = e.Mask
	}
	var e Estimate
	switch a.Advantage {
	case "gae":
		e.Advantages, e.Returns = each(episodes, func(t Trajectory) ([]float64, []float64) {
			return GAE(t, a.Gamma, a.Lambda)
		})
		Whiten(e.Advantages, masks)
	case "bi_level_gae":
		e.Advantages, e.Returns = each(episodes, func(t Trajectory) ([]float64, []float64) {
			return BiLevelGAE(t, a.Gamma, a.Lambda, a.HighLevelGamma)
		})
		Whiten(e.Advantages, masks)
	case "grpo":
		e.Advantages = GRPO(episodes, a.NormByStd)
	case "brpo":
		e.Advantages = BRPO(episodes, a.NormByStd)
	case "rloo":
		e.Advantages = RLOO(episodes)
	case "reinforce_pp":
		e.Advantages = RewardToGo(episodes, a.Gamma)
		e.Returns = clone(e.Advantages)
		Whiten(e.Advantages, masks)
	case "reinforce_pp_baseline":
		e.Advantages = GRPO(episodes, false)
		Whiten(e.Advantages, masks)
	default:
		return Estimate{}, fmt.Errorf("algorithm.advantage: unknown estimator %q", a.Advantage)
	}
	if e.Returns == nil {
		e.Returns = clone(e.Advantages)
	}
	if a.SoftReweight {
		e.Reweighting = SoftReweight(e.Advantages, episodes)
	}
	Scale(e.Advantages, lossScale)
	if a.LengthWeight {
		LengthWeight(e.Advantages, masks)
	}
	if a.ZeroTaskAdvantage {
		for _, a := range e.Advantages {
			clear(a)
		}
	}
	return e, nil
}

func check(episodes []Trajectory, a config.Algorithm) error {
	for i, e := range episodes {
		if len(e.Rewards) != len(e.Mask) {
			return fmt.Errorf("advantage: episode %d has %d rewards for %d tokens", i, len(e.Rewards), len(e.Mask))
		}
		if !a.UsesCritic() {
			continue
		}
		if len(e.Values) != len(e.Mask) {
			return fmt.Errorf("advantage: episode %d has %d values for %d tokens; %s needs the critic's estimates", i,
				len(e.Values), len(e.Mask), a.Advantage)
		}
		for _, end := range e.TurnEnds {
			if end < 0 || end >= len(e.Mask) || !e.Mask[end] {
				return fmt.Errorf("advantage: episode %d ends a turn at token %d, which the policy did not sample", i, end)
			}
		}
	}
	return nil
}

func each(episodes []Trajectory, estimate func(Trajectory) ([]float64, []float64)) (advantages, returns [][]float64) {
	for _, e := range episodes {
		a, r := estimate(e)
		advantages, returns = append(advantages, a), append(returns, r)
	}
	return advantages, returns
}

func clone(x [][]float64) [][]float64 {
	out := make([][]float64, len(x))
	for i := range x {
		out[i] = append([]float64(nil), x[i]...)
	}
	return out
}
