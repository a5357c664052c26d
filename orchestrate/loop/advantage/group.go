package advantage

import "gyre/internal/statistics"

// groupStatistic is what the returns within one group are like.
type groupStatistic struct {
	n         int
	mean, std float64 // std with n - 1 in the denominator
}

// groupStatistics returns each episode's return (the sum of its rewards) and each group's statistics. A group whose members all
// return the same has no spread and differs from its mean by nothing, whatever the rounding of a sum would leave.
func groupStatistics(episodes []Trajectory) (returns []float64, groups map[int]groupStatistic) {
	returns, groups = make([]float64, len(episodes)), map[int]groupStatistic{}
	members := map[int][]float64{}
	for i, e := range episodes {
		returns[i] = statistics.Sum(e.Rewards)
		members[e.Group] = append(members[e.Group], returns[i])
	}
	for id, own := range members {
		g := groupStatistic{n: len(own), mean: statistics.Mean(own), std: statistics.Deviation(own)}
		if g.n == 1 { // nothing to compare with: the return itself counts
			g.mean, g.std = 0, 1
		}
		groups[id] = g
	}
	return returns, groups
}

// GRPO gives every sampled token of an episode the episode's return minus its group's mean, divided by the group's
// standard deviation + 1e-6 when normByStd (Dr.GRPO without). A group of one has mean 0 and standard deviation 1.
func GRPO(episodes []Trajectory, normByStd bool) [][]float64 {
	returns, groups := groupStatistics(episodes)
	return broadcast(episodes, func(i int) float64 {
		g := groups[episodes[i].Group]
		if normByStd {
			return (returns[i] - g.mean) / (g.std + 1e-6)
		}
		return returns[i] - g.mean
	})
}

// BRPO is GRPO with the whole batch as one group.
func BRPO(episodes []Trajectory, normByStd bool) [][]float64 {
	return GRPO(together(episodes), normByStd)
}

// together puts all episodes into one group.
func together(episodes []Trajectory) []Trajectory {
	one := make([]Trajectory, len(episodes))
	for i, e := range episodes {
		e.Group = 0
		one[i] = e
	}
	return one
}

// RLOO gives every sampled token of an episode its return minus the mean return of the group's other members:
// (S − mean)·n/(n − 1). A group of one keeps its return.
func RLOO(episodes []Trajectory) [][]float64 {
	returns, groups := groupStatistics(episodes)
	return broadcast(episodes, func(i int) float64 {
		g := groups[episodes[i].Group]
		if g.n == 1 {
			return returns[i]
		}
		return (returns[i] - g.mean) * float64(g.n) / float64(g.n-1)
	})
}

// RewardToGo is the discounted sum of the rewards from each token to the end of its reply (REINFORCE++ before
// whitening). The sum starts anew in every turn: rewards after an observation do not flow back past it.
func RewardToGo(episodes []Trajectory, gamma float64) [][]float64 {
	out := make([][]float64, len(episodes))
	for i, e := range episodes {
		out[i] = make([]float64, len(e.Mask))
		running := 0.0
		for t := len(e.Mask) - 1; t >= 0; t-- {
			if !e.Mask[t] {
				running = 0
				continue
			}
			running = e.Rewards[t] + gamma*running
			out[i][t] = running
		}
	}
	return out
}

// broadcast puts one value per episode on each of its sampled tokens, 0 elsewhere.
func broadcast(episodes []Trajectory, value func(i int) float64) [][]float64 {
	out := make([][]float64, len(episodes))
	for i, e := range episodes {
		out[i] = make([]float64, len(e.Mask))
		v := value(i)
		for t, sampled := range e.Mask {
			if sampled {
				out[i][t] = v
			}
		}
	}
	return out
}
