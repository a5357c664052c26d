package plot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// comparedStep is a row of the comparison.
type comparedStep struct {
	record  metrics.Record
	buckets []bucket
}

func newComparedStep(record metrics.Record, prefix string) comparedStep {
	return comparedStep{record, buckets(record, prefix)}
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
		rows = append(rows, newComparedStep(record, postFilter))
	}
	f, err := compare(title, rows)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return atomicfile.Write(out, func(w io.Writer) error { return f.Render(w, dpi) })
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

// threeSteps compares the first, the middle and the last analysed step of a run; false with fewer than three.
func threeSteps(r *rundir.Run, prefix string) (figure, bool, error) {
	available := AnalysedSteps(r, prefix == preFilter)
	n := len(available)
	if n < 3 {
		return figure{}, false, nil
	}
	var rows []comparedStep
	for _, step := range []int{available[0], available[n/2], available[n-1]} {
		record, _ := r.At(step)
		rows = append(rows, newComparedStep(record, prefix))
	}
	f, err := compare(r.Name+": gradient analysis over training", rows)
	return f, err == nil, err
}

// compare has a row per step with the buckets' spreads and the gradients of the task and of the regularisers. Only buckets that all steps have
// are shown, and each column has one range, so that rows can be compared. Steps that were measured by different procedures cannot be.
func compare(title string, rows []comparedStep) (figure, error) {
	shared := func(b bucket) bool {
		return !slices.ContainsFunc(rows, func(row comparedStep) bool {
			return !slices.ContainsFunc(row.buckets, func(other bucket) bool { return other.name == b.name })
		})
	}
	profile := profileOf(rows[0].record)
	f := figure{title: title, columns: 3, width: 2.7 * vg.Inch, height: 2.1 * vg.Inch,
		caption: describeProfile(profile) + "; reward-spread buckets, Q1 = lowest; spreads: mean, smallest and largest group"}
	f.caption += caveat(profile)
	log := positive(rows, "reward_std_min") && positive(rows, "reward_std_mean")
	for _, row := range rows {
		if other := profileOf(row.record); other != profile {
			return figure{}, fmt.Errorf("the steps cannot be compared: step %d has the %s, step %d the %s, and their norms mean different things",
				rows[0].record.Step, describeProfile(profile), row.record.Step, describeProfile(other))
		}
		list := slices.DeleteFunc(proper(row.buckets), func(b bucket) bool { return !shared(b) })
		if len(list) == 0 {
			return figure{}, errors.New("the steps cannot be compared: they have no bucket in common")
		}
		intervals := intervalText(row.record.Float("grad_analysis/confidence"))
		label := fmt.Sprintf("Step %d: ", row.record.Step)
		f.panels = append(f.panels,
			spreadIntervals(list, label+"reward spread", log),
			strengthPanel(list, label+"task gradient", components[2:], intervals),
			strengthPanel(list, label+sumTitle, regularisers, intervals))
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
