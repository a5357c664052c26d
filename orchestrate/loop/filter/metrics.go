package filter

import (
	"math"

	"gyre/internal/statistics"
)

// record adds the means over all groups and over the kept ones of a quantity's in-group statistics. Values that are not
// finite (the deviation of single-member groups) are left out of the means; a mean over nothing is 0.
func (s *Selection) record(family string, groups []summary) {
	all := make([]int, len(groups))
	for g := range groups {
		all[g] = g
	}
	for prefix, chosen := range map[string][]int{"rollout/in_group_": all, "rollout/chosen_in_group_": s.Kept} {
		s.Metrics[prefix+family+"_std"] = mean(groups, chosen, func(g summary) float64 { return g.std })
		s.Metrics[prefix+family+"_max"] = mean(groups, chosen, func(g summary) float64 { return g.max })
		s.Metrics[prefix+family+"_mean"] = mean(groups, chosen, func(g summary) float64 { return g.mean })
		if family == "reward" {
			s.Metrics[prefix+family+"_sum"] = mean(groups, chosen, func(g summary) float64 { return g.sum })
		}
	}
}

// recordCounts adds the short names of the filter's own statistics and what became of the groups.
func (s *Selection) recordCounts(groups []summary, scores []float64) {
	all, zeros := make([]int, len(groups)), 0
	for g := range groups {
		all[g] = g
		if math.Abs(scores[g]) <= zero {
			zeros++
		}
	}
	for prefix, chosen := range map[string][]int{"rollout/in_group_": all, "rollout/chosen_in_group_": s.Kept} {
		s.Metrics[prefix+"std"] = mean(groups, chosen, func(g summary) float64 { return g.std })
		s.Metrics[prefix+"max"] = mean(groups, chosen, func(g summary) float64 { return g.max })
		s.Metrics[prefix+"mean"] = mean(groups, chosen, func(g summary) float64 { return g.mean })
	}
	s.Metrics["rollout/filter_kept_count"] = float64(len(s.Kept))
	s.Metrics["rollout/filter_kept_ratio"] = s.Ratio
	s.Metrics["rollout/filter_zero_count"] = float64(zeros)
	s.Metrics["rollout/filter_unscored_count"] = float64(len(s.Unscored))
	s.Metrics["rollout/empty_after_filter"] = 0
	if len(s.Kept) == 0 {
		s.Metrics["rollout/empty_after_filter"] = 1
	}
}

func mean(groups []summary, chosen []int, statistic func(summary) float64) float64 {
	sum, n := 0.0, 0
	for _, g := range chosen {
		if v := statistic(groups[g]); statistics.Finite(v) {
			sum += v
			n++
		}
	}
	return sum / float64(max(n, 1))
}
