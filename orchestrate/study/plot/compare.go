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

	"gyre/internal/atomicfile"
	"gyre/internal/figure"
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

// StepDir is an exported step: a folder with a metrics.json or one gradient_analysis_metrics_step_N.json, or such a
// file.
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
	return atomicfile.Write(out, func(w io.Writer) error { return f.PNG(w, dpi) })
}

// readExported reads a step's metrics. Only numbers matter here, so exports of other trainers with the same names do as
// well.
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
				return metrics.Record{},
					fmt.Errorf("%s: expected metrics.json or one gradient_analysis_metrics_step_N.json, got %d of "+
						"the latter; name the file itself", d.Path, len(found))
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
		return metrics.Record{}, fmt.Errorf("%s has no gradient analysis: expected metrics named %s/bucket_N/…", path,
			postFilter)
	}
	return record, nil
}

// threeSteps compares the first, the middle and the last analysed step of a run; the figure is empty with fewer than
// three.
func threeSteps(r *rundir.Run, prefix string) (figure.Figure, error) {
	available := AnalysedSteps(r, prefix == preFilter)
	n := len(available)
	if n < 3 {
		return figure.Figure{}, nil
	}
	var rows []comparedStep
	for _, step := range []int{available[0], available[n/2], available[n-1]} {
		record, _ := r.At(step)
		rows = append(rows, newComparedStep(record, prefix))
	}
	return compare(r.Name+": gradient analysis over training", rows)
}

// Steps compares the first, the middle and the last analysed step of a run; the figure is empty with fewer than three.
func Steps(r *rundir.Run) (figure.Figure, error) { return threeSteps(r, postFilter) }

// compare has a row per step with the gradients of the task and of the regularisers and the buckets' reward standard
// deviations. Only buckets that all steps have are shown, and each column has one range, so that rows can be compared.
// Steps that were measured by different procedures cannot be.
func compare(title string, rows []comparedStep) (figure.Figure, error) {
	shared := func(b bucket) bool {
		return !slices.ContainsFunc(rows, func(row comparedStep) bool {
			return !slices.ContainsFunc(row.buckets, func(other bucket) bool { return other.name == b.name })
		})
	}
	profile := profileOf(rows[0].record)
	f := figure.Figure{Name: "gradient_analysis_steps.png", Title: title, Columns: 3, Height: 2,
		Caption: describeProfile(profile) +
			"; buckets by reward variance, Q1 = lowest; std: mean, smallest and largest group"}
	f.Note(caveat(profile))
	columns := make([][]figure.Panel, 3)
	for _, row := range rows {
		if other := profileOf(row.record); other != profile {
			return f, fmt.Errorf("the steps cannot be compared: step %d has the %s, step %d the %s, and their norms "+
				"mean different things",
				rows[0].record.Step, describeProfile(profile), row.record.Step, describeProfile(other))
		}
		list := slices.DeleteFunc(proper(row.buckets), func(b bucket) bool { return !shared(b) })
		if len(list) == 0 {
			return f, errors.New("the steps cannot be compared: they have no bucket in common")
		}
		intervals := intervalText(row.record.Float("grad_analysis/confidence"))
		label := fmt.Sprintf("Step %d: ", row.record.Step)
		columns[0] = append(columns[0], strengthPanel(list, label+"task gradient", task, intervals))
		columns[1] = append(columns[1], stdIntervals(list, label+"reward std"))
		columns[2] = append(columns[2], strengthPanel(list, label+regulariserTitle(list), regularisers, intervals))
	}
	arrange(&f, columns)
	return f, nil
}

// arrange puts columns of panels into a figure, each with one range of values. A column without anything to show is
// left out.
func arrange(f *figure.Figure, columns [][]figure.Panel) {
	columns = slices.DeleteFunc(columns, func(c []figure.Panel) bool {
		return !slices.ContainsFunc(c, func(p figure.Panel) bool { return !p.Empty() })
	})
	f.Columns = max(len(columns), 1)
	for _, c := range columns {
		var panels []*figure.Panel
		for i := range c {
			panels = append(panels, &c[i])
		}
		figure.ShareY(panels...)
	}
	for i := 0; len(columns) > 0 && i < len(columns[0]); i++ {
		for _, c := range columns {
			f.Panels = append(f.Panels, c[i])
		}
	}
}
