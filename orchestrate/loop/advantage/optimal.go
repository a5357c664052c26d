package advantage

import "gyre/internal/masks"

// optimalTokenBaseline subtracts from the reward to come, at each sampled token, the mean of its group weighted by
// the squared norms of the score functions so far: the baseline that depends on the token's place and has the least
// variance (verl, tir_optimal_token_baseline). Places are counted over sampled tokens, turns together.
//
//	energy_j = w² (1 − 2π_j + Σ_v π_v²)   E_j = Σ_{k≤j} energy_k   G_j = Σ_{k≥j} reward_k
//	A_j = G_j − Σ E_j G_j / (Σ E_j + 1e-8), the sums over the episodes of the group that reach j
//
// Where an episode is the only one of its group to reach a place, the baseline is 0.
var optimalTokenBaseline = Estimator{Name: "optimal_token_baseline",
	Claim: Claim{Biased, Biased, "the baseline and its weights hold the episode itself"},
	Linear: func(episodes []Trajectory, _ Options) (advantages, returns [][]float64) {
		advantages = rewardToGo(episodes, 1)
		groups := map[int][]place{}
		for i, e := range episodes {
			j, energy := 0, 0.0
			for t := range masks.Tokens(e.Mask) {
				energy += e.Energies[t]
				if j == len(groups[e.Group]) {
					groups[e.Group] = append(groups[e.Group], place{})
				}
				at := &groups[e.Group][j]
				at.episodes, at.weights = at.episodes+1, at.weights+energy
				at.weighted += energy * advantages[i][t]
				j++
			}
		}
		for i, e := range episodes {
			j := 0
			for t := range masks.Tokens(e.Mask) {
				if at := groups[e.Group][j]; at.episodes > 1 {
					advantages[i][t] -= at.weighted / (at.weights + 1e-8)
				}
				j++
			}
		}
		return advantages, nil
	}}

// place sums up the episodes of a group that reach one of its sampled tokens.
type place struct {
	episodes          int
	weighted, weights float64 // Σ E·G and Σ E
}
