package advantage

import (
	"slices"

	"gyre/internal/masks"
	"gyre/internal/statistics"
	"gyre/orchestrate/config"
)

// Share splits the advantages that Compute's estimator gives, before any re-weighting, among reward components: token
// rewards by component, episode and token that add up to the episodes'. Every estimator is linear in the rewards once
// its scale is fixed, and the scale is that of all rewards. The shares add up to the advantages; what a critic's
// values give by themselves is the baseline, nil without a critic.
func Share(episodes []Trajectory, components [][][]float64, o Options) (shares [][][]float64, baseline [][]float64) {
	estimator, rows := Find(o.Advantage), masksOf(episodes)
	o.whole = episodes
	zeros := make([][]float64, len(episodes))
	for i, e := range episodes {
		zeros[i] = make([]float64, len(e.Mask))
	}
	linear := func(rewards, values [][]float64) [][]float64 {
		list := slices.Clone(episodes)
		for i := range list {
			if list[i].Rewards = rewards[i]; values != nil {
				list[i].Values = values[i]
			}
		}
		advantages, _ := estimator.Linear(list, o)
		return advantages
	}
	for _, rewards := range components {
		shares = append(shares, linear(rewards, zeros))
	}
	all := shares
	if (config.Algorithm{Advantage: o.Advantage}).UsesCritic() {
		baseline = linear(zeros, nil)
		all = append(slices.Clip(all), baseline)
	}
	divisor := func(int) float64 { return 1 }
	if estimator.Divisor != nil {
		divisor = estimator.Divisor(episodes, o)
	}
	factor := 1.0
	if estimator.Whitens {
		whole, _ := estimator.Linear(episodes, o)
		_, factor = moments(whole, rows)
	}
	for _, share := range all {
		mean := 0.0
		if estimator.Whitens {
			mean, _ = moments(share, rows)
		}
		for i, mask := range rows {
			for t, sampled := range mask {
				if share[i][t] = (share[i][t] - mean) * factor / divisor(i); !sampled {
					share[i][t] = 0
				}
			}
		}
	}
	return shares, baseline
}

// SampledMean is the mean over an episode's sampled tokens.
func SampledMean(values []float64, mask []bool) float64 {
	var own []float64
	for t := range masks.Tokens(mask) {
		own = append(own, values[t])
	}
	return statistics.Mean(own)
}
