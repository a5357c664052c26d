package gradients

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gyre/internal/statistics"
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
	const dimension = 60
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
			var signal, noise, square statistics.Moments
			covered := 0
			for range trials {
				total, squares, products := draw(r, n, mean, deviation)
				s := Separate(total, squares, products, 0.95)
				signal.Add(s.Square)
				noise.Add(s.Noise)
				square.Add(total)
				if *s.Low <= wantSignal && wantSignal <= *s.High {
					covered++
				}
			}
			if off := z(signal, wantSignal); math.Abs(off) > 3 {
				t.Errorf("n=%d, ratio %v: the signal's bias is %.1f standard errors", n, ratio, off)
			}
			if off := z(noise, wantNoise); math.Abs(off) > 3 {
				t.Errorf("n=%d, ratio %v: the noise's bias is %.1f standard errors", n, ratio, off)
			}
			// What it is there for: the plain squared norm is too large by the noise.
			if off := z(square, wantSignal); off < 10 {
				t.Errorf("n=%d, ratio %v: the plain squared norm is only %.1f standard errors too large", n, ratio, off)
			}
			if share := float64(covered) / trials; share < 0.93 {
				t.Errorf("n=%d, ratio %v: the 95%% interval covers %.3f", n, ratio, share)
			} else if ratio == 20 && share > 0.98 {
				t.Errorf("n=%d, ratio %v: the 95%% interval covers %.3f: too wide", n, ratio, share)
			}
		}
	}
}

const trials = 3000

// z is the distance of the mean from a value in standard errors of the mean.
func z(m statistics.Moments, want float64) float64 {
	return (m.Mean() - want) / math.Sqrt(m.Variance()/trials)
}

// The interval is that of the jackknife as the books have it: the estimate is made again from the gradients themselves
// with each group left out.
func TestIntervalIsTheDeleteOneJackknife(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	// estimate of the squared norm of n times the mean, from the group gradients
	estimate := func(groups [][]float64, n float64) float64 {
		between, pairs := 0.0, 0.0
		for i, a := range groups {
			for j, b := range groups {
				if i == j {
					continue
				}
				for k := range a {
					between += a[k] * b[k]
				}
				pairs++
			}
		}
		return n * n * between / pairs
	}
	for _, n := range []int{3, 4, 9} {
		groups, sum := make([][]float64, n), make([]float64, 5)
		for i := range groups {
			groups[i] = make([]float64, 5)
			for k := range sum {
				groups[i][k] = 1 + r.NormFloat64()
				sum[k] += groups[i][k]
			}
		}
		var squares, products []float64
		square := 0.0
		for _, g := range groups {
			own, with := 0.0, 0.0
			for k := range g {
				own += g[k] * g[k]
				with += g[k] * sum[k]
			}
			squares, products = append(squares, own), append(products, with)
		}
		for _, v := range sum {
			square += v * v
		}
		var without []float64
		for i := range groups {
			without = append(without, estimate(slices.Concat(groups[:i], groups[i+1:]), float64(n)))
		}
		variance := 0.0
		for _, w := range without {
			variance += math.Pow(w-statistics.Mean(without), 2) * float64(n-1) / float64(n)
		}
		half := map[int]float64{3: 4.302653, 4: 3.182446, 9: 2.306004}[n] * math.Sqrt(variance)
		got := Separate(square, squares, products, .95)
		whole := estimate(groups, float64(n))
		for what, pair := range map[string][2]float64{"square": {got.Square, whole},
			"noise": {got.Noise, square - whole},
			"low":   {*got.Low, whole - half}, "high": {*got.High, whole + half}} {
			if math.Abs(pair[0]-pair[1]) > 1e-6*math.Abs(pair[1]) {
				t.Errorf("%d groups: %s = %.9g, want %.9g", n, what, pair[0], pair[1])
			}
		}
	}
}

func TestSignalOfFewGroups(t *testing.T) {
	if Separate(1, nil, nil, .95) != nil || Separate(1, []float64{1}, []float64{1}, 0.95) != nil {
		t.Error("one group has no noise estimate")
	}
	s := Separate(4, []float64{1, 1}, []float64{2, 2}, 0.95) // two equal gradients: all signal
	if s == nil || s.Square != 4 || s.Noise != 0 || s.PerGroup != 1 || s.Low != nil || s.Ratio != nil ||
		s.GroupLow != nil {
		t.Errorf("two equal groups: %+v", s)
	}
	s = Separate(0, []float64{1, 1}, []float64{0, 0}, 0.95) // two opposite ones: none
	if s.Square != -4 || s.Noise != 4 || *s.Ratio != -1 || s.PerGroup != 0 {
		t.Errorf("two opposite groups: %+v", s)
	}
}
