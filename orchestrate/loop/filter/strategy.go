package filter

import (
	"cmp"
	"math"
	"slices"

	"gyre/orchestrate/config"
)

// rounding is the relative error that sums of scores may have gathered.
const rounding = 1e-12

// choose returns the candidates (indices into the scores of all groups) that the strategy keeps, best first; the lower
// index counts as the better among equals.
func choose(scores []float64, candidates []int, o config.Filter) []int {
	smallest := o.Type == "smallest"
	ranked := slices.Clone(candidates)
	slices.SortStableFunc(ranked, func(a, b int) int {
		if smallest {
			a, b = b, a
		}
		return cmp.Compare(scores[b], scores[a])
	})
	first := func(n int) []int { return ranked[:min(max(n, 1), len(ranked))] }
	switch {
	case o.Strategy == "top_k":
		return first(int(o.Value * float64(len(scores))))
	case o.Strategy == "top_k_abs":
		return first(int(o.Value))
	case o.Strategy == "min_p":
		return minP(scores, ranked, o.Value, smallest)
	case o.Value >= 1: // of top_p
		return ranked
	case o.ProbMode == "softmax":
		return softmax(scores, ranked, o.Value)
	}
	return linear(scores, ranked, o.Value, o.SelectionEps)
}

// linear keeps the shortest prefix whose scores reach value times the sum of all, less eps. Only positive scores are
// added, so nothing is kept when the threshold is not positive (all scores near zero) or out of reach.
func linear(scores []float64, ranked []int, value, eps float64) []int {
	total := 0.0
	for _, g := range ranked {
		total += scores[g]
	}
	threshold, reached := value*total-eps, 0.0
	for i, g := range ranked {
		if reaches(reached, threshold, total) {
			return ranked[:i]
		}
		if scores[g] <= 0 {
			return nil
		}
		reached += scores[g]
	}
	if reaches(reached, threshold, total) {
		return ranked
	}
	return nil
}

// reaches compares a running sum with a share of the total as real numbers would: nine of ten equal parts are 0.9 of
// them, though their floating-point sum falls short of it.
func reaches(sum, threshold, total float64) bool { return sum >= threshold-rounding*math.Abs(total) }

// softmax keeps the shortest prefix that holds value of the probability under softmax(scores), or softmax(-scores) when
// ranked is ascending. It always keeps at least one group.
func softmax(scores []float64, ranked []int, value float64) []int {
	weights, total := make([]float64, len(ranked)), 0.0
	for i, g := range ranked { // the first is the most likely, so no exponent is positive
		weights[i] = math.Exp(-math.Abs(scores[g] - scores[ranked[0]]))
		total += weights[i]
	}
	reached := 0.0
	for i := range ranked {
		reached += weights[i]
		if reaches(reached, value*total, total) {
			return ranked[:i+1]
		}
	}
	return ranked
}

// minP keeps what is within a factor of the best score. Where the best score is negative, nothing need be within the
// factor.
func minP(scores []float64, ranked []int, value float64, smallest bool) []int {
	best := scores[ranked[0]]
	slack := zero + rounding*math.Abs(best)
	highest, lowest := best/max(value, zero)+slack, best*value-slack
	return slices.DeleteFunc(ranked, func(g int) bool {
		return smallest && scores[g] > highest || !smallest && scores[g] < lowest
	})
}
