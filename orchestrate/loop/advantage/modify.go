package advantage

import (
	"maps"
	"math"
	"slices"
)

// Whiten gives the sampled tokens' advantages mean 0 and variance 1 over the whole batch, in place, with the unbiased
// variance plus 1e-8. A batch with fewer than two sampled tokens has no variance and only loses its mean.
func Whiten(advantages [][]float64, masks [][]bool) {
	mean, scale := moments(advantages, masks)
	over(masks, func(i, t int) { advantages[i][t] = (advantages[i][t] - mean) * scale })
	for i, mask := range masks {
		for t, sampled := range mask {
			if !sampled {
				advantages[i][t] = 0
			}
		}
	}
}

// Reweighting describes the weights that soft re-weighting gave to groups.
type Reweighting struct {
	Min  float64 `metric:"train/soft_reweight_min" doc:"smallest weight of a group (algorithm.soft_reweight)"`
	Max  float64 `metric:"train/soft_reweight_max" doc:"largest weight of a group"`
	Mean float64 `metric:"train/soft_reweight_mean" doc:"mean weight of a group"`
}

// SoftReweight multiplies advantages, in place, by their group's standard deviation over the largest one, so that
// groups whose rewards hardly differ count less. It is nil where there is no group.
func SoftReweight(advantages [][]float64, episodes []Trajectory) *Reweighting {
	_, groups := groupStatistics(episodes)
	largest, smallest, sum := 0.0, math.Inf(1), 0.0
	for _, g := range groups {
		largest = max(largest, g.std)
	}
	weight := func(group int) float64 { return groups[group].std / (largest + 1e-6) }
	for i, e := range episodes {
		for t := range advantages[i] {
			advantages[i][t] *= weight(e.Group)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(groups)) { // in order, so that the sum always rounds alike
		smallest = min(smallest, weight(id))
		sum += weight(id)
	}
	if len(groups) == 0 {
		return nil
	}
	return &Reweighting{smallest, largest / (largest + 1e-6), sum / float64(len(groups))}
}

// LengthWeight divides each episode's advantages, in place, by its number of sampled tokens over the mean number.
func LengthWeight(advantages [][]float64, masks [][]bool) {
	lengths, mean := make([]float64, len(masks)), 0.0
	over(masks, func(i, _ int) { lengths[i]++ })
	for _, n := range lengths {
		mean += n / float64(len(lengths))
	}
	for i := range advantages {
		for t := range advantages[i] {
			advantages[i][t] *= mean / (lengths[i] + 1e-6)
		}
	}
}

// Scale multiplies all advantages in place.
func Scale(advantages [][]float64, factor float64) {
	for i := range advantages {
		for t := range advantages[i] {
			advantages[i][t] *= factor
		}
	}
}

// over calls visit for every sampled token.
func over(masks [][]bool, visit func(i, t int)) {
	for i, mask := range masks {
		for t, sampled := range mask {
			if sampled {
				visit(i, t)
			}
		}
	}
}
