package advantage

import (
	"math"

	"gyre/internal/statistics"
)

// Share splits the advantages that Compute's estimator gives, before any re-weighting, among parts of the rewards:
// token rewards by part, episode and token that add up to the episodes'. Every estimator is linear in the rewards
// once its scale is fixed, and the scale is that of all rewards together. The shares add up to the advantages; what a
// critic's values give by themselves is the baseline, nil without a critic.
func Share(episodes []Trajectory, parts [][][]float64, o Options) (shares [][][]float64, baseline [][]float64,
	err error) {
	estimator, err := check(episodes, o)
	if err != nil {
		return nil, nil, err
	}
	masks, silent := masksOf(episodes), make([][]float64, len(episodes))
	for i, e := range episodes {
		silent[i] = make([]float64, len(e.Mask))
	}
	only := func(rewards, values [][]float64) [][]float64 {
		list := make([]Trajectory, len(episodes))
		for i, e := range episodes {
			e.Rewards = rewards[i]
			if values != nil {
				e.Values = values[i]
			}
			list[i] = e
		}
		advantages, _ := estimator.Linear(list, o)
		return advantages
	}
	for _, rewards := range parts {
		shares = append(shares, only(rewards, silent))
	}
	if estimator.Critic {
		baseline = only(silent, nil)
	}
	divisor := func(int) float64 { return 1 }
	if estimator.Divisor != nil {
		divisor = estimator.Divisor(episodes, o)
	}
	factor := 1.0
	if estimator.Whitens {
		whole, _ := estimator.Linear(episodes, o)
		_, factor = moments(whole, masks)
	}
	all := shares
	if baseline != nil {
		all = append(all[:len(all):len(all)], baseline)
	}
	for _, share := range all {
		mean := 0.0
		if estimator.Whitens {
			mean, _ = moments(share, masks)
		}
		for i, mask := range masks {
			for t, sampled := range mask {
				if share[i][t] = (share[i][t] - mean) * factor / divisor(i); !sampled {
					share[i][t] = 0
				}
			}
		}
	}
	return shares, baseline, nil
}

// moments of the sampled tokens' values: their mean, and the factor that gives them the variance 1 (unbiased, plus
// 1e-8). Fewer than two have no variance.
func moments(values [][]float64, masks [][]bool) (mean, scale float64) {
	n := 0.0
	over(masks, func(i, t int) { n++; mean += values[i][t] })
	mean /= max(n, 1)
	variance := 0.0
	over(masks, func(i, t int) {
		d := values[i][t] - mean
		variance += d * d
	})
	if n > 1 {
		return mean, 1 / math.Sqrt(variance/(n-1)+1e-8)
	}
	return mean, 1
}

// SampledMean is the mean over an episode's sampled tokens.
func SampledMean(values []float64, mask []bool) float64 {
	var sampled []float64
	for t, v := range values {
		if mask[t] {
			sampled = append(sampled, v)
		}
	}
	return statistics.Mean(sampled)
}
