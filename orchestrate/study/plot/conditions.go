package plot

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"gyre/internal/statistics"
	"gyre/orchestrate/run/rundir"
)

// Picture is a figure under a name.
type Picture struct {
	Name string
	figure
}

// Title of the picture.
func (p Picture) Title() string { return p.title }

// Caption of the picture.
func (p Picture) Caption() string { return p.caption }

// Training is the figure of a run's training curves; false where it logged none.
func Training(r *rundir.Run) (Picture, bool) {
	f := training(r)
	return Picture{"training.png", f}, len(f.panels) > 0
}

// Steps compares the first, the middle and the last analysed step of a run; false with fewer than three.
func Steps(r *rundir.Run) (Picture, bool, error) {
	f, ok, err := threeSteps(r, postFilter)
	return Picture{"gradient_analysis_steps.png", f}, ok, err
}

// Step is the summary of an analysed step, and its gradient norms.
func Step(r *rundir.Run, step int) ([]Picture, error) {
	record, _ := r.At(step)
	s := newStep(r.Name, record, postFilter)
	summary, err := s.summary()
	if err != nil {
		return nil, err
	}
	norms, err := s.norms()
	return []Picture{{"summary", summary}, {"plots", norms}}, err
}

// Condition is a set of runs that differ in their seeds only.
type Condition struct {
	Label string
	Runs  []*rundir.Run
}

// conditionColours are eight, as the widest of the usual sweeps needs.
var conditionColours = append(slices.Clone(cycle), ink, color.NRGBA{140, 81, 10, 255})

// conditionPanels are what conditions are compared by.
var conditionPanels = []struct {
	title, unit string
	factor      float64
	series      func(r *rundir.Run) []rundir.Point
	sparse      bool    // validations: every value is drawn as it is
	least, most float64 // what the values can be
}{
	{"Validation success", "episodes (%)", 100, (*rundir.Run).Validations, true, 0, 100},
	{"Training success", "episodes (%)", 100, meanOf("train/*/success"), false, 0, 100},
	{"Score of kept episodes", "mean score", 1, meanOf("critic/score/mean"), false, math.Inf(-1), math.Inf(1)},
	{"Reward spread", "in-group std of returns", 1, meanOf("rollout/in_group_reward_std"), false, 0, math.Inf(1)},
	{"Policy entropy", "nats per token", 1, meanOf("actor/entropy"), false, 0, math.Inf(1)},
	{"Gradient norm", "L2 norm", 1, meanOf("actor/grad_norm"), false, 0, math.Inf(1)},
}

// meanOf is the mean of the metrics that a pattern names, step by step.
func meanOf(pattern string) func(r *rundir.Run) []rundir.Point {
	return func(r *rundir.Run) []rundir.Point {
		keys := r.Keys(pattern)
		var out []rundir.Point
		for _, record := range r.Records {
			var found []float64
			for _, key := range keys {
				if v, ok := rundir.Number(record, key); ok {
					found = append(found, v)
				}
			}
			if len(found) > 0 {
				out = append(out, rundir.Point{Step: record.Step, Value: statistics.Mean(found)})
			}
		}
		return out
	}
}

// mostBands is the number of conditions up to which bands can be told apart.
const mostBands = 4

// limit keeps the ends of an interval where values can be.
func limit(points plotter.XYs, least, most float64) {
	for i := range points {
		points[i].Y = min(max(points[i].Y, least), most)
	}
}

// Conditions compares conditions over the steps: one colour each; with several seeds thin lines for the runs, a thick one for their mean as far as
// all of them go, and its 95 % interval as a band (of few conditions). A run that a collapse rule stopped ends in a cross.
func Conditions(title string, list []Condition) Picture {
	f := figure{title: title, columns: 3, width: 2.7 * vg.Inch, height: 1.9 * vg.Inch}
	seeds := 0
	stopped := false
	for _, c := range list {
		seeds = max(seeds, len(c.Runs))
		for _, r := range c.Runs {
			stopped = stopped || r.Outcome().Rule != ""
		}
	}
	if seeds > 1 {
		f.caption = "thin: one run; thick: mean over seeds, as far as all of them go"
	}
	if seeds > 1 && len(list) <= mostBands {
		f.caption += "; band: its 95 % interval"
	}
	if stopped {
		if f.caption != "" {
			f.caption += "; "
		}
		f.caption += "cross: stopped early by a collapse rule"
	}
	for _, what := range conditionPanels {
		p := newPlot("training step", what.unit)
		p.X.Tick.Marker = ticks{integer: true}
		out := panel{title: what.title, plot: p}
		var all plotter.XYs
		var bands, runLines, means, marks []plot.Plotter // in this order, so that no curve lies under a band and no mark under a curve
		for i, c := range list {
			paint := conditionColours[i%len(conditionColours)]
			var runs []plotter.XYs
			var ends plotter.XYs
			for _, r := range c.Runs {
				var points plotter.XYs
				for _, q := range what.series(r) {
					points = append(points, plotter.XY{X: float64(q.Step), Y: q.Value * what.factor})
				}
				if len(points) == 0 {
					continue
				}
				if n := window(len(points)); n > 1 && !what.sparse {
					points = movingAverage(points, n)
				}
				runs = append(runs, points)
				if r.Outcome().Rule != "" {
					ends = append(ends, points[len(points)-1])
				}
				all = append(all, points...)
			}
			if len(runs) == 0 {
				continue
			}
			mean, low, high := across(runs)
			if len(runs) > 1 {
				limit(low, what.least, what.most)
				limit(high, what.least, what.most)
				if len(mean) > 1 && len(list) <= mostBands {
					bands = append(bands, band(low, high, paint))
				}
				for _, points := range runs {
					runLines = append(runLines, line(points, light(paint), 0.6))
				}
				if len(list) <= mostBands {
					all = append(append(all, low...), high...)
				}
			}
			means = append(means, line(mean, paint, 1.5))
			if what.sparse || len(mean) == 1 {
				means = append(means, dots(mean, paint, 2))
			}
			label := c.Label
			if len(ends) > 0 {
				marks = append(marks, crosses(ends, paint, 3.5))
				label += fmt.Sprintf(" (%d of %d stopped early)", len(ends), len(c.Runs))
			}
			out.legend = append(out.legend, entry{label, paint, markLine})
		}
		p.Add(slices.Concat(bands, runLines, means, marks)...)
		if len(all) == 0 {
			continue
		}
		if len(f.panels) > 0 {
			out.legend = nil // the first panel explains the colours
		}
		left, right, _, _ := plotter.XYRange(all)
		pad := math.Max((right-left)*0.02, 0.5)
		p.X.Min, p.X.Max = left-pad, right+pad
		fitY(p, all)
		f.panels = append(f.panels, out)
	}
	return Picture{"conditions.png", f}
}

// across averages runs over the steps that all of them have, with the 95 % interval of the mean (the mean itself for a single run).
func across(runs []plotter.XYs) (mean, low, high plotter.XYs) {
	for _, q := range runs[0] {
		at := []float64{}
		for _, points := range runs {
			if i := slices.IndexFunc(points, func(other plotter.XY) bool { return other.X == q.X }); i >= 0 {
				at = append(at, points[i].Y)
			}
		}
		if len(at) < len(runs) {
			continue
		}
		m, l, h := q.Y, q.Y, q.Y
		if len(at) > 1 {
			m, l, h = statistics.MeanInterval(at, 0.95)
		}
		mean, low, high = append(mean, plotter.XY{X: q.X, Y: m}), append(low, plotter.XY{X: q.X, Y: l}), append(high, plotter.XY{X: q.X, Y: h})
	}
	return mean, low, high
}

// band fills the space between two curves.
func band(low, high plotter.XYs, c color.NRGBA) *plotter.Polygon {
	outline := slices.Clone(low)
	for _, q := range slices.Backward(high) {
		outline = append(outline, q)
	}
	c.A = 32
	return &plotter.Polygon{XYs: []plotter.XYs{outline}, Color: c}
}

// Empty tells whether there is nothing to draw.
func (p Picture) Empty() bool { return len(p.panels) == 0 }
