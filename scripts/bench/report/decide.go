package report

import (
	"fmt"
	"math"
	"slices"

	"gyre/internal/statistics"
)

// Tolerated is the share of the baseline that a case must reach.
const Tolerated = 0.9

// Verdict is what a comparison with a baseline comes to.
type Verdict string

// Regression means slower than tolerated beyond what noise explains; Unclear that it looks so but noise may be the reason.
const (
	Fine       Verdict = "fine"
	Unclear    Verdict = "unclear"
	Regression Verdict = "regression"
)

// Comparison is a case's figures now over those of the baseline, with the 95 % confidence interval of that ratio.
type Comparison struct {
	Ratio, Low, High float64
	Verdict          Verdict
}

func (c Comparison) String() string {
	return fmt.Sprintf("%.3f (95 %%: %.3f … %.3f) of the baseline: %s", c.Ratio, c.Low, c.High, c.Verdict)
}

// minimalNoise is the least relative standard deviation that a measurement is credited with: a few samples may agree by chance.
const minimalNoise = 0.005

// Decide compares shares of the bound. Medians and median deviations make single outliers harmless; on the scale of logarithms a
// ratio is a difference, whose interval is Student's. Both sets are taken to be equally noisy: a baseline has few samples.
func Decide(baseline, now []float64) (Comparison, error) {
	if len(baseline) < 2 || len(now) < 2 {
		return Comparison{}, fmt.Errorf("%d samples against a baseline of %d: expected at least 2 of each", len(now), len(baseline))
	}
	a, b := logarithms(now), logarithms(baseline)
	difference := median(a) - median(b)
	sigma := max(1.4826*median(append(distances(a), distances(b)...)), minimalNoise)
	// The variance of a median of n normal values is π/2n times theirs.
	standard := sigma * math.Sqrt(math.Pi/2*(1/float64(len(a))+1/float64(len(b))))
	margin := statistics.Student(0.975, float64(len(a)+len(b)-2)) * standard
	c := Comparison{Ratio: math.Exp(difference), Low: math.Exp(difference - margin), High: math.Exp(difference + margin), Verdict: Fine}
	switch {
	case c.High < Tolerated:
		c.Verdict = Regression
	case c.Ratio < Tolerated:
		c.Verdict = Unclear
	}
	return c, nil
}

// CompareMemory compares peaks with those of the baseline, in words too. They hardly vary: the medians decide. Older baselines have none.
func CompareMemory(baseline, now []float64) (text string, fine bool) {
	switch {
	case len(now) == 0:
		return "memory not measured", true
	case len(baseline) == 0:
		return fmt.Sprintf("memory %.2f GB, not compared: the baseline has none (-write-baseline adds it)", median(now)/1e9), true
	}
	ratio := median(now) / median(baseline)
	if fine = ratio*Tolerated <= 1; !fine {
		return fmt.Sprintf("memory %.2f of the baseline: regression", ratio), false
	}
	return fmt.Sprintf("memory %.2f of the baseline", ratio), true
}

func logarithms(values []float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = math.Log(v)
	}
	return out
}

// distances of values from their median. Of an odd number one is the median itself, whose distance of 0 says nothing.
func distances(values []float64) []float64 {
	middle := median(values)
	var out []float64
	for _, v := range values {
		out = append(out, math.Abs(v-middle))
	}
	slices.Sort(out)
	return out[len(out)%2:]
}

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
