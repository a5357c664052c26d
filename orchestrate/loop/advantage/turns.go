package advantage

// turnwise is an episode by turns: those of TurnEnds, and one more where tokens were sampled behind the last of them.
type turnwise struct {
	of       []int     // the turn of each sampled token; -1 elsewhere
	rewards  []float64 // of each turn: those of its sampled tokens
	energies []float64 // of each turn, where they are known
}

func byTurn(e Trajectory) turnwise {
	w := turnwise{of: make([]int, len(e.Mask))}
	turn := 0
	for t, sampled := range e.Mask {
		for turn < len(e.TurnEnds) && t > e.TurnEnds[turn] {
			turn++
		}
		if w.of[t] = -1; !sampled {
			continue
		}
		for len(w.rewards) <= turn {
			w.rewards, w.energies = append(w.rewards, 0), append(w.energies, 0)
		}
		w.of[t] = turn
		w.rewards[turn] += e.Rewards[t]
		if e.Energies != nil {
			w.energies[turn] += e.Energies[t]
		}
	}
	return w
}

// each puts one value per turn on the turn's sampled tokens, 0 elsewhere.
func (w turnwise) each(values []float64) []float64 {
	out := make([]float64, len(w.of))
	for t, turn := range w.of {
		if turn >= 0 {
			out[t] = values[turn]
		}
	}
	return out
}

// toCome is the sum of what turns have from each of them on, discounted by turn.
func (o Options) toCome(values []float64) []float64 {
	out, sum := make([]float64, len(values)), 0.0
	for k := len(values) - 1; k >= 0; k-- {
		sum = values[k] + o.HighLevelGamma*sum
		out[k] = sum
	}
	return out
}

// relative compares a value of each turn with those of the turns in its group that have the same key, as grpo compares
// episodes. key sees the episode, the turn, and the number of its turns; value makes the turns' values of their
// rewards.
func relative(episodes []Trajectory, o Options, key func(e Trajectory, turn, turns int) int,
	value func(rewards []float64) []float64) [][]float64 {
	ids := map[[2]int]int{}
	split := func(episodes []Trajectory) (turns []Trajectory) { // each as an episode
		for _, e := range episodes {
			values := value(byTurn(e).rewards)
			for k := range values {
				cell := [2]int{e.Group, key(e, k, len(values))}
				if _, known := ids[cell]; !known {
					ids[cell] = len(ids)
				}
				turns = append(turns, Trajectory{Group: ids[cell], Rewards: values[k : k+1]})
			}
		}
		return turns
	}
	turns := split(episodes)
	values, groups := groupStatistics(turns)
	divisor := deviations(split(o.scales(episodes)), o)
	out, at := make([][]float64, len(episodes)), 0
	for i, e := range episodes {
		for range byTurn(e).rewards {
			out[i] = append(out[i], (values[at]-groups[turns[at].Group].mean)/divisor(at))
			at++
		}
	}
	return out
}

// perTurn puts values of turns on their tokens.
func perTurn(episodes []Trajectory, values [][]float64) [][]float64 {
	out := make([][]float64, len(episodes))
	for i, e := range episodes {
		out[i] = byTurn(e).each(values[i])
	}
	return out
}
