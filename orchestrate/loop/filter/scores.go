package filter

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats/scalar"

	"gyre/internal/statistics"
	"gyre/orchestrate/config"
)

// summary describes the members of one group by one quantity. The standard deviation has n - 1 in the denominator: it
// is NaN for one value.
type summary struct{ std, mean, max, sum, size float64 }

// quantities are what members can be compared by.
var quantities = map[string]func(Member) float64{
	"reward":  func(m Member) float64 { return m.Score },
	"entropy": func(m Member) float64 { return m.Entropy },
	"length":  func(m Member) float64 { return float64(m.Length) },
}

func summarise(groups [][]Member, quantity string) (out []summary) {
	for _, members := range groups {
		var values []float64
		for _, m := range members {
			values = append(values, quantities[quantity](m))
		}
		most := slices.Max(values)
		out = append(out, summary{statistics.Deviation(values), statistics.Mean(values), most, statistics.Sum(values),
			max(most, -slices.Min(values))})
	}
	return out
}

// metrics are what filter.metric names: a quantity, and how a group's score follows from its summary. Those called
// variance are standard deviations, as in RAGEN.
var metrics = map[string]struct {
	quantity string
	score    func(summary) float64
}{
	"reward_variance":  {"reward", summary.deviation},
	"reward":           {"reward", summary.average},
	"reward_sum":       {"reward", func(s summary) float64 { return s.total(s.sum) }},
	"entropy":          {"entropy", summary.average},
	"entropy_variance": {"entropy", summary.deviation},
	"length":           {"length", summary.average},
}

// deviation is the standard deviation to twelve digits. What is left of it after them is the rounding of the scores,
// which must neither decide between groups of the same deviation nor move one across an edge.
func (s summary) deviation() float64 { return significant(s.std) }

func (s summary) average() float64 { return s.total(s.mean) }

// total is a sum or mean of the values to twelve digits, for the same reason: 0.1 + 0.2 - 0.3 is nothing, and (0.4 +
// 0.8) / 2 a tie with (0.5 + 0.7) / 2.
func (s summary) total(v float64) float64 {
	if math.Abs(v) <= rounding*s.size {
		return 0
	}
	return significant(v)
}

// significant rounds to twelve significant digits.
func significant(v float64) float64 {
	if v == 0 || !statistics.Finite(v) {
		return v
	}
	return scalar.Round(v, 11-int(math.Floor(math.Log10(math.Abs(v)))))
}

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
