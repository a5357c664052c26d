// Package filter keeps the groups of a step that are worth training on.
//
// A group is the set of episodes that started from the same state. Groups are scored by one statistic of their
// members (by default the standard deviation of rewards: a group whose members all earn the same teaches a
// group-relative estimator nothing) and a strategy selects among the scores. The statistics, strategies, thresholds
// and metric names are those of RAGEN's rollout filter (Wang et al., "RAGEN", 2025; the reward-variance filter of its
// second version), with its unspecified cases settled: ties go to the lower index, groups whose score is not a number
// are dropped and counted, and comparisons hold as they would for real numbers (RAGEN's hold as they happen to in
// float32): deviations are rounded to twelve digits, equal scores have none, and shares may fall short by rounding.
package filter

import (
	"math"
	"slices"

	"gyre/internal/statistics"
	"gyre/orchestrate/config"
)

// zero is the standard deviation below which the scores of a group count as equal.
const zero = 1e-10

// Member is what the filter needs to know of one episode.
type Member struct {
	Score   float64 // the return, after penalties and normalisation
	Entropy float64 // mean policy entropy over its sampled tokens; read by the entropy metrics only
	Length  int     // sampled tokens
}

// Result says which groups stay.
type Result struct {
	Kept     []int     // indices of the kept groups, ascending
	Std      []float64 // unbiased standard deviation of each group's scores, to 12 digits; NaN for one member
	Unscored []int     // groups dropped because their score is not a finite number
	Metrics  Metrics
}

// Metrics say what the filter did, under RAGEN's names.
type Metrics struct {
	Means    map[string]Means `metric:""` // by what {groups} stands for
	Kept     int              `metric:"filter_kept_count" doc:"groups kept"`
	Ratio    float64          `metric:"filter_kept_ratio" unit:"share" doc:"of the groups"`
	Zero     int              `metric:"filter_zero_count" doc:"groups whose score is zero"`
	Unscored int              `metric:"filter_unscored_count" doc:"groups left out because their score is not a finite number"`
}

// Means are over the groups whose statistic is a finite number: the deviation of a single-member group is none. A mean
// over nothing is 0.
type Means struct {
	Std  float64  `metric:"{groups}_std" doc:"mean over these groups of the standard deviation of their members"`
	Max  float64  `metric:"{groups}_max" doc:"of the largest"`
	Mean float64  `metric:"{groups}_mean" doc:"of the mean"`
	Sum  *float64 `metric:"{groups}_sum" doc:"of the sum, of rewards"`
}

// Apply selects groups of at least one member by the options.
//
// A group with a score that is not finite is dropped: one with such a member always, a single-member group under a
// variance metric (its unbiased standard deviation does not exist) whenever there is a selection to make. When the
// options ask for nothing (top_p, value >= 1, include_zero) all groups with finite members are kept.
func Apply(groups [][]Member, options config.Filter) Result {
	metric := metrics[options.Metric]
	rewards, measured := summarise(groups, "reward"), summarise(groups, metric.quantity)
	everything := options.Strategy == "none" ||
		options.Strategy == "top_p" && options.Value >= 1 && options.IncludeZero
	var out Result
	scores := make([]float64, len(groups))
	for g := range groups {
		scores[g] = metric.score(measured[g])
		out.Std = append(out.Std, rewards[g].deviation())
		switch score := scores[g]; {
		case !statistics.Finite(rewards[g].mean), !statistics.Finite(score) && !everything:
			out.Unscored = append(out.Unscored, g)
		case everything, options.IncludeZero, math.Abs(score) > zero:
			out.Kept = append(out.Kept, g)
		}
		if math.Abs(scores[g]) <= zero {
			out.Metrics.Zero++
		}
	}
	if !everything && len(out.Kept) > 0 {
		out.Kept = choose(scores, out.Kept, options)
		slices.Sort(out.Kept)
	}
	m := &out.Metrics
	m.Kept, m.Unscored, m.Ratio = len(out.Kept), len(out.Unscored), float64(len(out.Kept))/float64(len(groups))
	m.Means = map[string]Means{}
	for name, of := range map[string][]summary{"_reward": rewards, "_" + metric.quantity: measured, "": measured} {
		kept := make([]summary, len(out.Kept))
		for i, g := range out.Kept {
			kept[i] = of[g]
		}
		m.Means["in_group"+name] = means(of, name == "_reward")
		m.Means["chosen_in_group"+name] = means(kept, name == "_reward")
	}
	return out
}

// Signal tells which groups have a score that is a number and not zero.
func Signal(groups [][]Member, options config.Filter) []bool {
	metric := metrics[options.Metric]
	signal := make([]bool, len(groups))
	for g, s := range summarise(groups, metric.quantity) {
		score := metric.score(s)
		signal[g] = statistics.Finite(score) && math.Abs(score) > zero
	}
	return signal
}

func means(groups []summary, sums bool) Means {
	mean := func(statistic func(summary) float64) float64 {
		sum, n := 0.0, 0
		for _, g := range groups {
			if v := statistic(g); statistics.Finite(v) {
				sum += v
				n++
			}
		}
		return sum / float64(max(n, 1))
	}
	m := Means{Std: mean(func(s summary) float64 { return s.std }), Max: mean(func(s summary) float64 { return s.max }),
		Mean: mean(func(s summary) float64 { return s.mean })}
	if sums {
		m.Sum = new(mean(func(s summary) float64 { return s.sum }))
	}
	return m
}

// LossScale is the factor on advantages that answers for the groups left out: with fewer groups there are fewer
// optimizer steps, and "linear" (the kept ratio) or "sqrt" (its root) keep the size of a step's update in proportion.
func (s Result) LossScale(mode string) float64 {
	switch mode {
	case "linear":
		return s.Metrics.Ratio
	case "sqrt":
		return math.Sqrt(s.Metrics.Ratio)
	}
	return 1
}
