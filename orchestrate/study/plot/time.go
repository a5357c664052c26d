package plot

import (
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"io/fs"
	"math"
	"slices"
	"strings"

	"gyre/internal/figure"
	"gyre/internal/statistics"
	"gyre/internal/table"
	"gyre/orchestrate/loop/versions"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// phase is a part of a run's time. Phases do not overlap.
type phase struct {
	label string
	color color.NRGBA
	keys  []string // of metrics, after timing_s/
}

// phases are what a run's time is divided into; the rest is other work.
var phases = []phase{
	{"rollout", figure.Blue, []string{"gen", "env_wait"}},
	{"log-probs", figure.Sky, []string{"old_log_prob", "ref"}},
	{"advantages", figure.Purple, []string{"values", "adv"}},
	{"critic", figure.Green, []string{"update_critic"}},
	{"analysis", figure.Yellow, []string{"gradient_analysis"}},
	{"actor", figure.Vermilion, []string{"update_actor"}},
	{"validation", figure.Orange, []string{"testing"}},
}

// seconds that a phase took of all that was measured.
func (p phase) seconds(all map[string]float64) (sum float64) {
	for _, key := range p.keys {
		sum += math.Max(all[key], 0)
	}
	return sum
}

// Times divides a run's time into phases that do not overlap: their shares add up to the whole. What took less than a
// hundredth is in other.
func Times(o rundir.Outcome) *table.Table {
	t := &table.Table{Columns: []table.Column{{Name: "phase"}, {Name: "seconds", Format: "%.1f"}, {Name: "share"}}}
	rest := o.Total
	longest := slices.SortedStableFunc(slices.Values(phases),
		func(a, b phase) int { return cmp.Compare(b.seconds(o.Phases), a.seconds(o.Phases)) })
	for _, p := range longest {
		if s := p.seconds(o.Phases); o.Total > 0 && s > 0.01*o.Total {
			t.Add(p.label, s, table.Percent(s/o.Total))
			rest -= s
		}
	}
	if len(t.Rows) > 0 {
		rest = max(rest, 0)
		t.Add("other", rest, table.Percent(rest/o.Total))
		t.Add("all", o.Total, table.Percent(1))
	}
	return t
}

// split returns the phases of a step and its whole time, of which validation comes after what timing_s/step covers.
func split(record metrics.Record) (parts []float64, whole float64) {
	all := map[string]float64{}
	known := 0.0
	for _, p := range phases {
		for _, key := range p.keys {
			if v, ok := rundir.Number(record, "timing_s/"+key); ok {
				all[key] = v
			}
		}
		parts = append(parts, p.seconds(all))
		known += p.seconds(all)
	}
	step, _ := rundir.Number(record, "timing_s/step")
	return parts, math.Max(step+all["testing"], known)
}

// bins is the number of columns that a long run's times are averaged into.
const bins = 80

// timePanel stacks where the time of a step went. Phases below half a percent of the total count as other.
func timePanel(r *rundir.Run, x figure.Axis) figure.Panel {
	if len(r.Keys("timing_s/gen"))+len(r.Keys("timing_s/update_actor")) == 0 {
		return curves{title: "Time", unit: "seconds", list: []curve{{key: "timing_s/step"}}}.panel(r, x)
	}
	var rows []metrics.Record
	var total float64
	sums := make([]float64, len(phases))
	for _, record := range r.Records {
		if _, ok := rundir.Number(record, "timing_s/step"); !ok {
			continue
		}
		rows = append(rows, record)
		parts, whole := split(record)
		total += whole
		for i, v := range parts {
			sums[i] += v
		}
	}
	var shown []int
	var layers []figure.Mark
	for i, p := range phases {
		if sums[i] > 0.005*total {
			shown = append(shown, i)
			layers = append(layers, figure.Mark{Kind: figure.Area, Color: p.color, Label: p.label})
		}
	}
	layers = append(layers, figure.Mark{Kind: figure.Area, Color: figure.Grey, Label: "other"})
	stack(layers, rows, func(row metrics.Record) (values []float64) {
		parts, rest := split(row)
		for _, i := range shown {
			values = append(values, parts[i])
			rest -= parts[i]
		}
		return append(values, rest)
	})
	return figure.Panel{Title: "Time per step", X: x, Y: figure.Axis{Label: "seconds per step"}, Marks: layers}
}

// stack gives each layer the outline of the steps' values up to its own; the highest comes first, to be drawn below.
func stack(layers []figure.Mark, rows []metrics.Record, values func(metrics.Record) []float64) {
	for group := range slices.Chunk(rows, (len(rows)+bins-1)/bins) {
		heights := make([]float64, len(layers))
		for _, row := range group {
			stacked := 0.0
			for i, v := range values(row) {
				stacked += v
				heights[i] += stacked / float64(len(group))
			}
		}
		for i, h := range heights {
			layers[i].Add(float64(group[0].Step)-0.5, h)
			layers[i].Add(float64(group[len(group)-1].Step)+0.5, h)
		}
	}
	slices.Reverse(layers)
}

// shares are what perf/useful and perf/lost divide the time of a step into.
var shares = []struct {
	key, label string
	color      color.NRGBA
	sign       string // in a terminal
}{
	{"perf/useful", "utilization", figure.Green, "█"},
	{"perf/lost/sampling", "sampling, the rest", figure.Blue, "▓"},
	{"perf/lost/log_probs", "log-probs, the rest", figure.Sky, "="},
	{"perf/lost/update", "updates, the rest", figure.Vermilion, "▒"},
	{"perf/lost/environments", "waits for environments", figure.Yellow, "░"},
	{"perf/lost/other", "other", figure.Grey, "·"},
}

// sharesOf are those of a step in percent; nil where useful work is not known.
func sharesOf(record metrics.Record) (parts []float64) {
	if _, known := rundir.Number(record, shares[0].key); !known {
		return nil
	}
	for _, s := range shares {
		v, _ := rundir.Number(record, s.key)
		parts = append(parts, 100*v)
	}
	return parts
}

// divided are the steps whose useful work is known.
func divided(r *rundir.Run) []metrics.Record {
	return slices.DeleteFunc(slices.Clone(r.Records), func(record metrics.Record) bool {
		return sharesOf(record) == nil
	})
}

// meanShares are those of all steps whose useful work is known, each by its time; nil where there is none.
func meanShares(r *rundir.Run) (means []float64) {
	rows, total := divided(r), 0.0
	if len(rows) > 0 {
		means = make([]float64, len(shares))
	}
	for _, record := range rows {
		step, _ := rundir.Number(record, "timing_s/step")
		total += step
		for i, v := range sharesOf(record) {
			means[i] += (v - means[i]) * step / total
		}
	}
	return means
}

// usefulPanel stacks the shares of each step. Parts below half a percent of all steps' time are not named.
func usefulPanel(r *rundir.Run, x figure.Axis) figure.Panel {
	p := figure.Panel{Title: "Utilization", X: x, Y: figure.Axis{Label: "time of a step (%)", High: 100}}
	for i, mean := range meanShares(r) {
		p.Add(figure.Mark{Kind: figure.Area, Color: shares[i].color, Label: shares[i].label})
		if mean < 0.5 {
			p.Marks[i].Label = ""
		}
	}
	if len(p.Marks) > 0 {
		stack(p.Marks, divided(r), sharesOf)
	}
	return p
}

// usefulBar is the mean shares as a bar.
func usefulBar(r *rundir.Run, width int) string {
	means := meanShares(r)
	if means == nil {
		return ""
	}
	var bar, legend strings.Builder
	width -= 4
	sum := 0.0
	for i, s := range shares {
		from := int(math.Round(sum / 100 * float64(width)))
		sum += means[i]
		to := int(math.Round(sum / 100 * float64(width)))
		bar.WriteString(strings.Repeat(s.sign, max(to-from, 0)))
		fmt.Fprintf(&legend, "  %s %s %s\n", s.sign, s.label, table.Percent(means[i]/100).Text)
	}
	return fmt.Sprintf("  time of the steps\n  %s\n%s", bar.String(), legend.String())
}

// Timeline shows who was at work while a run went on, from its schedule; no panels where it has none.
func Timeline(r *rundir.Run) (figure.Figure, error) {
	f := figure.Figure{Name: "timeline.png", Title: r.Name, Columns: 1, Height: 1.75}
	schedule, err := versions.Read(r.File(versions.File))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(schedule.Steps) == 0 {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	layers := []figure.Mark{
		{Kind: figure.Area, Color: figure.Blue, Label: "samples"},
		{Kind: figure.Area, Color: figure.Vermilion, Label: "trains"},
		{Kind: figure.Area, Color: figure.Yellow, Label: "waits for environments"},
		{Kind: figure.Area, Color: figure.Grey, Label: "other"},
	}
	blocked := figure.Mark{Kind: figure.Line, Color: figure.Ink, Label: "replies wait for the trainer"}
	add := func(from, to float64, shares ...float64) {
		if to <= from {
			return
		}
		height := 0.0
		for i := range layers {
			height = 1
			if i < len(layers)-1 {
				height = min(statistics.Sum(shares[:i+1])/(to-from), 1)
			}
			layers[i].Add(from, height)
			layers[i].Add(to, height)
		}
		blocked.Add(from, min(shares[3]/(to-from), 1))
		blocked.Add(to, min(shares[3]/(to-from), 1))
	}
	for group := range slices.Chunk(schedule.Steps, (len(schedule.Steps)+bins-1)/bins) {
		var before, beside [4]float64 // samples, trains, waits; replies wait
		for _, s := range group {
			before[0], before[2] = before[0]+s.Sampling.Before, before[2]+s.Waiting.Before
			beside[0], beside[3] = beside[0]+s.Sampling.During, beside[3]+s.Waiting.During
			beside[1] += s.Changed - s.Closed - s.Sampling.During
		}
		if first := group[0]; len(group) == 1 {
			add(first.Begun, first.Closed, before[:]...)
			add(first.Closed, first.Changed, beside[:]...)
			continue
		}
		for i := range before {
			before[i] += beside[i]
		}
		add(group[0].Begun, group[len(group)-1].Changed, before[:]...)
	}
	slices.Reverse(layers)
	f.Panels = []figure.Panel{{Title: "Who was at work", X: figure.Axis{Label: "seconds of the run"},
		Y: figure.Axis{Label: "share of the time", High: 1}, Marks: append(layers, blocked)}}
	return f, nil
}
