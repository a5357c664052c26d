package advantage

// optimalTurnBaseline is turn_rloo with the others weighed by the squared norms of their score functions in that turn,
// which estimates the baseline of least variance E[‖s‖²G]/E[‖s‖²] of each turn by itself (Greensmith et al., 2004).
var optimalTurnBaseline = Estimator{Name: "optimal_turn_baseline",
	Claim: Claim{Linear: Unbiased, Whole: Unbiased, Why: "the baseline and its weights hold other episodes only"},
	Linear: func(episodes []Trajectory, o Options) (advantages, returns [][]float64) {
		return againstOthers(episodes, o, func(w turnwise, turn int) float64 { return w.energies[turn] }), nil
	}}
