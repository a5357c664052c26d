package advantage

// gigpo adds two comparisons (GiGPO, Feng et al., arXiv 2505.10978): grpo's of the whole episode, and StepWeight times
// that of each turn's rewards to come with those of all turns of the group that began in the same state. Turns whose
// state is not known, and states that were met once, have the first only.
var gigpo = Estimator{Name: "gigpo",
	Claim: Claim{Linear: Biased, Whole: Biased,
		Why: "a state met n times counts (n - 1)/n; an episode that meets it again is in its own baseline"},
	Linear: func(episodes []Trajectory, o Options) (advantages, returns [][]float64) {
		advantages, _ = centred(episodes, o)
		divisor, met := deviations(o.scales(episodes), o), map[[2]int]int{}
		for _, e := range episodes {
			for _, state := range e.States {
				met[[2]int{e.Group, state}]++
			}
		}
		// Values of turns without a state are not read.
		steps := relative(episodes, o, func(e Trajectory, turn, _ int) int { return e.state(turn) }, o.toCome)
		for i, e := range episodes {
			for t, turn := range byTurn(e).of {
				advantages[i][t] /= divisor(i)
				if turn >= 0 && met[[2]int{e.Group, e.state(turn)}] > 1 {
					advantages[i][t] += o.StepWeight * steps[i][turn]
				}
			}
		}
		return advantages, nil
	}}

// state is that in which a turn began, -1 where it is not known.
func (e Trajectory) state(turn int) int {
	if turn < len(e.States) {
		return e.States[turn]
	}
	return -1
}
