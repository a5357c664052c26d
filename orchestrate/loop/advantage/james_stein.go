package advantage

import (
	"slices"

	"gyre/internal/statistics"
)

// jamesStein takes from an episode's return a mean of its group's others that is drawn towards the mean of the other
// groups: RLOO with a shrunk baseline (Zeng et al., arXiv 2511.03710; James and Stein, 1961; Efron and Morris, 1973).
// With m and s² the means and variances of the other groups' returns, and n the size of the episode's own,
//
//	v = mean(s²)/(n − 1)   τ² = max(0, var(m) − mean(s²/size))   b = (m_others·τ² + mean(m)·v)/(v + τ²).
//
// Neither the means nor the share v/(v + τ²) holds the episode itself, so the baseline adds nothing to the mean of the
// gradient. With fewer than two other groups nothing is known of τ, and it is rloo.
var jamesStein = Estimator{Name: "james_stein", Adapts: true,
	Claim: Claim{Linear: Unbiased, Whole: Unbiased, Why: "neither the baseline nor its shrinkage holds the episode"},
	Linear: func(episodes []Trajectory, o Options) (advantages, returns [][]float64) {
		ids, members := returnsByGroup(episodes)
		_, fixed := returnsByGroup(o.scales(episodes))
		share, drawn := map[int]float64{}, map[int]float64{} // towards what, times how far
		for _, id := range ids {
			others := slices.DeleteFunc(slices.Clone(ids), func(other int) bool { return other == id })
			share[id] = shrinkage(others, fixed, len(members[id]))
			for _, other := range others {
				drawn[id] += share[id] * statistics.Mean(members[other]) / float64(len(others))
			}
		}
		return broadcast(episodes, func(i int) float64 {
			id, earned := episodes[i].Group, statistics.Sum(episodes[i].Rewards)
			mates := (statistics.Sum(members[id]) - earned) / float64(max(len(members[id])-1, 1))
			return earned - (1-share[id])*mates - drawn[id]
		}), nil
	}}

// returnsByGroup are the groups in the order of their first episodes, and their returns.
func returnsByGroup(episodes []Trajectory) (ids []int, members map[int][]float64) {
	members = map[int][]float64{}
	for _, e := range episodes {
		if members[e.Group] == nil {
			ids = append(ids, e.Group)
		}
		members[e.Group] = append(members[e.Group], statistics.Sum(e.Rewards))
	}
	return ids, members
}

// shrinkage is how far the baseline of a group of so many is drawn towards other groups' mean, from 0 to 1, as these
// say.
func shrinkage(others []int, members map[int][]float64, size int) float64 {
	var means, variances, errors []float64
	for _, id := range others {
		own := members[id]
		if means = append(means, statistics.Mean(own)); len(own) > 1 {
			d := statistics.Deviation(own)
			variances, errors = append(variances, d*d), append(errors, d*d/float64(len(own)))
		}
	}
	if len(means) < 2 || len(variances) == 0 {
		return 0
	} else if size == 1 {
		return 1
	}
	spread, within := statistics.Deviation(means), statistics.Mean(variances)/float64(size-1)
	between := max(0, spread*spread-statistics.Mean(errors))
	if within+between == 0 {
		return 0
	}
	return within / (within + between)
}
