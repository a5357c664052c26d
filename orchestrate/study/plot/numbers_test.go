package plot

import (
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

func labels(list []plot.Tick) string {
	var out []string
	for _, t := range list {
		if !t.IsMinor() {
			out = append(out, t.Label)
		}
	}
	return strings.Join(out, " ")
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		ticker    plot.Ticker
		low, high float64
		want      string
	}{
		{ticks{}, 0, 1, "0.0 0.2 0.4 0.6 0.8 1.0"},
		{ticks{}, -0.07, 0.06, "−0.06 −0.04 −0.02 0.00 0.02 0.04 0.06"},
		{ticks{integer: true}, 0, 2, "0 1 2"},
		{ticks{}, 0, 250000, "0 50000 100000 150000 200000 250000"},
		{ticks{}, 0, 2.5e6, "0 5e5 1e6 1.5e6 2e6 2.5e6"},
		{ticks{}, 0, 9e-5, "0 2e−5 4e−5 6e−5 8e−5"},
		{logTicks{}, -2, 1, "0.01 0.1 1 10"},
		{logTicks{}, 0, 1, "1 2 5 10"},
		{logTicks{}, math.Log10(2.2), math.Log10(4.4), "2.5 3.0 3.5 4.0"},
	} {
		if got := labels(c.ticker.Ticks(c.low, c.high)); got != c.want {
			t.Errorf("%T from %v to %v: %q, want %q", c.ticker, c.low, c.high, got, c.want)
		}
	}
}

func TestMovingAverage(t *testing.T) {
	points := plotter.XYs{{X: 1, Y: 0}, {X: 2, Y: 6}, {X: 3, Y: 0}, {X: 4, Y: 0}}
	want := []float64{3, 2, 2, 0}
	for i, q := range movingAverage(points, 3) {
		if q.Y != want[i] || q.X != points[i].X {
			t.Errorf("value %d is %v, want %v", i, q, want[i])
		}
	}
}

func TestTimesAddUp(t *testing.T) {
	r := &rundir.Run{Records: []metrics.Record{{Step: 1, Values: map[string]any{
		"timing_s/adv": math.Inf(1), "timing_s/gen": 5.0, "timing_s/old_log_prob": 1.0, "timing_s/ref": 2.0, "timing_s/step": 10.0, "timing_s/testing": 4.0}}}}
	parts, whole := split(r.Records[0])
	if parts[0] != 5 || parts[1] != 3 || whole != 14 {
		t.Errorf("parts %v of %v s, want rollout 5, log-probs 3, whole 14 (validation comes on top of the step)", parts, whole)
	}
	p, ok := timePanel(r, "step")
	if !ok || len(p.legend) != 4 {
		t.Errorf("legend %v, want rollout, log-probs, validation and other", p.legend)
	}
}
