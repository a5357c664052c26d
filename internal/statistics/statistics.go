// Package statistics holds the few formulas by which Gyre turns many numbers into one: means, deviations, quantiles and
// confidence intervals, written once for filters, advantages, analyses, plots and benchmarks. Distributions are
// gonum's. Sums are not: gonum adds in lanes on some processors, and a seed should give the same bits on all of them.
package statistics

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat/distuv"
)

// Sum adds the values in their order.
func Sum(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum
}

// Mean of no values is NaN. Of equal values it is that value, whatever rounding would make of their sum.
func Mean(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	if low := slices.Min(values); low == slices.Max(values) {
		return low
	}
	return Sum(values) / float64(len(values))
}

// Deviation is the standard deviation with n - 1 in the denominator, NaN for fewer than two values. Equal values
// deviate by exactly 0.
func Deviation(values []float64) float64 {
	if len(values) < 2 {
		return math.NaN()
	}
	return math.Sqrt(squares(values) / float64(len(values)-1))
}

// PopulationDeviation is the standard deviation with n in the denominator, numpy's: 0 for one value, NaN for none.
func PopulationDeviation(values []float64) float64 {
	return math.Sqrt(squares(values) / float64(len(values)))
}

// squares is the sum of squared differences from the mean.
func squares(values []float64) float64 {
	mean, sum := Mean(values), 0.0
	for _, v := range values {
		d := v - mean
		sum += d * d
	}
	return sum
}

// Quantile interpolates between the order statistics on both sides of p·(n-1) (what numpy calls linear). Of no values
// it is NaN.
func Quantile(p float64, values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return sortedQuantile(p, slices.Sorted(slices.Values(values)))
}

// sortedQuantile is Quantile of values in order, of which there are some.
func sortedQuantile(p float64, sorted []float64) float64 {
	at := min(max(p, 0), 1) * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// Student is the p-quantile of Student's distribution with the given degrees of freedom.
func Student(p, freedom float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile(p)
}

// Estimate is a number with its interval; NaN where there is none.
type Estimate struct{ Value, Low, High float64 }

// MeanInterval is the mean with Student's two-sided interval of the given confidence around it, which takes two
// values that differ: how far equal values would have spread is not known.
func MeanInterval(values []float64, confidence float64) Estimate {
	mean, deviation := Mean(values), Deviation(values)
	if !(deviation > 0) {
		return Estimate{mean, math.NaN(), math.NaN()}
	}
	n := float64(len(values))
	half := Student((1+confidence)/2, n-1) * deviation / math.Sqrt(n)
	return Estimate{mean, mean - half, mean + half}
}

// resamples of the bootstrap: the interval's ends then move by about a hundredth of its width from one stream of
// random numbers to another.
const resamples = 5000

// Bootstrap gives a statistic of samples its percentile interval: values are drawn again with replacement, within each
// row of a sample by itself, so that every row keeps its weight. The interval is NaN where no row has two values, where
// the statistic is not defined, and where drawing again does not change it: nothing is known of its spread then. The
// statistic does not keep what it is given, which the next draw overwrites.
func Bootstrap(confidence float64, statistic func(...[][]float64) float64, samples ...[][]float64) Estimate {
	varies := slices.ContainsFunc(slices.Concat(samples...), func(row []float64) bool { return len(row) > 1 })
	value := statistic(samples...)
	if !varies || math.IsNaN(value) {
		return Estimate{value, math.NaN(), math.NaN()}
	}
	random := rand.New(rand.NewPCG(1, 2)) // the same values have the same interval
	values := make([]float64, resamples)
	drawn := make([][][]float64, len(samples))
	for s, rows := range samples {
		drawn[s] = make([][]float64, len(rows))
		for r, row := range rows {
			drawn[s][r] = make([]float64, len(row))
		}
	}
	for i := range values {
		for s, rows := range samples {
			for r, row := range rows {
				for k := range row {
					drawn[s][r][k] = row[random.IntN(len(row))]
				}
			}
		}
		values[i] = statistic(drawn...)
	}
	slices.Sort(values)
	low, high := sortedQuantile((1-confidence)/2, values), sortedQuantile((1+confidence)/2, values)
	if low == high {
		low, high = math.NaN(), math.NaN()
	}
	return Estimate{value, low, high}
}

// InterquartileMean is the mean of the middle half of a sample, all rows together (Agarwal et al. 2021): the lowest and
// the highest quarter are left out, each rounded down to whole values.
func InterquartileMean(sample ...[][]float64) float64 {
	all := slices.Concat(sample[0]...)
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	cut := len(all) / 4
	return Mean(all[cut : len(all)-cut])
}

// ProbabilityOfImprovement is the probability that a value of one sample is higher than one of another in the same row,
// averaged over the rows that both have (Agarwal et al. 2021: a row is a task, its values are those of runs).
func ProbabilityOfImprovement(samples ...[][]float64) float64 {
	var rows []float64
	for i := range min(len(samples[0]), len(samples[1])) {
		if share := Superiority(samples[0][i], samples[1][i]); !math.IsNaN(share) {
			rows = append(rows, share)
		}
	}
	return Mean(rows)
}

// Wilson is the score interval of a binomial proportion (Wilson 1927), which stays within [0, 1].
func Wilson(measured float64, n int, confidence float64) Estimate {
	z := distuv.UnitNormal.Quantile((1 + confidence) / 2)
	share, m := min(max(measured, 0), 1), float64(n)
	centre := (share + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(share*(1-share)/m+z*z/(4*m*m))
	// At 0 and 1 an end is the share itself, which rounding would miss.
	return Estimate{measured, min(max(centre-half, 0), share), max(min(centre+half, 1), share)}
}

// Cosine of two vectors from their inner product and their squared norms. It does not exist where either has no length.
func Cosine(product, square, other float64) (float64, bool) {
	if !(square > 0 && other > 0) {
		return 0, false
	}
	return product / math.Sqrt(square*other), true
}

// Superiority is the probability that a value of x is larger than one of y, ties counting one half: the Mann-Whitney
// statistic over the number of pairs, and the area under the ROC curve. It is NaN where either has none.
func Superiority(x, y []float64) float64 {
	wins := 0.0
	for _, a := range x {
		for _, b := range y {
			wins += float64(1+cmp.Compare(a, b)) / 2
		}
	}
	return wins / float64(len(x)*len(y))
}

// Spearman is the correlation of ranks, those of equal values being their mean, with its interval by Fisher's
// transformation and Bonett and Wright's variance (Psychometrika 2000). It is NaN where one side does not vary, and the
// interval below five pairs.
func Spearman(x, y []float64, confidence float64) Estimate {
	a, b := ranks(x), ranks(y)
	var product, square, other float64
	for i := range a {
		product, square, other = product+a[i]*b[i], square+a[i]*a[i], other+b[i]*b[i]
	}
	rho, ok := Cosine(product, square, other)
	if !ok {
		return Estimate{math.NaN(), math.NaN(), math.NaN()}
	}
	rho = min(max(rho, -1), 1)
	n := float64(len(x))
	if n < 5 {
		return Estimate{rho, math.NaN(), math.NaN()}
	}
	half := distuv.UnitNormal.Quantile((1+confidence)/2) * math.Sqrt((1+rho*rho/2)/(n-3))
	z := math.Atanh(rho)
	return Estimate{rho, math.Tanh(z - half), math.Tanh(z + half)}
}

// ranks of values, less their mean.
func ranks(values []float64) []float64 {
	sorted, order := slices.Clone(values), make([]int, len(values))
	floats.Argsort(sorted, order)
	out := make([]float64, len(values))
	for i := 0; i < len(order); {
		end := i + 1
		for end < len(order) && sorted[end] == sorted[i] {
			end++
		}
		for _, k := range order[i:end] {
			out[k] = float64(i+end-1)/2 - float64(len(values)-1)/2
		}
		i = end
	}
	return out
}

// Finite reports whether a value is a number to reckon with.
func Finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Moments accumulates a mean and a variance value by value (Welford 1962).
type Moments struct {
	n        int
	mean, m2 float64
}

// Add takes one more value.
func (m *Moments) Add(v float64) {
	m.n++
	d := v - m.mean
	m.mean += d / float64(m.n)
	m.m2 += d * (v - m.mean)
}

// Mean is that of the values that were added (0 for none).
func (m *Moments) Mean() float64 { return m.mean }

// Variance is the unbiased one; 0 for fewer than two values.
func (m *Moments) Variance() float64 {
	if m.n < 2 {
		return 0
	}
	return m.m2 / float64(m.n-1)
}
