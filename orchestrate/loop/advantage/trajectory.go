package advantage

import "fmt"

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

// Options say how advantages are estimated.
type Options struct {
	Advantage                     string  // name of an estimator
	Gamma, Lambda, HighLevelGamma float64 // discounts per token and per turn, and GAE's λ
	NormByStd                     bool    // grpo and brpo divide by the deviation
	SoftReweight, LengthWeight    bool
	ZeroTaskAdvantage             bool
}

// Compute estimates advantages: estimator, whitening where it has that, soft re-weighting, lossScale (the filter's, 1
// for none), length weighting and the zero-advantage ablation, in this order. The critic's returns are not scaled.
func Compute(episodes []Trajectory, o Options, lossScale float64) (Estimate, error) {
	estimator, err := check(episodes, o)
	if err != nil {
		return Estimate{}, err
	}
	masks := masksOf(episodes)
	var e Estimate
	e.Advantages, e.Returns = estimator.Linear(episodes, o)
	if estimator.Divisor != nil {
		divisor := estimator.Divisor(episodes, o)
		over(masks, func(i, t int) { e.Advantages[i][t] /= divisor(i) })
	}
	if e.Returns == nil {
		e.Returns = clone(e.Advantages)
	}
	if estimator.Whitens {
		Whiten(e.Advantages, masks)
	}
	if estimator.WhitenedReturns {
		e.Returns = clone(e.Advantages)
	}
	if o.SoftReweight {
		e.Reweighting = SoftReweight(e.Advantages, episodes)
	}
	Scale(e.Advantages, lossScale)
	if o.LengthWeight {
		LengthWeight(e.Advantages, masks)
	}
	if o.ZeroTaskAdvantage {
		for _, a := range e.Advantages {
			clear(a)
		}
	}
	return e, nil
}

func masksOf(episodes []Trajectory) [][]bool {
	masks := make([][]bool, len(episodes))
	for i, e := range episodes {
		masks[i] = e.Mask
	}
	return masks
}

// check finds the estimator and sees that the episodes have what it reads.
func check(episodes []Trajectory, o Options) (*Estimator, error) {
	estimator := Find(o.Advantage)
	if estimator == nil {
		return nil, fmt.Errorf("algorithm.advantage: unknown estimator %q", o.Advantage)
	}
	for i, e := range episodes {
		if len(e.Rewards) != len(e.Mask) {
			return nil, fmt.Errorf("advantage: episode %d has %d rewards for %d tokens", i, len(e.Rewards), len(e.Mask))
		}
		if !estimator.Critic {
			continue
		}
		if len(e.Values) != len(e.Mask) {
			return nil, fmt.Errorf("advantage: episode %d has %d values for %d tokens; %s needs the critic's estimates",
				i,
				len(e.Values), len(e.Mask), o.Advantage)
		}
		for _, end := range e.TurnEnds {
			if end < 0 || end >= len(e.Mask) || !e.Mask[end] {
				return nil, fmt.Errorf("advantage: episode %d ends a turn at token %d, which the policy did not sample",
					i, end)
			}
		}
	}
	return estimator, nil
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
