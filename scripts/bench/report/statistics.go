package report

import (
	"math"
	"slices"

	"gyre/internal/statistics"
)

// Spread is the middle and the ends of some values.
type Spread struct{ Median, Min, Max float64 }

func spread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	return Spread{median(values), slices.Min(values), slices.Max(values)}
}

// median of no values is NaN.
func median(values []float64) float64 { return statistics.Quantile(0.5, values) }

// Over is the spread of a figure over samples; values of 0 were not measured.
func Over(samples []Sample, figure func(Sample) float64) Spread {
	var values []float64
	for _, s := range samples {
		if v := figure(s); v != 0 {
			values = append(values, v)
		}
	}
	return spread(values)
}

// Ratio is the spread of figure(a)/figure(b) over the repeats that both have.
func Ratio(a, b []Sample, figure func(Sample) float64) Spread {
	var ratios []float64
	for _, x := range a {
		for _, y := range b {
			if x.Repeat == y.Repeat && figure(y) != 0 {
				ratios = append(ratios, figure(x)/figure(y))
			}
		}
	}
	return spread(ratios)
}

// peak is a sample's peak memory.
func peak(s Sample) float64 { return float64(s.PeakBytes) }
