package filter

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats/scalar"

	"gyre/internal/statistics"
)

// summary describes the members of one group by one quantity.
type summary struct{ std, mean, max, sum, size float64 }

// summarise takes the standard deviation with n - 1 in the denominator: NaN for one value.
func summarise(values []float64) summary {
	return summary{std: statistics.Deviation(values), mean: statistics.Mean(values), max: slices.Max(values),
		sum: statistics.Sum(values), size: max(slices.Max(values), -slices.Min(values))}
}

// deviation is the standard deviation to twelve digits. What is left of it after them is the rounding of the scores,
// which must neither decide between groups of the same deviation nor move one across an edge.
func (s summary) deviation() float64 { return significant(s.std) }

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

// metric returns the quantity behind a filter metric and how a group's score follows from its summary. The
// metrics called variance are standard deviations, as in RAGEN.
func metric(name string) (family string, score func(summary) float64, err error) {
	mean := func(s summary) float64 { return s.total(s.mean) }
	switch name {
	case "reward_variance":
		return "reward", summary.deviation, nil
	case "reward":
		return "reward", mean, nil
	case "reward_sum":
		return "reward", func(s summary) float64 { return s.total(s.sum) }, nil
	case "entropy":
		return "entropy", mean, nil
	case "entropy_variance":
		return "entropy", summary.deviation, nil
	case "length":
		return "length", mean, nil
	}
	return "", nil, fmt.Errorf("filter.metric: %q is none of reward_variance, reward, reward_sum, entropy, "+
		"entropy_variance, length", name)
}

func values(members []Member, family string) []float64 {
	out := make([]float64, len(members))
	for i, m := range members {
		switch family {
		case "reward":
			out[i] = m.Score
		case "entropy":
			out[i] = m.Entropy
		case "length":
			out[i] = float64(m.Length)
		}
	}
	return out
}
