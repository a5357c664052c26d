package advantage

import "slices"

// mtGRPO normalises the rewards of each turn before it adds them up (MT-GRPO, Zeng, Wei et al., arXiv 2505.11821): that
// of an episode's last turn, its outcome, over the group, and those of earlier turns, by the turn's index, over the
// group's episodes that go on after it. With r̃ and õ the normalised numbers and T the last turn,
//
//	A_k = Σ_{k≤l<T} γ^{l−k} r̃_l + γ^{T−k} õ.
//
// How many means are subtracted depends on when the episode stops, which is biased where the policy decides that
// (verl#7244; docs/estimators.md has the bias).
var mtGRPO = Estimator{Name: "mt_grpo",
	Claim: Claim{Biased, Biased, "the number of means that it subtracts depends on when the policy stops"},
	Linear: func(episodes []Trajectory, o Options) (advantages, returns [][]float64) {
		key := func(_ Trajectory, turn, turns int) int {
			if turn == turns-1 {
				return -1
			}
			return turn
		}
		normal := relative(episodes, o, key, slices.Clone)
		for i, own := range normal {
			normal[i] = o.toCome(own)
		}
		return perTurn(episodes, normal), nil
	}}
