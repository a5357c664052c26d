package statistics

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func near(t *testing.T, what string, got, want, slack float64) {
	t.Helper()
	if !(math.Abs(got-want) <= slack) {
		t.Errorf("%s = %.17g, want %.17g", what, got, want)
	}
}

// Equal values have no deviation and are their own mean, however 0.1 is rounded.
func TestEqualValues(t *testing.T) {
	for _, v := range []float64{0.1, -0.3, 1e17 / 3, 0} {
		for n := 2; n < 50; n++ {
			values := slices.Repeat([]float64{v}, n)
			if d := Deviation(values); d != 0 {
				t.Fatalf("%d times %g deviate by %g", n, v, d)
			}
			if m := Mean(values); m != v {
				t.Fatalf("the mean of %d times %g is %g", n, v, m)
			}
		}
	}
}

func TestDeviation(t *testing.T) {
	near(t, "of 10.9 and three losses", Deviation([]float64{10.9, -1.1, -1, -1}), 5.966853, 1e-6)
	near(t, "of two", Deviation([]float64{3, 1}), math.Sqrt2, 1e-15)
	near(t, "mean", Mean([]float64{1, 2, 6}), 3, 0)
	if !math.IsNaN(Deviation([]float64{1})) || !math.IsNaN(Mean(nil)) || !math.IsNaN(Quantile(.5, nil)) {
		t.Error("statistics of too few values must be NaN")
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	for p, want := range map[float64]float64{0: 1, 1: 4, .5: 2.5, .25: 1.75, 1. / 3: 2, -1: 1, 2: 4} {
		near(t, "quantile", Quantile(p, values), want, 1e-15)
	}
	near(t, "of one", Quantile(.9, []float64{7}), 7, 0)
}

func TestStudent(t *testing.T) {
	for _, c := range []struct{ p, freedom, want float64 }{
		{0.975, 1, 12.7062}, {0.975, 2, 4.30265}, {0.975, 3, 3.18245}, {0.975, 7, 2.36462}, {0.975, 20, 2.08596},
		{0.95, 4, 2.13185},
		{0.995, 127, 2.61510},
	} {
		near(t, "t quantile", Student(c.p, c.freedom), c.want, 1e-4)
	}
	e := MeanInterval([]float64{1, 2, 3, 4}, .95)
	half := 3.18245 * math.Sqrt(5./3) / 2
	near(t, "mean", e.Value, 2.5, 0)
	near(t, "low", e.Low, 2.5-half, 1e-4)
	near(t, "high", e.High, 2.5+half, 1e-4)
	if e := MeanInterval([]float64{5}, .95); e.Value != 5 || !math.IsNaN(e.Low) || !math.IsNaN(e.High) {
		t.Errorf("one value: %+v", e)
	}
	mean := func(samples ...[][]float64) float64 { return Mean(samples[0][0]) }
	for what, e := range map[string]Estimate{"mean": MeanInterval([]float64{5, 5}, .95),
		"bootstrap":   Bootstrap(.95, mean, [][]float64{{5, 5, 5}}),
		"probability": Bootstrap(.95, ProbabilityOfImprovement, [][]float64{{3, 4}}, [][]float64{{1, 2}})} {
		if !Finite(e.Value) || !math.IsNaN(e.Low) || !math.IsNaN(e.High) {
			t.Errorf("%s of values that say nothing of its spread: %+v", what, e)
		}
	}
}

func TestWilson(t *testing.T) {
	for _, c := range []struct {
		share     float64
		n         int
		low, high float64
	}{{.5, 10, .2366, .7634}, {0, 20, 0, .1611}, {1, 20, .8389, 1}, {.3, 200, .24075, .36679}} {
		e := Wilson(c.share, c.n, .95)
		near(t, "low", e.Low, c.low, 1e-4)
		near(t, "high", e.High, c.high, 1e-4)
	}
	if e := Wilson(0, 5, .95); e.Low != 0 || e.High >= 1 {
		t.Errorf("no success: %+v", e)
	}
	if e := Wilson(1, 5, .95); e.High != 1 || e.Low <= 0 {
		t.Errorf("all successes: %+v", e)
	}
}

func TestCosine(t *testing.T) {
	if c, ok := Cosine(-6, 4, 9); !ok || c != -1 {
		t.Errorf("opposite: %v, %v", c, ok)
	}
	for _, s := range []float64{0, -1, math.NaN()} {
		if _, ok := Cosine(1, s, 1); ok {
			t.Errorf("a squared norm of %v has a cosine", s)
		}
		if _, ok := Cosine(1, 1, s); ok {
			t.Errorf("a squared norm of %v has a cosine", s)
		}
	}
	if Finite(math.NaN()) || Finite(math.Inf(-1)) || !Finite(0) {
		t.Error("finite")
	}
}

func TestMoments(t *testing.T) {
	var m Moments
	if m.Variance() != 0 || m.Mean() != 0 {
		t.Error("of nothing")
	}
	values := []float64{3, 1e3, -7, 2.5, 2.5}
	for _, v := range values {
		m.Add(v)
	}
	near(t, "mean", m.Mean(), Mean(values), 1e-12)
	near(t, "deviation", math.Sqrt(m.Variance()), Deviation(values), 1e-10)
}

// The statistic is also that of the sum of x's ranks among all values, equal ones sharing the mean of theirs.
func TestSuperiorityFollowsFromRanks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var x, y []float64
		for range 2 + rng.IntN(20) {
			if v := float64(rng.IntN(5)); rng.IntN(2) == 0 {
				x = append(x, v)
			} else {
				y = append(y, v)
			}
		}
		all, ranks := slices.Sorted(slices.Values(slices.Concat(x, y))), 0.0
		for _, v := range x {
			first := slices.Index(all, v)
			last, _ := slices.BinarySearch(all, v+0.5)
			ranks += float64(first+1+last) / 2
		}
		n := float64(len(x))
		want := (ranks - n*(n+1)/2) / (n * float64(len(y)))
		if got := Superiority(x, y); math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > 1e-12 {
			t.Errorf("%v %v: %v, want %v", x, y, got, want)
		}
	}
}

// The expected numbers are of the definitions, written out in Python.
func TestSpearman(t *testing.T) {
	e := Spearman([]float64{1, 1, 2, 5, 4, 4, 4, 7}, []float64{2, 1, 4, 3, 6, 6, 5, 9}, .95)
	near(t, "rho", e.Value, 0.7286172011241444, 1e-12)
	near(t, "low", e.Low, -0.060170254485158746, 1e-9)
	near(t, "high", e.High, 0.9572354777505531, 1e-9)
	rising, falling := []float64{1, 2, 3, 4, 5, 6}, []float64{9, 8, 3, 2, 1, -7}
	if e := Spearman(rising, falling, .95); e != (Estimate{-1, -1, -1}) {
		t.Errorf("falling ranks: %v, want -1", e)
	}
	if e := Spearman(rising[:4], falling[:4], .95); e.Value != -1 || !math.IsNaN(e.Low) {
		t.Errorf("four pairs: %v, want -1 without an interval", e)
	}
	for _, x := range [][]float64{nil, {1}, {2, 2, 2, 2, 2, 2}} {
		if e := Spearman(x, rising[:len(x)], .95); !math.IsNaN(e.Value) || !math.IsNaN(e.High) {
			t.Errorf("%v: %v, want NaN", x, e)
		}
	}
}
