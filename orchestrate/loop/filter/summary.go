package filter

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats/scalar"

	"gyre/internal/statistics"
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
