package advantage

var reinforcePP = Estimator{Name: "reinforce_pp", Whitens: true, Linear: func(episodes []Trajectory,
	o Options) (advantages, returns [][]float64) {
	return rewardToGo(episodes, o.Gamma), nil
}}

// rewardToGo is the discounted sum of the rewards from each sampled token to the end of its episode (REINFORCE++
// before whitening). Only sampled tokens exist in time: observations between them are passed without a discount, and
// rewards on them are ignored, so a reward at the end credits the replies of all turns (verl#7300).
func rewardToGo(episodes []Trajectory, gamma float64) [][]float64 {
	out := make([][]float64, len(episodes))
	for i, e := range episodes {
		out[i] = make([]float64, len(e.Mask))
		running := 0.0
		for t := len(e.Mask) - 1; t >= 0; t-- {
			if e.Mask[t] {
				running = e.Rewards[t] + gamma*running
				out[i][t] = running
			}
		}
	}
	return out
}
