package plot

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"gyre/internal/figure"
	"gyre/internal/table"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// shares are what perf/useful and perf/lost divide the time of a step into.
var shares = []struct {
	key, label string
	color      color.NRGBA
	sign       string // in a terminal
}{
	{"perf/useful", "useful work", figure.Green, "█"},
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
	p := figure.Panel{Title: "Useful work", X: x, Y: figure.Axis{Label: "time of a step (%)", High: 100}}
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

// usefulBar writes the mean shares as a bar.
func usefulBar(w io.Writer, r *rundir.Run) error {
	means := meanShares(r)
	if means == nil {
		return nil
	}
	var bar, legend strings.Builder
	width, sum := table.Width(w)-4, 0.0
	for i, s := range shares {
		from := int(math.Round(sum / 100 * float64(width)))
		sum += means[i]
		to := int(math.Round(sum / 100 * float64(width)))
		bar.WriteString(strings.Repeat(s.sign, max(to-from, 0)))
		fmt.Fprintf(&legend, "  %s %s %s\n", s.sign, s.label, table.Percent(means[i]/100).Text)
	}
	_, err := fmt.Fprintf(w, "  time of the steps\n  %s\n%s", bar.String(), legend.String())
	return err
}
