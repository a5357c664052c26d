package plot

import (
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"

	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// phase is a part of a step's time.
type phase struct {
	label string
	color color.NRGBA
	keys  []string
}

var phases = []phase{
	{"rollout", blue, []string{"timing_s/gen", "timing_s/env_wait"}},
	{"log-probs", sky, []string{"timing_s/old_log_prob", "timing_s/ref"}},
	{"advantages", purple, []string{"timing_s/values", "timing_s/adv"}},
	{"critic", green, []string{"timing_s/update_critic"}},
	{"analysis", yellow, []string{"timing_s/gradient_analysis"}},
	{"actor", vermilion, []string{"timing_s/update_actor"}},
	{"validation", orange, []string{"timing_s/testing"}},
}

// bins is the number of columns that a long run's times are averaged into.
const bins = 80

// timePanel stacks where the time of a step went. Phases below half a percent of the total count as other.
func timePanel(r *rundir.Run, xLabel string) (panel, bool) {
	var rows []metrics.Record
	for _, record := range r.Records {
		if _, ok := rundir.Number(record, "timing_s/step"); ok {
			rows = append(rows, record)
		}
	}
	if len(rows) == 0 {
		return panel{}, false
	}
	if len(r.Keys("timing_s/gen"))+len(r.Keys("timing_s/update_actor")) == 0 {
		return curves{title: "Time", unit: "seconds", list: []curve{{key: "timing_s/step"}}}.panel(r, xLabel)
	}
	var total float64
	sums := make([]float64, len(phases))
	for _, row := range rows {
		parts, whole := split(row)
		total += whole
		for i, v := range parts {
			sums[i] += v
		}
	}
	shown := []int{}
	for i := range phases {
		if sums[i] > 0.005*total {
			shown = append(shown, i)
		}
	}

	// Each layer is the outline of the stack up to it; the highest is drawn first.
	layers := make([]plotter.XYs, len(shown)+1)
	size := (len(rows) + bins - 1) / bins
	highest := 0.0
	for group := range slices.Chunk(rows, size) {
		heights := make([]float64, len(shown)+1)
		for _, row := range group {
			parts, whole := split(row)
			for j, i := range shown {
				heights[j] += parts[i] / float64(len(group))
			}
			heights[len(shown)] += whole / float64(len(group))
		}
		stacked := 0.0
		left, right := float64(group[0].Step)-0.5, float64(group[len(group)-1].Step)+0.5
		for j, h := range heights {
			stacked += h
			if j == len(shown) {
				stacked = h // the whole step
			}
			layers[j] = append(layers[j], plotter.XY{X: left, Y: stacked}, plotter.XY{X: right, Y: stacked})
		}
		highest = math.Max(highest, stacked)
	}
	p := newPlot(xLabel, "seconds per step")
	p.X.Tick.Marker = ticks{integer: true}
	fitX(p, r)
	p.Y.Min, p.Y.Max = 0, highest*1.06+1e-9
	out := panel{title: "Time per step", plot: p}
	p.Add(&plotter.Line{XYs: layers[len(shown)], FillColor: grey})
	for j := len(shown) - 1; j >= 0; j-- {
		p.Add(&plotter.Line{XYs: layers[j], FillColor: phases[shown[j]].color})
	}
	for _, i := range shown {
		out.legend = append(out.legend, entry{phases[i].label, phases[i].color, markBox})
	}
	out.legend = append(out.legend, entry{"other", grey, markBox})
	return out, true
}

// split returns the phases of a step and its whole time, of which validation comes after what timing_s/step covers.
func split(row metrics.Record) (parts []float64, whole float64) {
	parts = make([]float64, len(phases))
	known := 0.0
	for i, p := range phases {
		for _, key := range p.keys {
			if v, ok := rundir.Number(row, key); ok && v > 0 {
				parts[i] += v
				known += v
			}
		}
	}
	step, _ := rundir.Number(row, "timing_s/step")
	if testing, ok := rundir.Number(row, "timing_s/testing"); ok {
		step += testing
	}
	return parts, math.Max(step, known)
}
