package gradients

import (
	"fmt"
	"math"

	"gyre/internal/statistics"
	"gyre/orchestrate/experiment"
	"gyre/torch"
)

// buffers is one gradient buffer per column of a measurement.
type buffers []*torch.Gradients

// newBuffers makes empty buffers; on an error none are left open.
func newBuffers(model *torch.Model, n int, fresh func(*torch.Model) (*torch.Gradients, error)) (buffers, error) {
	var b buffers
	for range n {
		g, err := fresh(model)
		if err != nil {
			b.close()
			return nil, fmt.Errorf("a gradient buffer: %w", err)
		}
		b = append(b, g)
	}
	return b, nil
}

func (b buffers) zero() error {
	for _, g := range b {
		if err := g.Zero(); err != nil {
			return err
		}
	}
	return nil
}

func (b buffers) add(other buffers) error {
	for i, g := range b { // over ranks these are exchanges, which come in one order
		if err := g.Add(other[i], 1); err != nil {
			return err
		}
	}
	return nil
}

func (b buffers) close() {
	for _, g := range b {
		g.Close()
	}
}

// vector is what remains of a gradient for inner products with others: the gradient itself, or a sketch of it; and
// its squared norm.
type vector struct {
	full   *torch.Gradients
	sketch []float32
	square float64
}

func vectorOf(g *torch.Gradients, full bool) (v vector, err error) {
	if full {
		v.full = g
	} else if v.sketch, err = g.Sketch(bucketSketch); err != nil {
		return v, err
	}
	v.square, _, err = g.Dot(g)
	return v, err
}

func (v vector) dot(other vector) (float64, error) {
	if v.full != nil {
		product, _, err := v.full.Dot(other.full)
		return product, err
	}
	return dotSketches(v.sketch, other.sketch), nil
}

// cosine of two gradients; nil where one of them has no length.
func (v vector) cosine(other vector) (*float64, error) {
	product, err := v.dot(other)
	return optional(statistics.Cosine(product, v.square, other.square)), err
}

func dotSketches(a, b []float32) (sum float64) {
	for k, x := range a {
		sum += float64(x) * float64(b[k])
	}
	return sum
}

// sumOf adds up sketches: the sketch of a sum is the sum of the sketches.
func sumOf(list []vector) []float32 {
	out := make([]float32, bucketSketch)
	for _, v := range list {
		for i, x := range v.sketch {
			out[i] += x
		}
	}
	return out
}

// The lengths of sketches, as they are planned.
const (
	bucketSketch  = experiment.BucketSketch
	episodeSketch = experiment.EpisodeSketch
)

// Signal splits a squared gradient norm ‖Σ g_i‖² over n groups into what the groups have in common and what is noise
// between them.
type Signal struct {
	// Square may be negative where there is little signal.
	Square float64  `metric:"signal_sq/{c}" unit:"squared norm" doc:"n/(n−1)·(‖G‖² − Σ‖g_i‖²), a U-statistic: estimates ‖E G‖² without bias; around 0 (also below) ‖G‖ is noise"`
	Low    *float64 `metric:"signal_sq_low/{c}" unit:"squared norm" doc:"lower end of its confidence interval, from three groups on; below 0 no gradient is proven"`
	High   *float64 `metric:"signal_sq_high/{c}" unit:"squared norm" doc:"upper end"`
	Noise  float64  `metric:"noise_sq/{c}" unit:"squared norm" doc:"‖G‖² − signal_sq = n·tr Ĉ, with Ĉ the unbiased covariance of the g_i"`
	Ratio  *float64 `metric:"snr/{c}" doc:"signal_sq / noise_sq: above 1 the direction is mostly signal; it grows with n"`
	// PerGroup compares buckets of different size, which neither the norm of their sums does (it grows with n) nor
	// that norm per sample (where gradients are noise, it falls as 1/√n).
	PerGroup  float64  `metric:"signal_per_group/{c}" doc:"√signal_sq / n, 0 where the estimate is negative: what one group contributes to the signal; compares buckets of different size"`
	GroupLow  *float64 `metric:"signal_per_group_low/{c}" doc:"lower end of its interval"`
	GroupHigh *float64 `metric:"signal_per_group_high/{c}" doc:"upper end"`
}

// Separate estimates the signal from the squared norm of the sum, the squared norm of each group's gradient, and each
// group's inner product with the sum; it is nil for fewer than two groups. Groups count as independent draws. The
// interval is Student's, with the delete-one jackknife's standard error of the U-statistic (Arvesen 1969) and n-1
// degrees of freedom: on normal noise it covers as often as stated or, where noise prevails, more often (Efron and
// Stein 1981: the jackknife's variance is never too small on average).
func Separate(square float64, squares, products []float64, confidence float64) *Signal {
	n := float64(len(squares))
	if n < 2 {
		return nil
	}
	sum := statistics.Sum(squares)
	s := &Signal{Square: n / (n - 1) * (square - sum)}
	s.Noise, s.PerGroup = square-s.Square, root(s.Square)/n
	s.Ratio = optional(s.Square/s.Noise, s.Noise != 0)
	if n < 3 {
		return s
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
	low, high := s.Square-half, s.Square+half
	lowest, highest := root(low)/n, root(high)/n
	s.Low, s.High, s.GroupLow, s.GroupHigh = &low, &high, &lowest, &highest
	return s
}

// root is the norm of a squared norm that is estimated and may be negative.
func root(square float64) float64 { return math.Sqrt(max(square, 0)) }

// optional is a number that may not exist.
func optional(v float64, exists bool) *float64 {
	if !exists {
		return nil
	}
	return &v
}
