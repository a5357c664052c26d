package advantage

import (
	"maps"
	"math"
	"slices"

	"gyre/internal/masks"
)

// whiten gives the sampled tokens' advantages mean 0 and variance 1 over the whole batch, in place, and the others 0.
func whiten(advantages [][]float64, rows [][]bool) {
	mean, scale := moments(advantages, rows)
	for i, mask := range rows {
		for t, sampled := range mask {
			if advantages[i][t] = (advantages[i][t] - mean) * scale; !sampled {
				advantages[i][t] = 0
			}
		}
	}
}

// moments of the sampled tokens' values: their mean, and the factor that gives them the variance 1 (unbiased, plus
// 1e-8). Fewer than two have no variance.
func moments(values [][]float64, rows [][]bool) (mean, scale float64) {
	n, variance := 0.0, 0.0
	for i, t := range masks.Places(rows) {
		n++
		mean += values[i][t]
	}
	mean /= max(n, 1)
	for i, t := range masks.Places(rows) {
		d := values[i][t] - mean
		variance += d * d
	}
	if n > 1 {
		return mean, 1 / math.Sqrt(variance/(n-1)+1e-8)
	}
	return mean, 1
}

// Reweighting describes the weights that soft re-weighting gave to groups.
type Reweighting struct {
	Min  float64 `metric:"train/soft_reweight_min" doc:"smallest weight of a group (algorithm.soft_reweight)"`
	Max  float64 `metric:"train/soft_reweight_max" doc:"largest weight of a group"`
	Mean float64 `metric:"train/soft_reweight_mean" doc:"mean weight of a group"`
}

// softReweight multiplies advantages, in place, by their group's standard deviation over the largest one, so that
// groups whose rewards hardly differ count less. It is nil where there is no group.
func softReweight(advantages [][]float64, episodes []Trajectory) *Reweighting {
	_, groups := groupStatistics(episodes)
	if len(groups) == 0 {
		return nil
	}
	largest := 0.0
	for _, g := range groups {
		largest = max(largest, g.std)
	}
	weight := func(group int) float64 { return groups[group].std / (largest + 1e-6) }
	for i, e := range episodes {
		for t := range advantages[i] {
			advantages[i][t] *= weight(e.Group)
		}
	}
	m := &Reweighting{Min: math.Inf(1), Max: largest / (largest + 1e-6)}
	sum := 0.0
	for _, id := range slices.Sorted(maps.Keys(groups)) { // in order, so that the sum always rounds alike
		m.Min = min(m.Min, weight(id))
		sum += weight(id)
	}
	m.Mean = sum / float64(len(groups))
	return m
}

// lengthWeight divides each episode's advantages, in place, by its number of sampled tokens over the mean number.
func lengthWeight(advantages [][]float64, rows [][]bool) {
	lengths, mean := make([]float64, len(rows)), 0.0
	for i := range masks.Places(rows) {
		lengths[i]++
	}
	for _, n := range lengths {
		mean += n / float64(len(lengths))
	}
	for i := range advantages {
		for t := range advantages[i] {
			advantages[i][t] *= mean / (lengths[i] + 1e-6)
		}
	}
}
