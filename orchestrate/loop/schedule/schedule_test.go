package schedule

import (
	"math"
	"testing"
)

func TestCourses(t *testing.T) {
	for _, c := range []struct {
		s    Schedule
		want []float64 // rates of steps 0, 1, …
	}{
		{Schedule{Kind: "constant", Peak: 2}, []float64{2, 2, 2}},
		{Schedule{Kind: "constant", Peak: 2, Warmup: 4}, []float64{.5, 1, 1.5, 2, 2, 2}},
		{Schedule{Kind: "linear", Peak: 2, Total: 5}, []float64{2, 1.5, 1, .5, 0, 0}},
		{Schedule{Kind: "linear", Peak: 2, Total: 5, Floor: .5}, []float64{2, 1.75, 1.5, 1.25, 1, 1}},
		{Schedule{Kind: "linear", Peak: 2, Warmup: 2, Total: 5, Floor: .1}, []float64{1, 2, 2, 1.1, .2, .2}},
		{Schedule{Kind: "linear", Peak: 2, Total: 1}, []float64{2, 2}},
		{Schedule{Kind: "cosine", Peak: 2, Total: 1, Warmup: 1}, []float64{2, 2}},
		{Schedule{Kind: "linear", Peak: 0, Total: 3, Floor: 1}, []float64{0, 0, 0}},
		{Schedule{Kind: "cosine", Peak: 2, Total: 5}, []float64{2, 1 + math.Sqrt2/2, 1, 1 - math.Sqrt2/2, 0, 0}},
		{Schedule{Kind: "cosine", Peak: 2, Warmup: 1, Total: 4, Floor: .5}, []float64{2, 2, 1.5, 1}},
	} {
		for step, want := range c.want {
			if got := c.s.At(step); !(math.Abs(got-want) <= 1e-12) {
				t.Errorf("%+v at %d: %v, want %v", c.s, step, got, want)
			}
		}
	}
}
