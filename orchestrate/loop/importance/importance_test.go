package importance

import (
	"math"
	"testing"
)

var (
	proximal  = []float32{-1, -2, -3, -40}
	behaviour = []float32{-1, -2.5, -2, -1}
	mask      = []bool{false, true, true, true}
)

// Unsampled tokens have no weight, and exponents end at ±20.
func TestWeights(t *testing.T) {
	for level, want := range map[string][]float64{
		"token":     {0, math.Exp(.5), math.Exp(-1), math.Exp(-20)},
		"sequence":  {0, math.Exp(-20), math.Exp(-20), math.Exp(-20)},
		"geometric": {0, math.Exp(-39.5 / 3), math.Exp(-39.5 / 3), math.Exp(-39.5 / 3)},
	} {
		compare(t, level, Options{Level: level}.Weights(proximal, behaviour, mask), want)
	}
	compare(t, "truncate", Options{Correction: "truncate", Level: "token", Low: .5, High: 1.5}.Weights(proximal,
		behaviour, mask), []float64{0, 1.5, .5, .5})
	compare(t, "mask", Options{Correction: "mask", Level: "token", Low: .3, High: 1.5}.Weights(proximal, behaviour,
		mask), []float64{0, 0, math.Exp(-1), 0})
}

func compare(t *testing.T, name string, got, want []float64) {
	t.Helper()
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-6*want[i] {
			t.Errorf("%s: weight %d is %v, want %v", name, i, got[i], want[i])
		}
	}
}

// Rejection takes tokens or whole episodes, and clamps the log-ratio of each token before it is summed.
func TestKept(t *testing.T) {
	all, none := []bool{false, true, true, true}, []bool{false, false, false, false}
	for _, c := range []struct {
		o    Options
		want []bool
	}{
		{Options{}, all},
		{Options{Reject: "none", RejectHigh: 2}, all},
		{Options{Reject: "token", RejectLow: .5, RejectHigh: 2}, []bool{false, true, false, false}},
		{Options{Reject: "sequence", RejectLow: .5, RejectHigh: 2}, none},
		{Options{Reject: "geometric", RejectLow: math.Exp(-20.6 / 3), RejectHigh: 2}, all},
		{Options{Reject: "geometric", RejectLow: math.Exp(-20.4 / 3), RejectHigh: 2}, none},
		{Options{Reject: "k3", RejectHigh: 7}, all},
		{Options{Reject: "k3", RejectHigh: 6}, none},
	} {
		for i, kept := range c.o.Kept(proximal, behaviour, mask) {
			if kept != c.want[i] {
				t.Errorf("%+v: token %d kept: %v", c.o, i, kept)
			}
		}
	}
}
