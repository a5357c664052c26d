package plot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/metrics"
)

// comparedStep is a row of the comparison.
type comparedStep struct {
	label   string
	buckets []bucket
}

// StepDir is an exported step: a folder with a metrics.json or one gradient_analysis_metrics_step_N.json, or such a file.
type StepDir struct {
	Step int // names the row, unless the file tells the step
	Path string
}

// DrawSteps writes the comparison of exported steps as a PNG.
func DrawSteps(ctx context.Context, title string, dirs []StepDir, out string, dpi int) error {
	var rows []comparedStep
	for _, d := range dirs {
		record, err := readExported(d)
		if err != nil {
			return err
		}
		rows = append(rows, comparedStep{fmt.Sprintf("Step %d", record.Step), buckets(record, postFilter)})
	}
	f, err := compare(title, rows)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return atomicfile.Write(out, func(w io.Writer) error { return f.render(w, dpi) })
}

// readExported reads a step's metrics. Only numbers matter here, so exports of other trainers with the same names do as well.
func readExported(d StepDir) (metrics.Record, error) {
	path := d.Path
	if info, err := os.Stat(path); err != nil {
		return metrics.Record{}, err
	} else if info.IsDir() {
		path = filepath.Join(d.Path, "metrics.json")
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			found, err := filepath.Glob(filepath.Join(d.Path, "gradient_analysis_metrics_step_*.json"))
			if err != nil {
				return metrics.Record{}, err
			}
			if len(found) != 1 {
				return metrics.Record{}, fmt.Errorf("%s: expected metrics.json or one gradient_analysis_metrics_step_N.json, got %d of the latter; name the file itself", d.Path, len(found))
			}
			path = found[0]
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return metrics.Record{}, err
	}
	record := metrics.Record{Step: d.Step}
	if err := json.Unmarshal(data, &record.Values); err != nil {
		return metrics.Record{}, fmt.Errorf("%s: not a JSON object of metrics: %w", path, err)
	}
	if step, ok := record.Float("step"); ok {
		record.Step = int(step)
	}
	if !isAnalysed(record, postFilter) {
		return metrics.Record{}, fmt.Errorf("%s has no gradient analysis: expected metrics named %s/bucket_N/…", path, postFilter)
	}
	return record, nil
}

// compare has a row per step with the buckets' spreads, the task norm and the norm of the regularisers against them. Only buckets
// that all steps have are shown, and each column has one range, so that rows can be compared.
func compare(title string, rows []comparedStep) (figure, error) {
	shared := func(b bucket) bool {
		return !slices.ContainsFunc(rows, func(row comparedStep) bool {
			return !slices.ContainsFunc(row.buckets, func(other bucket) bool { return other.name == b.name })
		})
	}
	f := figure{title: title, columns: 3, width: 2.7 * vg.Inch, height: 1.9 * vg.Inch,
		caption: "reward-spread buckets, Q1 = lowest; points: means, bars: smallest and largest group"}
	log := positive(rows, "reward_std_min") && positive(rows, "reward_std_mean")
	for _, row := range rows {
		list := slices.DeleteFunc(proper(row.buckets), func(b bucket) bool { return !shared(b) })
		if len(list) == 0 {
			return figure{}, errors.New("the steps cannot be compared: they have no bucket in common")
		}
		f.panels = append(f.panels,
			spreadIntervals(list, row.label+": reward spread", log),
			versusSpread(list, row.label+": task gradient", []string{"task"}, 0, log),
			versusSpread(list, row.label+": KL + entropy gradient", []string{"kl", "entropy"}, 0.1, log))
	}
	for column := range 3 {
		var plots []*plot.Plot
		for i := column; i < len(f.panels); i += 3 {
			plots = append(plots, f.panels[i].plot)
		}
		shareRange(plots)
	}
	return f, nil
}

// spreadIntervals has every bucket's mean spread with bars from the smallest to the largest.
func spreadIntervals(list []bucket, title string, log bool) panel {
	p := newPlot("bucket", "in-group std of returns")
	convert := func(v float64) float64 { return v }
	if log {
		convert, p.Y.Tick.Marker = math.Log10, logTicks{}
	}
	names := constants{}
	var points, ends plotter.XYs
	var low, high []float64
	for i, b := range list {
		names = append(names, b.label)
		if mean, l, h, ok := interval(b); ok {
			l, h = convert(l), convert(h)
			points = append(points, plotter.XY{X: float64(i), Y: convert(mean)})
			low, high = append(low, l), append(high, h)
			ends = append(ends, plotter.XY{X: 0, Y: l}, plotter.XY{X: 0, Y: h})
		}
	}
	if len(points) == 0 {
		return panel{title: title, plot: message("not logged")}
	}
	p.Add(errorBars(points, low, high, ink), dots(points, vermilion, 2.6))
	p.X.Tick.Marker, p.X.Tick.Length = names, 0
	p.X.Min, p.X.Max = -0.6, float64(len(list))-0.4
	fitY(p, ends)
	return panel{title: title, plot: p}
}

// shareRange gives the plots of a column the same axes.
func shareRange(plots []*plot.Plot) {
	for _, of := range []func(*plot.Plot) *plot.Axis{
		func(p *plot.Plot) *plot.Axis { return &p.X }, func(p *plot.Plot) *plot.Axis { return &p.Y },
	} {
		low, high := math.Inf(1), math.Inf(-1)
		for _, p := range plots {
			if a := of(p); a.Width > 0 { // the axes of a message are hidden
				low, high = math.Min(low, a.Min), math.Max(high, a.Max)
			}
		}
		for _, p := range plots {
			if a := of(p); a.Width > 0 {
				a.Min, a.Max = low, high
			}
		}
	}
}

// positive tells whether a metric is positive wherever the rows have it, so that logarithms of it can be drawn.
func positive(rows []comparedStep, name string) bool {
	for _, row := range rows {
		for _, b := range row.buckets {
			if v, ok := b.get(name); ok && v <= 0 {
				return false
			}
		}
	}
	return true
}
