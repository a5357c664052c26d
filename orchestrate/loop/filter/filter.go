package filter

import (
	"errors"
	"fmt"
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

// Selection says which groups stay.
type Selection struct {
	Kept     []int              // indices of the kept groups, ascending
	Std      []float64          // unbiased standard deviation of each group's scores, to 12 digits; NaN for one member
	Ratio    float64            // kept groups / all groups
	Metrics  map[string]float64 // what to log, under RAGEN's names
	Unscored []int              // groups dropped because their score is not a finite number
}

// Apply selects groups by the options.
//
// A group with a score that is not finite is dropped: one with such a member always, a single-member group under a
// variance metric (its unbiased standard deviation does not exist) whenever there is a selection to make. When the
// options ask for nothing (top_p, value >= 1, include_zero) all groups with finite members are kept.
func Apply(groups [][]Member, options config.Filter) (Selection, error) {
	if len(groups) == 0 {
		return Selection{}, errors.New("filter: no groups to select from")
	}
	family, scoreOf, err := metric(options.Metric)
	if err != nil {
		return Selection{}, err
	}
	rewards, scores := make([]summary, len(groups)), make([]float64, len(groups))
	measured := make([]summary, len(groups))
	for g, members := range groups {
		if len(members) == 0 {
			return Selection{}, fmt.Errorf("filter: group %d has no members", g)
		}
		rewards[g] = summarise(values(members, "reward"))
		measured[g] = summarise(values(members, family))
		scores[g] = scoreOf(measured[g])
	}

	var candidates, unscored []int
	for g, score := range scores {
		switch {
		case !statistics.Finite(rewards[g].mean), !statistics.Finite(score) && !everything(options):
			unscored = append(unscored, g)
		case everything(options), options.IncludeZero, math.Abs(score) > zero:
			candidates = append(candidates, g)
		}
	}
	kept := candidates
	if !everything(options) && len(candidates) > 0 {
		if kept, err = choose(scores, candidates, len(groups), options); err != nil {
			return Selection{}, err
		}
		slices.Sort(kept)
	}

	selection := Selection{Kept: kept, Ratio: float64(len(kept)) / float64(len(groups)), Unscored: unscored,
		Std: make([]float64, len(groups)), Metrics: map[string]float64{}}
	for g := range rewards {
		selection.Std[g] = rewards[g].deviation()
	}
	selection.record("reward", rewards)
	if family != "reward" {
		selection.record(family, measured)
	}
	selection.recordCounts(measured, scores)
	return selection, nil
}

// everything reports whether the options keep all groups without looking at them.
func everything(o config.Filter) bool {
	return o.Strategy == "none" || o.Strategy == "top_p" && o.Value >= 1 && o.IncludeZero
}

// LossScale is the factor on advantages that answers for the groups left out: with fewer groups there are fewer
// optimizer steps, and "linear" (the kept ratio) or "sqrt" (its root) keep the size of a step's update in proportion.
func (s Selection) LossScale(mode string) (float64, error) {
	switch mode {
	case "none":
		return 1, nil
	case "linear":
		return s.Ratio, nil
	case "sqrt":
		return math.Sqrt(s.Ratio), nil
	}
	return 0, fmt.Errorf("filter.loss_scaling: %q is none of none, linear, sqrt", mode)
}
