package advantage

import (
	"slices"

	"gyre/internal/masks"
	"gyre/internal/statistics"
)

// groupStatistic is what the returns within one group are like.
type groupStatistic struct {
	n         int
	mean, std float64 // std with n - 1 in the denominator
}

// groupStatistics returns each episode's return (the sum of its rewards) and each group's statistics. A group whose
// members all return the same has no deviation and differs from its mean by nothing, whatever the rounding of a sum
// would leave.
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

var grpo = Estimator{Name: "grpo", Linear: centred, Divisor: deviations,
	Claim: Claim{Scaled, Biased, "(n - 1)/n, and groups whose returns differ little count more"}}

// brpo is grpo with the whole batch as one group.
var brpo = Estimator{
	Name:  "brpo",
	Claim: Claim{Scaled, Biased, "(N - 1)/N of a batch of N, over its deviation"},
	Linear: func(episodes []Trajectory, o Options) (advantages, returns [][]float64) {
		return centred(oneGroup(episodes), o)
	},
	Divisor: func(episodes []Trajectory, o Options) func(i int) float64 { return deviations(oneGroup(episodes), o) },
}

var rloo = Estimator{Name: "rloo", Claim: Claim{Unbiased, Unbiased, "the mean holds the others only"},
	Linear: leaveOneOut}

var reinforcePPBaseline = Estimator{Name: "reinforce_pp_baseline", Whitens: true,
	Claim:           Claim{Scaled, Biased, "(n - 1)/n; then whitened"},
	WhitenedReturns: true, Linear: centred}

// centred gives every sampled token of an episode the episode's return minus its group's mean. A group of one has the
// mean 0.
func centred(episodes []Trajectory, _ Options) (advantages, returns [][]float64) {
	earned, groups := groupStatistics(episodes)
	return broadcast(episodes, func(i int) float64 { return earned[i] - groups[episodes[i].Group].mean }), nil
}

// deviations are the standard deviations of the groups' returns + 1e-6, by episode: 1 in all where they do not divide
// (Dr.GRPO). That of a group of one counts as 1.
func deviations(episodes []Trajectory, o Options) func(i int) float64 {
	if !o.NormByStd {
		return func(int) float64 { return 1 }
	}
	_, groups := groupStatistics(episodes)
	return func(i int) float64 { return groups[episodes[i].Group].std + 1e-6 }
}

// oneGroup puts all episodes into one group.
func oneGroup(episodes []Trajectory) []Trajectory {
	one := slices.Clone(episodes)
	for i := range one {
		one[i].Group = 0
	}
	return one
}

// leaveOneOut gives every sampled token of an episode its return minus the mean return of the group's other members:
// (S − mean)·n/(n − 1). A group of one keeps its return.
func leaveOneOut(episodes []Trajectory, _ Options) (advantages, returns [][]float64) {
	earned, groups := groupStatistics(episodes)
	return broadcast(episodes, func(i int) float64 {
		g := groups[episodes[i].Group]
		if g.n == 1 {
			return earned[i]
		}
		return (earned[i] - g.mean) * float64(g.n) / float64(g.n-1)
	}), nil
}

// broadcast puts one value per episode on each of its sampled tokens, 0 elsewhere.
func broadcast(episodes []Trajectory, value func(i int) float64) [][]float64 {
	out := make([][]float64, len(episodes))
	for i, e := range episodes {
		out[i] = make([]float64, len(e.Mask))
		v := value(i)
		for t := range masks.Tokens(e.Mask) {
			out[i][t] = v
		}
	}
	return out
}
