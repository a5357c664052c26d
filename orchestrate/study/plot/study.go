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

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

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

// Study draws a study: learning curves, final success by condition, how far each run got and how it ended, and, where two axes make up the
// conditions, a map of success over them.
func Study(name string, list []StudyCondition) []Picture {
	list, names := brief(list)
	var conditions []Condition
	drawn := best(list, len(conditionColours))
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
	var out []Picture
	if curves := Conditions(name, conditions); !curves.Empty() {
		curves.Name = "learning_curves.png"
		curves.add(names)
		if len(drawn) < len(list) {
			curves.add(fmt.Sprintf("the best %d of %d", len(drawn), len(list)))
		}
		out = append(out, curves)
	}
	if len(list) == 0 {
		return out
	}
	for _, p := range []Picture{{"final_success.png", finalSuccess(name, list)}, {"collapse_timeline.png", timeline(name, list)}} {
		p.add(names)
		out = append(out, p)
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
			out = append(out, Picture{file, f})
		}
	}
	return out
}

// longestLabel in characters: longer ones would leave a figure no room.
const longestLabel = 40

// brief labels conditions with their values on the axes alone where whole labels are too long; what the values are of is for the caption.
func brief(list []StudyCondition) (out []StudyCondition, names string) {
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

// add adds something to the caption.
func (p *Picture) add(text string) {
	switch {
	case text == "":
	case p.caption == "":
		p.caption = text
	default:
		p.caption += "; " + text
	}
}

// How a run's end is drawn.
var ends = map[string]struct {
	label string
	color color.NRGBA
}{
	"finished": {"finished", green}, "stopped_early": {"stopped early by a collapse rule", vermilion}, "failed": {"failed", ink},
	"paused": {"not promoted further", sky}, "running": {"not finished", grey}, "pending": {"not finished", grey},
}

// whole tells whether a run came as far as it was to come.
func (r StudyRun) whole() bool { return r.Status == "finished" || r.Status == "paused" }

// endLegend explains the ends that occur; the mark is that of whole runs.
func endLegend(list []StudyCondition, mark mark) (out []entry) {
	for _, status := range []string{"finished", "paused", "stopped_early", "failed", "running"} {
		occurs := slices.ContainsFunc(list, func(c StudyCondition) bool {
			return slices.ContainsFunc(c.Runs, func(r StudyRun) bool { return r.Status == status })
		})
		if occurs && !(StudyRun{Status: status}).whole() {
			mark = markCross
		}
		if occurs {
			out = append(out, entry{ends[status].label, ends[status].color, mark})
		}
	}
	return out
}

// rowNames are labels from the top down.
func rowNames(labels []string) constants {
	out := slices.Clone(labels)
	slices.Reverse(out)
	return out
}

func labelsOf(list []StudyCondition) []string {
	var out []string
	for _, c := range list {
		out = append(out, c.Label)
	}
	return out
}

// finalSuccess has a bar per condition: the mean of the last validations with its interval, and a mark per run.
func finalSuccess(name string, list []StudyCondition) figure {
	p := newPlot("validation success at the end (%)", "")
	p.Y.Tick.Marker, p.Y.Tick.Length = rowNames(labelsOf(list)), 0
	p.Y.Min, p.Y.Max = -0.6, float64(len(list))-0.4
	highest := 0.0
	for i, c := range list {
		y := float64(len(list) - 1 - i)
		if !math.IsNaN(c.Mean) {
			paint := blue
			if c.collapsed() == len(c.Runs) {
				paint = vermilion
			}
			p.Add(&plotter.BarChart{Values: plotter.Values{100 * c.Mean}, XMin: y, Width: barWidth * 0.9, Color: light(paint), Horizontal: true})
			highest = math.Max(highest, 100*c.Mean)
		}
		if !math.IsNaN(c.Mean) && !math.IsNaN(c.Low) {
			low, high := math.Max(c.Low, 0), math.Min(c.High, 1)
			p.Add(&plotter.XErrorBars{XYs: plotter.XYs{{X: 100 * c.Mean, Y: y}}, XErrors: plotter.XErrors{{Low: 100 * (c.Mean - low), High: 100 * (high - c.Mean)}},
				CapWidth: vg.Points(5), LineStyle: draw.LineStyle{Color: ink, Width: vg.Points(0.9)}})
			highest = math.Max(highest, 100*high)
		}
		for k, r := range c.Runs {
			at := plotter.XY{X: 100 * r.Success, Y: y + 0.16*(float64(len(c.Runs)-1)/2-float64(k))}
			if math.IsNaN(r.Success) {
				at.X = 0
			}
			if paint := ends[r.Status].color; r.whole() {
				p.Add(dots(plotter.XYs{at}, paint, 2.2))
			} else {
				p.Add(crosses(plotter.XYs{at}, paint, 2.4))
			}
			highest = math.Max(highest, at.X)
		}
	}
	p.X.Min, p.X.Max = 0, math.Max(highest*1.05, 1)
	return figure{title: name + ": final success", caption: "bars: mean over runs with its 95 % interval (red: all of them stopped early); marks: the runs; a run without a validation stands at 0",
		columns: 1, width: 5.4 * vg.Inch, height: rowsHeight(len(list), 20), panels: []panel{{plot: p, legend: endLegend(list, markDot)}}}
}

func rowsHeight(rows int, each vg.Length) vg.Length {
	return max(vg.Length(rows)*each, 50) + 34
}

// timeline has a row per run: how many steps it did, and how it ended.
func timeline(name string, list []StudyCondition) figure {
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
	p := newPlot("training steps done", "")
	p.Y.Tick.Marker, p.Y.Tick.Length = rowNames(labels), 0
	p.Y.Min, p.Y.Max = -0.6, math.Max(float64(len(rows))-0.4, 0.4)
	p.X.Tick.Marker = ticks{integer: true}
	longest := 1
	reasons := &plotter.Labels{Offset: vg.Point{X: 7}}
	for i, r := range rows {
		y, end := float64(len(rows)-1-i), ends[r.Status]
		longest = max(longest, r.Steps)
		p.Add(line(plotter.XYs{{X: 0, Y: y}, {X: float64(r.Steps), Y: y}}, end.color, 4))
		if r.whole() {
			continue
		}
		p.Add(crosses(plotter.XYs{{X: float64(r.Steps), Y: y}}, end.color, 3.5))
		text := fmt.Sprintf("step %d: %s", r.Steps, ruleText(r))
		s := style(sizeValue, false)
		s.YAlign = draw.YCenter
		reasons.XYs, reasons.Labels, reasons.TextStyle = append(reasons.XYs, plotter.XY{X: float64(r.Steps), Y: y}), append(reasons.Labels, text), append(reasons.TextStyle, s)
	}
	p.Add(reasons)
	p.X.Min, p.X.Max = 0, float64(longest)*1.05
	if len(reasons.Labels) > 0 {
		p.X.Max = float64(longest) * 1.5 // room for the reasons
	}
	return figure{title: name + ": how far each run got", columns: 1, width: 5.4 * vg.Inch, height: rowsHeight(len(rows), 13), panels: []panel{{plot: p, legend: endLegend(list, markLine)}}}
}

func ruleText(r StudyRun) string {
	switch {
	case r.Rule == "reward_variance_collapse":
		return "reward spread collapsed"
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

// grid is a plotter.GridXYZ of mean success in percent.
type grid struct {
	x, y []string
	z    map[[2]string]float64
}

func (g grid) Dims() (columns, rows int) { return len(g.x), len(g.y) }
func (g grid) Z(c, r int) float64 {
	if v, ok := g.z[[2]string{g.x[c], g.y[r]}]; ok {
		return v
	}
	return math.NaN()
}
func (g grid) X(c int) float64 { return float64(c) }
func (g grid) Y(r int) float64 { return float64(r) }

// blues go from almost white to blue: more is darker, in print too.
type blues struct{}

// Colors implements palette.Palette.
func (blues) Colors() []color.Color {
	out := make([]color.Color, 64)
	for i := range out {
		t := float64(i) / float64(len(out)-1)
		mix := func(from, to uint8) uint8 { return uint8(float64(from) + t*(float64(to)-float64(from))) }
		out[i] = color.NRGBA{mix(238, 0), mix(244, 90), mix(250, 150), 255}
	}
	return out
}

// heatMap shows success over two axes; false where the conditions are not a grid of two axes with at least two values each.
func heatMap(name string, list []StudyCondition) (figure, bool) {
	g := grid{z: map[[2]string]float64{}}
	collapsed, most := map[[2]string]int{}, 0
	for _, c := range list {
		if len(c.Coordinates) != 2 {
			return figure{}, false
		}
		x, y := c.Coordinates[0], c.Coordinates[1]
		if !slices.Contains(g.x, x) {
			g.x = append(g.x, x)
		}
		if !slices.Contains(g.y, y) {
			g.y = append(g.y, y)
		}
		if !math.IsNaN(c.Mean) {
			g.z[[2]string{x, y}] = 100 * c.Mean
		}
		collapsed[[2]string{x, y}] = c.collapsed()
		most = max(most, c.collapsed())
	}
	if len(g.x) < 2 || len(g.y) < 2 || len(g.z) == 0 {
		return figure{}, false
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range g.z {
		low, high = math.Min(low, v), math.Max(high, v)
	}
	if low == high {
		high = low + 1
	}
	p := plot.New()
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Padding, axis.Tick.Length, axis.LineStyle.Width = 0, 0, 0
		axis.Tick.Label.Font = style(sizeTick, false).Font
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = constants(g.x), constants(g.y)
	heat := plotter.NewHeatMap(g, blues{})
	heat.Min, heat.Max, heat.NaN = low, high, gridGrey
	p.Add(heat)
	values := &plotter.Labels{}
	for c := range g.x {
		for r := range g.y {
			text, paint := "–", color.Color(ink)
			if v := g.Z(c, r); !math.IsNaN(v) {
				text = strconv.FormatFloat(v, 'f', 1, 64)
				if v > (low+high)/2 {
					paint = color.White
				}
			}
			s := style(sizeLabel, true)
			s.Color, s.XAlign, s.YAlign = paint, draw.XCenter, draw.YCenter
			values.XYs, values.Labels, values.TextStyle = append(values.XYs, plotter.XY{X: float64(c), Y: float64(r)}), append(values.Labels, text), append(values.TextStyle, s)
			if n := collapsed[[2]string{g.x[c], g.y[r]}]; n > 0 {
				s.Font = style(sizeValue, false).Font
				s.YAlign = -2.1 // below the value
				values.XYs, values.Labels, values.TextStyle = append(values.XYs, plotter.XY{X: float64(c), Y: float64(r)}), append(values.Labels, fmt.Sprintf("× %d", n)), append(values.TextStyle, s)
			}
		}
	}
	p.Add(values)
	caption := "mean over runs of the last validation success (%)"
	if most > 0 {
		caption += "; ×: runs that stopped early"
	}
	return figure{title: name + ": final success", caption: caption, columns: 1,
		width: vg.Length(len(g.x))*50 + 60, height: vg.Length(len(g.y))*34 + 30, panels: []panel{{plot: p}}}, true
}
