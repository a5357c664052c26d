package filter

import (
	"fmt"
	"math"
	"slices"

	"gyre/orchestrate/config"
)

// rounding is the relative error that sums of scores may have gathered.
const rounding = 1e-12

// choose returns the candidates (indices into scores) that the strategy keeps, best first. total is the number of
// groups before any were dropped: top_k takes its share of all of them.
func choose(scores []float64, candidates []int, total int, o config.Filter) ([]int, error) {
	if o.Type != "largest" && o.Type != "smallest" {
		return nil, fmt.Errorf("filter.type: %q is neither largest nor smallest", o.Type)
	}
	smallest := o.Type == "smallest"
	ranked := rank(scores, candidates, smallest)
	switch o.Strategy {
	case "top_p":
		switch {
		case o.Value >= 1:
			return ranked, nil
		case o.ProbMode == "linear":
			return linear(scores, ranked, o.Value, o.SelectionEps), nil
		case o.ProbMode == "softmax":
			return softmax(scores, ranked, o.Value), nil
		}
		return nil, fmt.Errorf("filter.prob_mode: %q is neither linear nor softmax", o.ProbMode)
	case "top_k":
		return ranked[:clamp(int(o.Value*float64(total)), 1, len(ranked))], nil
	case "top_k_abs":
		return ranked[:clamp(int(o.Value), 1, len(ranked))], nil
	case "min_p":
		return minP(scores, ranked, o.Value, smallest), nil
	}
	return nil, fmt.Errorf("filter.strategy: %q is none of top_p, top_k, top_k_abs, min_p, none", o.Strategy)
}

// rank orders candidates by score, the lower index first among equals.
func rank(scores []float64, candidates []int, smallest bool) []int {
	ranked := slices.Clone(candidates)
	slices.SortStableFunc(ranked, func(a, b int) int {
		switch difference := scores[a] - scores[b]; {
		case difference == 0:
			return 0
		case difference < 0 == smallest:
			return -1
		}
		return 1
	})
	return ranked
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
	n := 0
	for _, g := range ranked {
		if smallest && scores[g] > highest || !smallest && scores[g] < lowest {
			continue
		}
		ranked[n] = g
		n++
	}
	return ranked[:n]
}

func clamp(k, low, high int) int { return min(max(k, low), high) }
