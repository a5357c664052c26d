package advantage

import "slices"

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
func Compute(episodes []Trajectory, o Options, lossScale float64) (e Estimate) {
	estimator, masks := Find(o.Advantage), masksOf(episodes)
	e.Advantages, e.Returns = estimator.Linear(episodes, o)
	if estimator.Divisor != nil {
		divisor := estimator.Divisor(episodes, o)
		for i, t := range sampled(masks) {
			e.Advantages[i][t] /= divisor(i)
		}
	}
	if e.Returns == nil {
		e.Returns = clone(e.Advantages)
	}
	if estimator.Whitens {
		whiten(e.Advantages, masks)
	}
	if estimator.WhitenedReturns {
		e.Returns = clone(e.Advantages)
	}
	if o.SoftReweight {
		e.Reweighting = softReweight(e.Advantages, episodes)
	}
	for _, a := range e.Advantages {
		for t := range a {
			a[t] *= lossScale
		}
	}
	if o.LengthWeight {
		lengthWeight(e.Advantages, masks)
	}
	if o.ZeroTaskAdvantage {
		for _, a := range e.Advantages {
			clear(a)
		}
	}
	return e
}

func masksOf(episodes []Trajectory) [][]bool {
	masks := make([][]bool, len(episodes))
	for i, e := range episodes {
		masks[i] = e.Mask
	}
	return masks
}

func clone(x [][]float64) [][]float64 {
	out := make([][]float64, len(x))
	for i := range x {
		out[i] = slices.Clone(x[i])
	}
	return out
}
