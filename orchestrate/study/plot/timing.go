package plot

import (
	"image/color"
	"math"
	"slices"
	"strings"

	"gyre/internal/figure"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// Phase is a part of a run's time. Phases do not overlap.
type Phase struct {
	Label string
	color color.NRGBA
	keys  []string
}

// Seconds of a phase among those of all metrics of time, named as after timing_s/.
func (p Phase) Seconds(all map[string]float64) (sum float64) {
	for _, key := range p.keys {
		sum += all[strings.TrimPrefix(key, "timing_s/")]
	}
	return sum
}

// Phases are what a run's time is divided into; the rest is other work.
var Phases = []Phase{
	{"rollout", figure.Blue, []string{"timing_s/gen", "timing_s/env_wait"}},
	{"log-probs", figure.Sky, []string{"timing_s/old_log_prob", "timing_s/ref"}},
	{"advantages", figure.Purple, []string{"timing_s/values", "timing_s/adv"}},
	{"critic", figure.Green, []string{"timing_s/update_critic"}},
	{"analysis", figure.Yellow, []string{"timing_s/gradient_analysis"}},
	{"actor", figure.Vermilion, []string{"timing_s/update_actor"}},
	{"validation", figure.Orange, []string{"timing_s/testing"}},
}

// bins is the number of columns that a long run's times are averaged into.
const bins = 80

// timePanel stacks where the time of a step went. Phases below half a percent of the total count as other.
func timePanel(r *rundir.Run, x figure.Axis) figure.Panel {
	var rows []metrics.Record
	for _, record := range r.Records {
		if _, ok := rundir.Number(record, "timing_s/step"); ok {
			rows = append(rows, record)
		}
	}
	if len(r.Keys("timing_s/gen"))+len(r.Keys("timing_s/update_actor")) == 0 {
		return curves{title: "Time", unit: "seconds", list: []curve{{key: "timing_s/step"}}}.panel(r, x)
	}
	var total float64
	sums := make([]float64, len(Phases))
	for _, row := range rows {
		parts, whole := split(row)
		total += whole
		for i, v := range parts {
			sums[i] += v
		}
	}
	var shown []int
	layers := []figure.Mark{}
	for i, p := range Phases {
		if sums[i] > 0.005*total {
			shown = append(shown, i)
			layers = append(layers, figure.Mark{Kind: figure.Area, Color: p.color, Label: p.Label})
		}
	}
	// Each layer is the outline of the stack up to it; the highest is drawn first.
	layers = append(layers, figure.Mark{Kind: figure.Area, Color: figure.Grey, Label: "other"})
	for group := range slices.Chunk(rows, (len(rows)+bins-1)/bins) {
		heights := make([]float64, len(layers))
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
			if stacked += h; j == len(shown) {
				stacked = h // the whole step
			}
			layers[j].Add(left, stacked)
			layers[j].Add(right, stacked)
		}
	}
	p := figure.Panel{Title: "Time per step", X: x, Y: figure.Axis{Label: "seconds per step"}}
	for _, m := range slices.Backward(layers) {
		p.Add(m)
	}
	return p
}

// split returns the Phases of a step and its whole time, of which validation comes after what timing_s/step covers.
func split(row metrics.Record) (parts []float64, whole float64) {
	parts = make([]float64, len(Phases))
	known := 0.0
	for i, p := range Phases {
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
