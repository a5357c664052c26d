package plot

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
	"gyre/orchestrate/run/rundir"
)

// StudyCondition is one condition of a study with its runs.
type StudyCondition struct {
	Label       string
	Stage       int
	Coordinates []string // the values on the study's axes
	Runs        []StudyRun
	// Mean of the runs' last validation success, with its interval; NaN where there is none.
	Mean, Low, High float64
}

// StudyRun is one run of a study.
type StudyRun struct {
	Seed    int
	Status  string // finished, paused (of a search), stopped_early, failed, running, pending
	Rule    string // of an early stop
	Steps   int
	Success float64     // last validation success; NaN where there is none
	Run     *rundir.Run // nil when it logged nothing
}

// Study draws a study: learning curves, final success by condition, how far each run got and how it ended, and, where
// two axes make up the conditions, a map of success over them.
func Study(name string, list []StudyCondition) []figure.Figure {
	list, names := brief(list)
	var conditions []Condition
	drawn := best(list, figure.Colors)
	for _, c := range drawn {
		var runs []*rundir.Run
		for _, r := range c.Runs {
			if r.Run != nil {
				runs = append(runs, r.Run)
			}
		}
		if len(runs) > 0 {
			conditions = append(conditions, Condition{c.Label, runs})
		}
	}
	var out []figure.Figure
	if curves := Conditions(name, conditions); len(curves.Panels) > 0 {
		curves.Name = "learning_curves.png"
		curves.Note(names)
		if len(drawn) < len(list) {
			curves.Note(fmt.Sprintf("the best %d of %d", len(drawn), len(list)))
		}
		out = append(out, curves)
	}
	if len(list) == 0 {
		return out
	}
	for _, f := range []figure.Figure{finalSuccess(name, list), timeline(name, list)} {
		f.Note(names)
		out = append(out, f)
	}
	stages := map[int][]StudyCondition{}
	for _, c := range list {
		stages[c.Stage] = append(stages[c.Stage], c)
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
func brief(list []StudyCondition) (out []StudyCondition, names string) {
	if !slices.ContainsFunc(list, func(c StudyCondition) bool { return len(c.Coordinates) > 1 }) {
		out = slices.Clone(list)
		for i, c := range out {
			if len(c.Coordinates) == 1 {
				out[i].Label = c.Coordinates[0]
			}
		}
		return out, ""
	}
	long := false
	for _, c := range list {
		long = long || len(c.Label) > longestLabel
		if len(c.Coordinates) != len(list[0].Coordinates) || len(c.Coordinates) < 2 {
			return list, ""
		}
	}
	if !long {
		return list, ""
	}
	out = slices.Clone(list)
	for i, c := range out {
		var axes, values []string
		for _, at := range c.Coordinates {
			axis, value, _ := strings.Cut(at, "=")
			axes, values = append(axes, axis), append(values, value)
		}
		out[i].Label, names = strings.Join(values, " · "), strings.Join(axes, " · ")
	}
	return out, names
}

// best keeps the n conditions of the highest mean, in the order that they have.
func best(list []StudyCondition, n int) []StudyCondition {
	if len(list) <= n {
		return list
	}
	means := make([]float64, len(list))
	for i, c := range list {
		if means[i] = c.Mean; math.IsNaN(c.Mean) {
			means[i] = math.Inf(-1)
		}
	}
	ranked := slices.Clone(means)
	slices.SortFunc(ranked, func(a, b float64) int { return cmp.Compare(b, a) })
	var out []StudyCondition
	for i, c := range list {
		if means[i] >= ranked[n-1] && len(out) < n {
			out = append(out, c)
		}
	}
	return out
}

// How a run's end is drawn.
var ends = map[string]struct {
	label string
	color color.NRGBA
}{
	"finished": {"finished", figure.Green}, "stopped_early": {"stopped early by a collapse rule", figure.Vermilion},
	"failed": {"failed", figure.Ink},
	"paused": {"not promoted further", figure.Sky}, "running": {"not finished", figure.Grey},
	"pending": {"not finished", figure.Grey},
}

// whole tells whether a run came as far as it was to come.
func (r StudyRun) whole() bool { return r.Status == "finished" || r.Status == "paused" }

// endMarks are empty marks for the ends that occur, in the order of the legend; a run that came as far as it was to
// come has a mark of that kind.
func endMarks(list []StudyCondition, kind figure.Kind) (out []figure.Mark, of map[string]int) {
	of = map[string]int{}
	for _, status := range []string{"finished", "paused", "stopped_early", "failed", "running", "pending"} {
		occurs := slices.ContainsFunc(list, func(c StudyCondition) bool {
			return slices.ContainsFunc(c.Runs, func(r StudyRun) bool { return r.Status == status })
		})
		if !occurs {
			continue
		}
		m := figure.Mark{Kind: kind, Color: ends[status].color, Label: ends[status].label, Width: 2.2}
		if !(StudyRun{Status: status}).whole() {
			m.Kind, m.Width = figure.Crosses, 2.6
		}
		of[status] = len(out)
		out = append(out, m)
	}
	return out, of
}

// rowAxis has labels from the top down.
func rowAxis(labels []string) figure.Axis {
	out := slices.Clone(labels)
	slices.Reverse(out)
	return figure.Axis{Names: out}
}

// finalSuccess has a bar per condition: the mean of the last validations with its interval, and a mark per run.
func finalSuccess(name string, list []StudyCondition) figure.Figure {
	var labels []string
	runs, of := endMarks(list, figure.Dots)
	means := figure.Mark{Kind: figure.Bars, Color: figure.Light(figure.Blue), Horizontal: true}
	stopped := figure.Mark{Kind: figure.Bars, Color: figure.Light(figure.Vermilion), Horizontal: true}
	for i, c := range list {
		labels = append(labels, c.Label)
		y := float64(len(list) - 1 - i)
		m := &means
		if c.collapsed() == len(c.Runs) {
			m = &stopped
		}
		m.AddInterval(100*c.Mean, y, 100*math.Max(c.Low, 0), 100*math.Min(c.High, 1))
		for k, r := range c.Runs {
			x := 100 * r.Success
			if math.IsNaN(x) {
				x = 0
			}
			runs[of[r.Status]].Add(x, y+0.16*(float64(len(c.Runs)-1)/2-float64(k)))
		}
	}
	p := figure.Panel{X: figure.Axis{Label: "validation success at the end (%)", Low: 0, High: 1}, Y: rowAxis(labels),
		Marks: append([]figure.Mark{means, stopped}, runs...)}
	return figure.Figure{Name: "final_success.png", Title: name + ": final success",
		Caption: "bars: mean over runs with its 95 % interval (red: all of them stopped early); marks: the runs; a " +
			"run without a validation stands at 0",
		Columns: 1, Width: 5.4, Height: rowsHeight(len(list), 20), Panels: []figure.Panel{p}}
}

// rowsHeight in inches of a panel of rows of so many points.
func rowsHeight(rows int, each float64) float64 { return (math.Max(float64(rows)*each, 50) + 34) / 72 }

// timeline has a row per run: how many steps it did, and how it ended.
func timeline(name string, list []StudyCondition) figure.Figure {
	var labels []string
	var rows []StudyRun
	for _, c := range list {
		for _, r := range c.Runs {
			label := c.Label
			if len(c.Runs) > 1 {
				label += ", seed " + strconv.Itoa(r.Seed)
			}
			labels, rows = append(labels, label), append(rows, r)
		}
	}
	marks, of := endMarks(list, figure.Line)
	reasons := figure.Mark{Kind: figure.Words, Color: figure.Ink}
	longest := 1
	p := figure.Panel{Y: rowAxis(labels)}
	for i, r := range rows {
		y, steps := float64(len(rows)-1-i), float64(r.Steps)
		longest = max(longest, r.Steps)
		p.Add(figure.Mark{X: []float64{0, steps}, Y: []float64{y, y}, Color: ends[r.Status].color, Width: 4})
		if r.whole() {
			continue
		}
		marks[of[r.Status]].Add(steps, y)
		reasons.Add(steps, y)
		reasons.Text = append(reasons.Text, fmt.Sprintf("step %d: %s", r.Steps, ruleText(r)))
	}
	p.X = figure.Axis{Label: "training steps done", Integer: true, Low: 0, High: float64(longest)}
	p.Add(append(marks, reasons)...)
	return figure.Figure{Name: "collapse_timeline.png", Title: name + ": how far each run got", Columns: 1, Width: 5.4,
		Height: rowsHeight(len(rows), 13), Panels: []figure.Panel{p}}
}

func ruleText(r StudyRun) string {
	switch {
	case r.Rule == "reward_variance_collapse":
		return "reward variance collapsed"
	case r.Rule == "low_validation_success":
		return "low validation success"
	case r.Rule == "empty_filtered_steps":
		return "the filter kept nothing"
	case r.Rule != "":
		return r.Rule
	}
	return ends[r.Status].label
}

// collapsed counts the runs that a collapse rule stopped.
func (c StudyCondition) collapsed() (n int) {
	for _, r := range c.Runs {
		if r.Status == "stopped_early" {
			n++
		}
	}
	return n
}

// heatMap shows success over two axes; false where the conditions are not a grid of two axes with at least two values
// each.
func heatMap(name string, list []StudyCondition) (figure.Figure, bool) {
	var x, y []string
	place := func(names *[]string, name string) float64 {
		if !slices.Contains(*names, name) {
			*names = append(*names, name)
		}
		return float64(slices.Index(*names, name))
	}
	m, most, known := figure.Mark{Kind: figure.Tiles}, 0, false
	for _, c := range list {
		if len(c.Coordinates) != 2 {
			return figure.Figure{}, false
		}
		text := "–"
		if !math.IsNaN(c.Mean) {
			text, known = strconv.FormatFloat(100*c.Mean, 'f', 1, 64), true
		}
		if n := c.collapsed(); n > 0 {
			text += fmt.Sprintf("\n× %d", n)
			most = max(most, n)
		}
		m.Add(place(&x, c.Coordinates[0]), place(&y, c.Coordinates[1]))
		m.Z, m.Text = append(m.Z, 100*c.Mean), append(m.Text, text)
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
