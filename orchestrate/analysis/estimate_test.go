package analysis

import (
	"math"
	"math/rand/v2"
	"testing"
)

// draw makes n group gradients of a known mean with noise of known covariance, and what Separate reads of them.
func draw(r *rand.Rand, n int, mean, deviation []float64) (square float64, squares, products []float64) {
	groups, sum := make([][]float64, n), make([]float64, len(mean))
	for i := range groups {
		groups[i] = make([]float64, len(mean))
		for k := range mean {
			groups[i][k] = mean[k] + deviation[k]*r.NormFloat64()
			sum[k] += groups[i][k]
		}
	}
	inner := func(a, b []float64) (out float64) {
		for k := range a {
			out += a[k] * b[k]
		}
		return out
	}
	for _, g := range groups {
		squares, products = append(squares, inner(g, g)), append(products, inner(g, sum))
	}
	return inner(sum, sum), squares, products
}

func TestSignalIsUnbiasedAndCovered(t *testing.T) {
	const dimension, trials = 60, 3000
	r := rand.New(rand.NewPCG(5, 7))
	for _, n := range []int{3, 5, 20} {
		for _, ratio := range []float64{0, 1, 20} { // true signal to noise
			mean, deviation := make([]float64, dimension), make([]float64, dimension)
			trace, length := 0.0, 0.0
			for k := range mean {
				deviation[k] = 1 / math.Sqrt(1+0.2*float64(k))
				mean[k] = r.NormFloat64()
				trace += deviation[k] * deviation[k]
				length += mean[k] * mean[k]
			}
			for k := range mean {
				mean[k] *= math.Sqrt(ratio * trace / float64(n) / length)
			}
			wantSignal, wantNoise := ratio*trace*float64(n), trace*float64(n)
			var signal, noise, square moments
			covered := 0
			for range trials {
				total, squares, products := draw(r, n, mean, deviation)
				s, ok := Separate(total, squares, products, 0.95)
				if !ok {
					t.Fatal("no estimate")
				}
				signal.add(s.Square)
				noise.add(s.Noise)
				square.add(total)
				if s.Low <= wantSignal && wantSignal <= s.High {
					covered++
				}
			}
			if z := signal.z(wantSignal); math.Abs(z) > 3 {
				t.Errorf("n=%d, ratio %v: the signal's bias is %.1f standard errors", n, ratio, z)
			}
			if z := noise.z(wantNoise); math.Abs(z) > 3 {
				t.Errorf("n=%d, ratio %v: the noise's bias is %.1f standard errors", n, ratio, z)
			}
			// What it is there for: the plain squared norm is too large by the noise.
			if z := square.z(wantSignal); z < 10 {
				t.Errorf("n=%d, ratio %v: the plain squared norm is only %.1f standard errors too large", n, ratio, z)
			}
			if share := float64(covered) / trials; share < 0.93 {
				t.Errorf("n=%d, ratio %v: the 95%% interval covers %.3f", n, ratio, share)
			} else if ratio == 20 && share > 0.98 {
				t.Errorf("n=%d, ratio %v: the 95%% interval covers %.3f: too wide", n, ratio, share)
			}
		}
	}
}

type moments struct{ n, sum, squares float64 }

func (m *moments) add(v float64) { m.n++; m.sum += v; m.squares += v * v }

// z is the distance of the mean from a value in standard errors of the mean.
func (m *moments) z(want float64) float64 {
	mean := m.sum / m.n
	return (mean - want) / math.Sqrt((m.squares/m.n-mean*mean)/m.n)
}

func TestSignalOfFewGroups(t *testing.T) {
	if _, ok := Separate(1, []float64{1}, []float64{1}, 0.95); ok {
		t.Error("one group has no noise estimate")
	}
	s, ok := Separate(4, []float64{1, 1}, []float64{2, 2}, 0.95) // two equal gradients: all signal
	if !ok || s.Square != 4 || s.Noise != 0 || !math.IsNaN(s.Low) || !math.IsNaN(s.Ratio()) {
		t.Errorf("two equal groups: %+v", s)
	}
	s, _ = Separate(0, []float64{1, 1}, []float64{0, 0}, 0.95) // two opposite ones: none
	if s.Square != -4 || s.Noise != 4 {
		t.Errorf("two opposite groups: %+v", s)
	}
}

func TestStudentQuantile(t *testing.T) {
	for _, c := range []struct{ p, freedom, want float64 }{
		{0.975, 1, 12.7062}, {0.975, 2, 4.30265}, {0.975, 3, 3.18245}, {0.975, 7, 2.36462}, {0.975, 20, 2.08596}, {0.95, 4, 2.13185},
		{0.995, 127, 2.61510},
	} {
		if got := studentQuantile(c.p, c.freedom); math.Abs(got-c.want) > 1e-4 {
			t.Errorf("t quantile %v with %v degrees: %.5f, want %.5f", c.p, c.freedom, got, c.want)
		}
	}
}
