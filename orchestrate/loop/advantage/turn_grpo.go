package advantage

// turnGRPO is grpo with one comparison for each turn: the rewards to come of the k-th turn, discounted by turn,
// relative to those of the group's episodes that have a k-th turn (Ding et al., GTPO, arXiv 2511.14846). The mean holds
// the episode itself, so a turn that n episodes reach counts (n − 1)/n, and one that a single episode reaches 1: turns
// count by different factors where the policy may stop.
var turnGRPO = Estimator{Name: "turn_grpo",
	Claim: Claim{Biased, Biased, "a turn that n episodes reach counts (n - 1)/n, over its deviation"},
	Linear: func(episodes []Trajectory, o Options) (advantages, returns [][]float64) {
		index := func(_ Trajectory, turn, _ int) int { return turn }
		return perTurn(episodes, relative(episodes, o, index, o.toCome)), nil
	}}
