package advantage

// turnRLOO takes, from the rewards to come at each turn, the mean of those of the group's other episodes at that turn:
// RLOO's baseline (Kool et al., 2019; Ahmadian et al., 2024), turn by turn. Others that have stopped are left out;
// where all have, those count that stopped last, at their last turn. Nothing in it depends on what the episode does
// from that turn on, so it adds nothing to the mean of the gradient, whoever decides when to stop.
var turnRLOO = Estimator{Name: "turn_rloo",
	Claim: Claim{Linear: Unbiased, Whole: Unbiased, Why: "the baseline of a turn holds other episodes only"},
	Linear: func(episodes []Trajectory, o Options) (advantages, returns [][]float64) {
		return againstOthers(episodes, o, func(turnwise, int) float64 { return 1 }), nil
	}}

// againstOthers are the rewards to come at each turn less the weighted mean of the other episodes of the group.
func againstOthers(episodes []Trajectory, o Options, weight func(w turnwise, turn int) float64) [][]float64 {
	turns, toCome, groups := make([]turnwise, len(episodes)), make([][]float64, len(episodes)), map[int][]int{}
	for i, e := range episodes {
		turns[i] = byTurn(e)
		toCome[i] = o.toCome(turns[i].rewards)
		groups[e.Group] = append(groups[e.Group], i)
	}
	out := make([][]float64, len(episodes))
	for i, e := range episodes {
		values, baseline := make([]float64, len(toCome[i])), 0.0
		for k := range values {
			sum, weights := 0.0, 0.0
			for _, j := range groups[e.Group] {
				if j != i && k < len(toCome[j]) {
					w := weight(turns[j], k)
					sum, weights = sum+w*toCome[j][k], weights+w
				}
			}
			if weights > 0 { // otherwise that of the last turn that another reached
				baseline = sum / weights
			}
			values[k] = toCome[i][k] - baseline
		}
		out[i] = turns[i].each(values)
	}
	return out
}
