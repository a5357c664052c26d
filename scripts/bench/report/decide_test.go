package report

import (
	"math/rand/v2"
	"testing"
)

// drawn are n shares around a level with relative noise, and with outliers that are half as fast.
func drawn(r *rand.Rand, n int, level, noise, outliers float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = level * (1 + noise*r.NormFloat64())
		if r.Float64() < outliers {
			out[i] /= 2
		}
	}
	return out
}

// verdicts counts what 2000 checks of n samples against a baseline of m come to.
func verdicts(t *testing.T, m, n int, level, noise, outliers float64) map[Verdict]int {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	counts := map[Verdict]int{}
	for range 2000 {
		c, err := Decide(drawn(r, m, 0.6, noise, outliers), drawn(r, n, 0.6*level, noise, outliers))
		if err != nil {
			t.Fatal(err)
		}
		if c.Low > c.Ratio || c.Ratio > c.High {
			t.Fatalf("the ratio lies outside of its interval: %+v", c)
		}
		counts[c.Verdict]++
	}
	return counts
}

func TestDecisionOnSyntheticNumbers(t *testing.T) {
	for _, c := range []struct {
		name                   string
		m, n                   int
		level, noise, outliers float64
		verdict                Verdict
		least, most            int // of 2000
	}{
		{"unchanged, quiet", 3, 5, 1, 0.02, 0, Regression, 0, 0},
		{"unchanged, noisy", 3, 5, 1, 0.08, 0, Regression, 0, 15},
		{"unchanged, outliers", 5, 5, 1, 0.02, 0.1, Regression, 0, 40},
		{"unchanged, quiet, is fine", 3, 5, 1, 0.02, 0, Fine, 1990, 2000},
		{"unchanged, few samples", 2, 4, 1, 0.03, 0, Regression, 0, 10},
		{"at the limit", 5, 5, 0.9, 0.03, 0, Regression, 0, 150},
		{"a little slower", 3, 5, 0.95, 0.02, 0, Regression, 0, 10},
		{"a fifth slower", 3, 5, 0.8, 0.02, 0, Regression, 1900, 2000},
		{"a fifth slower, few samples", 2, 4, 0.8, 0.02, 0, Regression, 1700, 2000},
		{"a fifth slower, noisy, is not fine", 3, 5, 0.8, 0.05, 0, Fine, 0, 60},
		{"half as fast, noisy", 3, 5, 0.5, 0.08, 0, Regression, 1900, 2000},
		{"faster", 3, 5, 1.5, 0.05, 0, Fine, 2000, 2000},
	} {
		n := verdicts(t, c.m, c.n, c.level, c.noise, c.outliers)[c.verdict]
		t.Logf("%s: %d of 2000 are %s", c.name, n, c.verdict)
		if n < c.least || n > c.most {
			t.Errorf("%s: %d of 2000 are %s, expected %d to %d", c.name, n, c.verdict, c.least, c.most)
		}
	}
}

func TestMemoryIsComparedWhereTheBaselineHasIt(t *testing.T) {
	for _, c := range []struct {
		baseline, now []float64
		want          string
		fine          bool
	}{
		{[]float64{1e9, 1e9}, []float64{1.05e9, 9e9, 1.05e9}, "memory 1.05 of the baseline", true},
		{[]float64{1e9, 1e9}, []float64{1.2e9, 1.2e9}, "memory 1.20 of the baseline: regression", false},
		{nil, []float64{7e8}, "memory 0.70 GB, not compared: the baseline has none (-write-baseline adds it)", true},
		{[]float64{1e9}, nil, "memory not measured", true},
	} {
		if text, fine := CompareMemory(c.baseline, c.now); text != c.want || fine != c.fine {
			t.Errorf("%v against %v: %q, %v; want %q, %v", c.now, c.baseline, text, fine, c.want, c.fine)
		}
	}
}

func TestDecisionNeedsSamples(t *testing.T) {
	if _, err := Decide([]float64{1}, []float64{1, 1}); err == nil {
		t.Error("one sample is enough for a decision")
	}
}
