package advantage

import (
	"math"

	"gyre/internal/statistics"
	"gyre/orchestrate/config"
)

// Share splits the advantages that Compute's estimator gives, before any re-weighting, among parts of the rewards: token rewards by part,
// episode and token that add up to the episodes'. Every estimator is linear in the rewards once its scale is fixed, and the scale is that of
// all rewards together. The shares add up to the advantages; what a critic's values give by themselves is the baseline, nil without a critic.
func Share(episodes []Trajectory, parts [][][]float64, a config.Algorithm) (shares [][][]float64, baseline [][]float64, err error) {
	if err := check(episodes, a); err != nil {
		return nil, nil, err
	}
	masks := make([][]bool, len(episodes))
	silent := make([][]float64, len(episodes))
	for i, e := range episodes {
		masks[i], silent[i] = e.Mask, make([]float64, len(e.Mask))
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
		return linear(list, a)
	}
	for _, rewards := range parts {
		shares = append(shares, only(rewards, silent))
	}
	if a.UsesCritic() {
		baseline = only(silent, nil)
	}
	scale := func(int) float64 { return 1 }
	centred := false
	switch a.Advantage {
	case "gae", "bi_level_gae", "reinforce_pp", "reinforce_pp_baseline":
		_, factor := moments(linear(episodes, a), masks)
		scale, centred = func(int) float64 { return factor }, true
	case "grpo", "brpo":
		if a.NormByStd {
			list := episodes
			if a.Advantage == "brpo" {
				list = together(episodes)
			}
			_, groups := groupStatistics(list)
			scale = func(i int) float64 { return 1 / (groups[list[i].Group].std + 1e-6) }
		}
	}
	all := shares
	if baseline != nil {
		all = append(all[:len(all):len(all)], baseline)
	}
	for _, share := range all {
		mean := 0.0
		if centred {
			mean, _ = moments(share, masks)
		}
		for i, mask := range masks {
			factor := scale(i)
			for t, sampled := range mask {
				if share[i][t] = (share[i][t] - mean) * factor; !sampled {
					share[i][t] = 0
				}
			}
		}
	}
	return shares, baseline, nil
}

// linear is the part of an estimator that is linear in rewards and values: its advantages before they are divided or whitened.
func linear(episodes []Trajectory, a config.Algorithm) [][]float64 {
	var out [][]float64
	switch a.Advantage {
	case "gae":
		out, _ = each(episodes, func(t Trajectory) ([]float64, []float64) { return GAE(t, a.Gamma, a.Lambda) })
	case "bi_level_gae":
		out, _ = each(episodes, func(t Trajectory) ([]float64, []float64) { return BiLevelGAE(t, a.Gamma, a.Lambda, a.HighLevelGamma) })
	case "reinforce_pp":
		out = RewardToGo(episodes, a.Gamma)
	case "rloo":
		out = RLOO(episodes)
	case "brpo":
		out = BRPO(episodes, false)
	default:
		out = GRPO(episodes, false)
	}
	return out
}

// moments of the sampled tokens' values: their mean, and the factor that gives them the variance 1 (unbiased, plus 1e-8). Fewer than two have
// no variance.
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
