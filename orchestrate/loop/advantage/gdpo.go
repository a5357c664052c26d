package advantage

// gdpo normalises each part of the reward within its group by itself, so that a part of small numbers counts as its
// weight says, and whitens the weighted sum (GDPO, arXiv 2601.05242). Without parts the return is the only one.
var gdpo = Estimator{Name: "gdpo", Whitens: true, WhitenedReturns: true,
	Claim: Claim{Scaled, Biased, "each part is over its deviation; then whitened"},
	Linear: func(episodes []Trajectory, o Options) (advantages, returns [][]float64) {
		parts, weights := len(o.PartWeights), o.PartWeights
		if parts == 0 || episodes[0].Parts == nil {
			parts, weights = 1, []float64{1}
		}
		sums := make([]float64, len(episodes))
		for k := range parts {
			own := make([]Trajectory, len(episodes))
			for i, e := range episodes {
				own[i] = Trajectory{Group: e.Group, Mask: e.Mask, Rewards: e.Rewards}
				if e.Parts != nil {
					own[i].Rewards = e.Parts[k : k+1]
				}
			}
			earned, groups := groupStatistics(own)
			divisor := deviations(own, o)
			for i, e := range episodes {
				sums[i] += weights[k] * (earned[i] - groups[e.Group].mean) / divisor(i)
			}
		}
		return broadcast(episodes, func(i int) float64 { return sums[i] }), nil
	}}
