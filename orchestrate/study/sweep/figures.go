package sweep

import (
	"cmp"
	"fmt"
	"image/color"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/figure"
	"gyre/orchestrate/study/plot"
)

// figures draw a study: learning curves, success over sampled tokens, final success by condition, how far each run got
// and how it ended, and, where two axes make up the conditions, a map of success over them.
func figures(name string, list []group) (out []figure.Figure) {
	list, names := brief(list)
	var conditions []plot.Condition
	drawn := bestOf(list, figure.Colors)
	for _, g := range drawn {
		condition := plot.Condition{Label: g.label}
		for _, r := range g.rows {
			if r.logged != nil {
				condition.Runs = append(condition.Runs, r.logged)
			}
		}
		if len(condition.Runs) > 0 {
			conditions = append(conditions, condition)
		}
	}
	if curves := plot.Conditions(name, conditions); len(curves.Panels) > 0 {
		curves.Name = "learning_curves.png"
		if len(drawn) < len(list) {
			curves.Note(fmt.Sprintf("the best %d of %d", len(drawn), len(list)))
		}
		out = append(out, curves)
	}
	if tokens := plot.ByTokens(name, conditions); len(tokens.Panels) > 0 {
		out = append(out, tokens)
	}
	if len(list) > 0 {
		out = append(out, finalSuccess(name, list), timeline(name, list))
	}
	for i := range out {
		out[i].Note(names)
	}
	stages := map[int][]group{}
	for _, g := range list {
		stages[g.Stage] = append(stages[g.Stage], g)
	}
	for _, stage := range slices.Sorted(maps.Keys(stages)) {
		file, title := "heat_map.png", name
		if len(stages) > 1 {
			file, title = fmt.Sprintf("heat_map_stage_%d.png", stage), fmt.Sprintf("%s, stage %d", name, stage)
		}
		if f, ok := heatMap(title, stages[stage]); ok {
			f.Name = file
			out = append(out, f)
		}
	}
	return out
}

// longestLabel in characters: longer ones would leave a figure no room.
const longestLabel = 40

// brief labels conditions: a value on a single axis with the axis's name; values on several axes alone where whole
// labels are too long, and what they are of is for the caption.
func brief(list []group) (out []group, names string) {
	axes, long := 0, false
	for _, g := range list {
		axes, long = max(axes, len(g.Coordinates)), long || len(g.label) > longestLabel
	}
	out = slices.Clone(list)
	for i, g := range out {
		var keys, values []string
		for _, at := range g.Coordinates {
			key, value, _ := strings.Cut(at, "=")
			keys, values = append(keys, key), append(values, value)
		}
		switch {
		case len(keys) < axes && axes > 1:
			return list, ""
		case axes == 1 && len(keys) == 1:
			out[i].label = g.Coordinates[0]
		case axes > 1 && long:
			out[i].label, names = strings.Join(values, " · "), strings.Join(keys, " · ")
		}
	}
	return out, names
}

// bestOf keeps the n conditions of the highest mean, in the order that they have.
func bestOf(list []group, n int) []group {
	ranked := slices.SortedStableFunc(slices.Values(list), func(a, b group) int {
		return cmp.Compare(b.mean.Value, a.mean.Value) // NaN is below all others
	})
	ranked = ranked[:min(n, len(ranked))]
	return slices.DeleteFunc(slices.Clone(list), func(g group) bool {
		return !slices.ContainsFunc(ranked, func(o group) bool { return o.Run == g.Run })
	})
}

// ends are how a run can end, in the order of legends.
var ends = []struct {
	status Status
	label  string
	color  color.NRGBA
	whole  bool // it came as far as it was to come
}{
	{Finished, "finished", figure.Green, true},
	{Paused, "not promoted further", figure.Sky, true},
	{StoppedEarly, "stopped early by a collapse rule", figure.Vermilion, false},
	{Failed, "failed", figure.Ink, false},
	{Running, "not finished", figure.Grey, false},
	{Pending, "not finished", figure.Grey, false},
}

// end is the place of a run's end among them.
func (r row) end() int {
	for i, e := range ends {
		if e.status == r.run.Status {
			return i
		}
	}
	return len(ends) - 1
}

// endMarks are empty marks for the ends: dots for runs that came as far as they were to come, crosses for others.
func endMarks() (out []figure.Mark) {
	for _, e := range ends {
		m := figure.Mark{Kind: figure.Crosses, Color: e.color, Label: e.label, Width: 2.6}
		if e.whole {
			m.Kind, m.Width = figure.Dots, 2.2
		}
		out = append(out, m)
	}
	return out
}

// rows is a panel with a row for each label, from the top down, and the height of its figure in inches for rows of so
// many points.
func rows(labels []string, x figure.Axis, each float64, marks ...figure.Mark) ([]figure.Panel, float64) {
	slices.Reverse(labels)
	return []figure.Panel{{X: x, Y: figure.Axis{Names: labels}, Marks: marks}},
		(math.Max(float64(len(labels))*each, 50) + 34) / 72
}

// finalSuccess has a bar per condition: the mean of the last validations with its interval, and a mark per run.
func finalSuccess(name string, list []group) figure.Figure {
	var labels []string
	runs := endMarks()
	means := figure.Mark{Kind: figure.Bars, Color: figure.Light(figure.Blue), Horizontal: true}
	stopped := figure.Mark{Kind: figure.Bars, Color: figure.Light(figure.Vermilion), Horizontal: true}
	for i, g := range list {
		labels = append(labels, g.label)
		y := float64(len(list) - 1 - i)
		m := &means
		if g.collapsed() == len(g.runs()) {
			m = &stopped
		}
		m.AddInterval(100*g.mean.Value, y, 100*g.mean.Low, 100*g.mean.High)
		for k, r := range g.runs() {
			x := 100 * r.Last
			if math.IsNaN(x) {
				x = 0
			}
			runs[r.end()].Add(x, y+0.16*(float64(len(g.runs())-1)/2-float64(k)))
		}
	}
	f := figure.Figure{Name: "final_success.png", Title: name + ": final success", Columns: 1, Width: 5.4,
		Caption: "bars: mean over runs with its 95 % interval (red: all of them stopped early); marks: the runs; a " +
			"run without a validation stands at 0"}
	f.Panels, f.Height = rows(labels, figure.Axis{Label: "validation success at the end (%)", Low: 0, High: 1}, 20,
		append([]figure.Mark{means, stopped}, runs...)...)
	return f
}

// timeline has a row per run: how many steps it did, and how it ended.
func timeline(name string, list []group) figure.Figure {
	var labels []string
	var bars []figure.Mark
	crosses, reasons := endMarks(), figure.Mark{Kind: figure.Words, Color: figure.Ink}
	total, longest := 0, 1
	for _, g := range list {
		total += len(g.runs())
	}
	for _, g := range list {
		for _, r := range g.runs() {
			label := g.label
			if len(g.runs()) > 1 {
				label += ", seed " + strconv.Itoa(r.run.Seed)
			}
			y, steps, end := float64(total-1-len(labels)), float64(r.Steps), ends[r.end()]
			labels, longest = append(labels, label), max(longest, r.Steps)
			bar := figure.Mark{X: []float64{0, steps}, Y: []float64{y, y}, Color: end.color, Width: 4}
			if end.whole {
				bar.Label = end.label
			} else {
				crosses[r.end()].Add(steps, y)
				reasons.Add(steps, y)
				reasons.Text = append(reasons.Text, fmt.Sprintf("step %d: %s", r.Steps,
					cmp.Or(ruleTexts[r.Rule], r.Rule, end.label)))
			}
			bars = append(bars, bar)
		}
	}
	f := figure.Figure{Name: "collapse_timeline.png", Title: name + ": how far each run got", Columns: 1, Width: 5.4}
	f.Panels, f.Height = rows(labels, figure.Axis{Label: "training steps done", Integer: true, Low: 0,
		High: float64(longest)}, 13, slices.Concat(bars, crosses, []figure.Mark{reasons})...)
	return f
}

// ruleTexts say why a rule stopped a run.
var ruleTexts = map[string]string{
	"reward_variance_collapse": "reward variance collapsed",
	"low_validation_success":   "low validation success",
	"empty_filtered_steps":     "the filter kept nothing",
}

// collapsed counts the runs that a collapse rule stopped.
func (g group) collapsed() (n int) {
	for _, r := range g.rows {
		if r.run.Status == StoppedEarly {
			n++
		}
	}
	return n
}

// runs are the results of runs that have begun.
func (g group) runs() []row {
	return slices.DeleteFunc(slices.Clone(g.rows), func(r row) bool {
		return r.logged == nil && r.run.Status == Pending
	})
}

// heatMap shows success over two axes; false where the conditions are not a grid of two axes with at least two values
// each.
func heatMap(name string, list []group) (figure.Figure, bool) {
	var x, y []string
	place := func(names *[]string, name string) float64 {
		if !slices.Contains(*names, name) {
			*names = append(*names, name)
		}
		return float64(slices.Index(*names, name))
	}
	m, most, known := figure.Mark{Kind: figure.Tiles}, 0, false
	for _, g := range list {
		if len(g.Coordinates) != 2 {
			return figure.Figure{}, false
		}
		text := "–"
		if !math.IsNaN(g.mean.Value) {
			text, known = strconv.FormatFloat(100*g.mean.Value, 'f', 1, 64), true
		}
		if n := g.collapsed(); n > 0 {
			text += fmt.Sprintf("\n× %d", n)
			most = max(most, n)
		}
		m.Add(place(&x, g.Coordinates[0]), place(&y, g.Coordinates[1]))
		m.Z, m.Text = append(m.Z, 100*g.mean.Value), append(m.Text, text)
	}
	if len(x) < 2 || len(y) < 2 || !known {
		return figure.Figure{}, false
	}
	f := figure.Figure{Title: name + ": final success", Caption: "mean over runs of the last validation success (%)",
		Columns: 1,
		Width:   (float64(len(x))*50 + 60) / 72, Height: (float64(len(y))*34 + 30) / 72,
		Panels: []figure.Panel{{X: figure.Axis{Names: x}, Y: figure.Axis{Names: y}, Marks: []figure.Mark{m}}}}
	if most > 0 {
		f.Note("×: runs that stopped early")
	}
	return f, true
}
