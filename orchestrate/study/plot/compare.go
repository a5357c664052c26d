package plot

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"gyre/internal/figure"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// StepDir is an exported step: a folder with a metrics.json or one gradient_analysis_metrics_step_N.json, or such a
// file.
type StepDir struct {
	Step int // names the row, unless the file tells the step
	Path string
}

// ExportedSteps compares exported steps.
func ExportedSteps(title string, dirs []StepDir) (figure.Figure, error) {
	var rows []analysis
	for _, d := range dirs {
		record, err := readExported(d)
		if err != nil {
			return figure.Figure{}, err
		}
		rows = append(rows, newAnalysis(fmt.Sprintf("step %d", record.Step), record, postFilter))
	}
	return compareSteps(title, rows)
}

// readExported reads a step's metrics. Only numbers matter here, so exports of other trainers with the same names do as
// well.
func readExported(d StepDir) (metrics.Record, error) {
	path, record := d.Path, metrics.Record{Step: d.Step}
	if info, err := os.Stat(path); err != nil {
		return record, err
	} else if info.IsDir() {
		path = filepath.Join(d.Path, "metrics.json")
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			found, err := filepath.Glob(filepath.Join(d.Path, "gradient_analysis_metrics_step_*.json"))
			if err != nil {
				return record, err
			}
			if len(found) != 1 {
				return record, fmt.Errorf("%s: expected metrics.json or one gradient_analysis_metrics_step_N.json, "+
					"got %d of the latter; name the file itself", d.Path, len(found))
			}
			path = found[0]
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return record, err
	}
	if err := json.Unmarshal(data, &record.Values); err != nil {
		return record, fmt.Errorf("%s: not a JSON object of metrics: %w", path, err)
	}
	if step, ok := record.Float("step"); ok {
		record.Step = int(step)
	}
	if !isAnalysed(record, postFilter) {
		return record, fmt.Errorf("%s has no gradient analysis: expected metrics named %s/bucket_N/…", path, postFilter)
	}
	return record, nil
}

// Steps compares the first, the middle and the last analysed step of a run; the figure is empty with fewer than three.
func Steps(r *rundir.Run) (figure.Figure, error) { return threeSteps(r, postFilter) }

func threeSteps(r *rundir.Run, prefix string) (figure.Figure, error) {
	available := AnalysedSteps(r, prefix == preFilter)
	n := len(available)
	if n < 3 {
		return figure.Figure{}, nil
	}
	var rows []analysis
	for _, step := range []int{available[0], available[n/2], available[n-1]} {
		record, _ := r.At(step)
		rows = append(rows, newAnalysis(fmt.Sprintf("step %d", step), record, prefix))
	}
	return compareSteps(r.Name+": gradient analysis over training", rows)
}

// compareSteps has a row per step with the gradients of the task and of the regularisers and the buckets' reward
// standard deviations. Only buckets that all steps have are shown, and each column has one range, so that rows can be
// compared.
func compareSteps(title string, rows []analysis) (figure.Figure, error) {
	shared := func(b bucket) bool {
		return !slices.ContainsFunc(rows, func(row analysis) bool {
			return !slices.ContainsFunc(row.buckets, func(other bucket) bool { return other.name == b.name })
		})
	}
	f := figure.Figure{Name: "gradient_analysis_steps.png", Title: title, Height: 2, Caption: rows[0].describe() +
		"; buckets by reward variance, Q1 = lowest; std: mean, smallest and largest group"}
	f.Note(rows[0].caveat())
	if err := comparable(rows); err != nil {
		return f, err
	}
	columns := make([][]figure.Panel, 3)
	for _, row := range rows {
		list := slices.DeleteFunc(slices.Clone(row.buckets), func(b bucket) bool { return !shared(b) })
		if len(list) == 0 {
			return f, errors.New("the steps cannot be compared: they have no bucket in common")
		}
		label := fmt.Sprintf("Step %d: ", row.record.Step)
		for i, p := range []figure.Panel{strengthPanel(list, label+"task gradient", task, row.intervals()),
			stdIntervals(list, label+"reward std"),
			strengthPanel(list, label+regulariserTitle(list), regularisers, row.intervals())} {
			columns[i] = append(columns[i], p)
		}
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
		figure.ShareY(c)
	}
	for i := 0; len(columns) > 0 && i < len(columns[0]); i++ {
		for _, c := range columns {
			f.Panels = append(f.Panels, c[i])
		}
	}
}
