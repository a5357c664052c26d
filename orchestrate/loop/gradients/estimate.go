package gradients

import (
	"math"

	"gyre/internal/statistics"
)

// Signal splits a squared gradient norm ‖Σ g_i‖² over n groups into what the groups have in common and what is noise
// between them.
type Signal struct {
	// Square estimates ‖E Σ g_i‖² without bias: n/(n-1)·(‖Σ g_i‖² - Σ ‖g_i‖²), a U-statistic. Where there is little
	// signal it may be negative.
	Square float64
	// Noise is the rest, the estimate of n·tr(Cov g): by this much the squared norm is too large on average.
	Noise float64
	// Low and High bound Square's confidence interval; NaN with fewer than three groups.
	Low, High float64
}

// Ratio is signal to noise: NaN where there is no noise at all.
func (s Signal) Ratio() float64 {
	if s.Noise == 0 {
		return math.NaN()
	}
	return s.Square / s.Noise
}

// PerGroup is the norm of what one of n groups contributes to the signal, with its interval: √Square / n, 0 where the
// estimate is negative. It compares buckets of different size, which neither the norm of their sums does (it grows
// with n) nor that norm per sample (where gradients are noise, it falls as 1/√n). The interval is NaN with fewer than
// three groups.
func (s Signal) PerGroup(n int) (norm, low, high float64) {
	root := func(square float64) float64 { return math.Sqrt(max(square, 0)) / float64(n) }
	return root(s.Square), root(s.Low), root(s.High)
}

// Separate estimates the signal from the squared norm of the sum, the squared norm of each group's gradient, and each
// group's inner product with the sum. Groups count as independent draws. The interval is Student's, with the
// delete-one jackknife's standard error of the U-statistic (Arvesen 1969) and n-1 degrees of freedom: on normal noise
// it covers as often as stated or, where noise prevails, more often (Efron and Stein 1981: the jackknife's variance
// is never too small on average). ok is false for fewer than two groups.
func Separate(square float64, squares, products []float64, confidence float64) (s Signal, ok bool) {
	n := float64(len(squares))
	if n < 2 {
		return Signal{}, false
	}
	sum := 0.0
	for _, d := range squares {
		sum += d
	}
	s.Square = n / (n - 1) * (square - sum)
	s.Noise = square - s.Square
	s.Low, s.High = math.NaN(), math.NaN()
	if n < 3 {
		return s, true
	}
	// The estimate without group i, on the scale of n groups: ‖Σ g - g_i‖² = ‖Σ g‖² - 2⟨g_i, Σ g⟩ + ‖g_i‖².
	without, mean := make([]float64, len(squares)), 0.0
	for i, d := range squares {
		without[i] = n * n / ((n - 1) * (n - 2)) * (square - 2*products[i] + 2*d - sum)
		mean += without[i] / n
	}
	variance := 0.0
	for _, w := range without {
		d := w - mean
		variance += (n - 1) / n * d * d
	}
	half := statistics.Student((1+confidence)/2, n-1) * math.Sqrt(variance)
	s.Low, s.High = s.Square-half, s.Square+half
	return s, true
}
