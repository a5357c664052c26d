package plot

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"
)

// signal is a bucket's gradient norm without noise and its confidence interval: the roots of the logged squares, which may be negative.
// ok is false where the analysis has no interval (fewer than three groups, the paper profile, other trainers).
func signal(b bucket, component string) (middle, low, high float64, ok bool) {
	square, ok1 := b.get("signal_sq/" + component)
	l, ok2 := b.get("signal_sq_low/" + component)
	h, ok3 := b.get("signal_sq_high/" + component)
	root := func(v float64) float64 { return math.Sqrt(math.Max(v, 0)) }
	return root(square), root(l), root(h), ok1 && ok2 && ok3
}

// signals are the points and bars of those buckets that have an interval; at places them on the x axis.
func signals(list []bucket, component string, factor float64, at func(i int, b bucket) (float64, bool)) (points plotter.XYs, low, high []float64) {
	for i, b := range list {
		x, ok1 := at(i, b)
		middle, l, h, ok2 := signal(b, component)
		if ok1 && ok2 {
			points = append(points, plotter.XY{X: x, Y: middle * factor})
			low, high = append(low, l*factor), append(high, h*factor)
		}
	}
	return points, low, high
}

// top is the upper end of what is drawn.
func top(values []float64) float64 { return slices.Max(append(slices.Clone(values), 0)) }

// signalEntry explains the points.
func (s step) signalEntry() entry {
	text := "without noise, with its confidence interval"
	if v, ok := s.record.Float("grad_analysis/confidence"); ok {
		text = fmt.Sprintf("without noise, %g%% interval", 100*v)
	}
	return entry{text, ink, markDot}
}

// withSignal adds the task's norm without noise to a panel of norm against spread.
func (s step) withSignal(p panel, list []bucket) panel {
	points, low, high := signals(list, "task", 1, func(_ int, b bucket) (float64, bool) { return b.get("reward_std_mean") })
	if len(points) == 0 || len(p.legend) > 0 {
		return p
	}
	p.plot.Add(errorBars(points, low, high, ink), dots(points, ink, 1.8))
	p.plot.Y.Max = math.Max(p.plot.Y.Max, top(high)*1.1)
	p.legend = []entry{{"measured", blue, markDot}, s.signalEntry()}
	return p
}
