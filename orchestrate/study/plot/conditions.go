package plot

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gyre/internal/figure"
	"gyre/internal/statistics"
	"gyre/orchestrate/run/rundir"
)

// Condition is a set of runs that differ in their seeds only.
type Condition struct {
	Label string
	Runs  []*rundir.Run
}

// conditionPanel is what conditions are compared by: the mean of the metrics that a pattern names.
type conditionPanel struct {
	title, unit string
	factor      float64
	pattern     string
	sparse      bool    // validations: every value is drawn as it is
	least, most float64 // what the values can be
}

var conditionPanels = []conditionPanel{
	{"Validation success", "episodes (%)", 100, "val-env/*/success", true, 0, 100},
	{"Training success", "episodes (%)", 100, "train/*/success", false, 0, 100},
	{"Score of kept episodes", "mean score", 1, "critic/score/mean", false, math.Inf(-1), math.Inf(1)},
	{"Reward std", stdLabel, 1, "rollout/in_group_reward_std", false, 0, math.Inf(1)},
	{"Policy entropy", "nats per token", 1, "actor/entropy", false, 0, math.Inf(1)},
	{"Gradient norm", "L2 norm", 1, "actor/grad_norm", false, 0, math.Inf(1)},
}

// mostBands is the number of conditions up to which bands can be told apart.
const mostBands = 4

// Conditions compares conditions over the steps: one colour each; with several seeds thin lines for the runs, a thick
// one for their mean as far as all of them go, and its 95 % interval as a band (of few conditions). The validation
// success of a condition of one run has the interval of its episodes. A run that a collapse rule stopped ends in a
// cross.
func Conditions(title string, list []Condition) figure.Figure {
	f := figure.Figure{Name: "conditions.png", Title: title, Columns: 3}
	seeds, stopped, bands := 0, false, len(list) <= mostBands
	for _, c := range list {
		seeds = max(seeds, len(c.Runs))
		stopped = stopped || slices.ContainsFunc(c.Runs, func(r *rundir.Run) bool { return r.Outcome().Rule != "" })
	}
	if seeds > 1 {
		f.Note("thin: one run; thick: mean over seeds, as far as all of them go")
	}
	switch single := slices.ContainsFunc(list, func(c Condition) bool { return len(c.Runs) == 1 }); {
	case !bands:
		f.Note(fmt.Sprintf("no bands: there are more than %d conditions", mostBands))
	case seeds > 1:
		f.Note("band: its 95 % interval")
		fallthrough
	default:
		if single {
			f.Note("one run: its validation success has the 95 % interval of its episodes, its other curves none")
		}
	}
	if stopped {
		f.Note("cross: stopped early by a collapse rule")
	}
	for i, what := range conditionPanels {
		p := figure.Panel{Title: what.title, X: figure.Axis{Label: "training step", Integer: true},
			Y: figure.Axis{Label: what.unit}, Wide: i == 0}
		var ends []figure.Mark // of the runs, above everything else
		for k, c := range list {
			end, lines := what.draw(c, figure.Color(k), bands)
			if len(lines) > 0 && len(f.Panels) == 0 { // the first panel explains the colours
				label := &lines[len(lines)-1].Label
				if *label = c.Label; len(end.X) > 0 {
					*label += fmt.Sprintf(" (%d of %d stopped early)", len(end.X), len(c.Runs))
				}
			}
			p.Add(lines...)
			ends = append(ends, end)
		}
		if p.Add(ends...); !p.Empty() {
			f.Panels = append(f.Panels, p)
		}
	}
	return f
}

// ByTokens compares conditions whose steps are of different sizes: validation success over the tokens that the policy
// had sampled by then, mean over the runs.
func ByTokens(title string, list []Condition) figure.Figure {
	what, f := conditionPanels[0], figure.Figure{Name: "success_by_tokens.png", Title: title, Columns: 1, Width: 5.5,
		Height: 3.2}
	if !slices.ContainsFunc(list, func(c Condition) bool { return c.sampled(math.MaxInt) > 0 }) {
		return f
	}
	p := figure.Panel{Title: what.title, X: figure.Axis{Label: "thousands of sampled tokens"},
		Y: figure.Axis{Label: what.unit}}
	for k, c := range list {
		_, lines := what.draw(c, figure.Color(k), len(list) <= mostBands)
		for i := range lines {
			steps := lines[i].X
			lines[i].X = nil
			for _, step := range steps {
				lines[i].X = append(lines[i].X, c.sampled(int(step))/1000)
			}
		}
		if len(lines) > 0 {
			lines[len(lines)-1].Label = c.Label
		}
		p.Add(lines...)
	}
	if !p.Empty() {
		f.Panels = append(f.Panels, p)
		f.Note("thin: one run; thick: mean over seeds; band: its 95 % interval")
	}
	return f
}

// sampled is how many tokens a run had sampled for training after a step, mean over the runs.
func (c Condition) sampled(step int) (tokens float64) {
	for _, r := range c.Runs {
		for _, point := range r.Mean("rollout/new_tokens") {
			if point.Step <= step {
				tokens += point.Value / float64(len(c.Runs))
			}
		}
	}
	return tokens
}

// draw is the lines of a condition, the mean last, and a cross at the end of each run that a collapse rule stopped.
func (what conditionPanel) draw(c Condition, paint color.NRGBA, bands bool) (end figure.Mark, lines []figure.Mark) {
	end = figure.Mark{Kind: figure.Crosses, Color: paint, Width: 3.5}
	var runs [][]rundir.Point
	for _, r := range c.Runs {
		points := r.Mean(what.pattern)
		if len(points) == 0 {
			continue
		}
		if !what.sparse {
			points = movingAverage(points, window(len(points)))
		}
		runs = append(runs, points)
		if last := points[len(points)-1]; r.Outcome().Rule != "" {
			end.Add(float64(last.Step), what.factor*last.Value)
		}
	}
	if len(runs) == 0 {
		return end, nil
	}
	for _, points := range runs {
		if len(runs) > 1 {
			thin := line(points, what.factor)
			thin.Color, thin.Width = figure.Light(paint), 0.6
			lines = append(lines, thin)
		}
	}
	mean := what.mean(runs)
	if len(runs) == 1 {
		mean.Low, mean.High = what.ofEpisodes(c.Runs[0], mean.Y)
	}
	if mean.Color, mean.Width = paint, 1.5; !bands {
		mean.Low, mean.High = nil, nil
	}
	if what.sparse {
		lines = append(lines, figure.Mark{Kind: figure.Dots, X: mean.X, Y: mean.Y, Color: paint, Width: 2})
	}
	return end, append(lines, mean)
}

// ofEpisodes is the 95 % interval of a run's validation successes over their episodes; nil where there is none.
func (what conditionPanel) ofEpisodes(r *rundir.Run, shares []float64) (low, high []float64) {
	n := r.Episodes()
	if what.pattern != "val-env/*/success" || n == 0 {
		return nil, nil
	}
	for _, share := range shares {
		e := statistics.Wilson(share/what.factor, n, 0.95)
		low, high = append(low, what.factor*e.Low), append(high, what.factor*e.High)
	}
	return low, high
}

// mean of runs over the steps that all of them have, with its 95 % interval within what the values can be.
func (what conditionPanel) mean(runs [][]rundir.Point) (m figure.Mark) {
	for _, q := range runs[0] {
		var at []float64
		for _, points := range runs {
			if i := slices.IndexFunc(points, func(other rundir.Point) bool { return other.Step == q.Step }); i >= 0 {
				at = append(at, what.factor*points[i].Value)
			}
		}
		if len(at) == len(runs) {
			mean := statistics.MeanInterval(at, 0.95)
			m.AddInterval(float64(q.Step), mean.Value, math.Max(mean.Low, what.least), math.Min(mean.High, what.most))
		}
	}
	return m
}
