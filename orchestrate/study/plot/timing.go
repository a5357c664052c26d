package plot

import (
	"cmp"
	"image/color"
	"math"
	"slices"

	"gyre/internal/figure"
	"gyre/internal/table"
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
