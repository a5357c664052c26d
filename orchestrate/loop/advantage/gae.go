package advantage

var gae = Estimator{Name: "gae", Critic: true, Whitens: true, Linear: func(episodes []Trajectory,
	o Options) (advantages, returns [][]float64) {
	return each(episodes, func(t Trajectory) ([]float64, []float64) { return GAE(t, o.Gamma, o.Lambda) })
}}

var biLevelGAE = Estimator{Name: "bi_level_gae", Critic: true, Whitens: true,
	Linear: func(episodes []Trajectory, o Options) (advantages, returns [][]float64) {
		return each(episodes, func(t Trajectory) ([]float64, []float64) {
			return BiLevelGAE(t, o.Gamma, o.Lambda,
				o.HighLevelGamma)
		})
	}}

// GAE is generalised advantage estimation over one episode: with V' and A' of the next sampled token (0 after the
// last),
//
//	δ = r + γV' − V,   A = δ + γλA',   return = A + V.
//
// Other tokens show the next sampled token's advantage, and that advantage as their return.
func GAE(e Trajectory, gamma, lambda float64) (advantages, returns []float64) {
	advantages, returns = make([]float64, len(e.Mask)), make([]float64, len(e.Mask))
	nextValue, next := 0.0, 0.0
	for t := len(e.Mask) - 1; t >= 0; t-- {
		value := 0.0
		if e.Mask[t] {
			value = e.Values[t]
			next = e.Rewards[t] + gamma*nextValue - value + gamma*lambda*next
			nextValue = value
		}
		advantages[t], returns[t] = next, next+value
	}
	return advantages, returns
}

// BiLevelGAE credits turns first and tokens second (VAGEN). Over the turn ends, GAE with highGamma per turn gives each
// turn a return A + V; over the tokens of each turn, GAE with gamma takes that return as the reward of the turn's last
// token and stops there. Turn ends are explicit, so a turn that earned exactly 0 is a turn like any other. Sampled
// tokens after the last turn end form a turn without a return.
func BiLevelGAE(e Trajectory, gamma, lambda, highGamma float64) (advantages, returns []float64) {
	turnReturn := map[int]float64{}
	nextValue, next := 0.0, 0.0
	for k := len(e.TurnEnds) - 1; k >= 0; k-- {
		end := e.TurnEnds[k]
		next = e.Rewards[end] + highGamma*nextValue - e.Values[end] + highGamma*lambda*next
		nextValue = e.Values[end]
		turnReturn[end] = next + nextValue
	}

	advantages, returns = make([]float64, len(e.Mask)), make([]float64, len(e.Mask))
	nextValue, next = 0, 0
	for t := len(e.Mask) - 1; t >= 0; t-- {
		if !e.Mask[t] {
			continue
		}
		reward := e.Rewards[t]
		if r, ok := turnReturn[t]; ok {
			reward, nextValue, next = r, 0, 0
		}
		next = reward + gamma*nextValue - e.Values[t] + gamma*lambda*next
		nextValue = e.Values[t]
		advantages[t], returns[t] = next, next+nextValue
	}
	return advantages, returns
}
