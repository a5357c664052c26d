package plot

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"gyre/internal/figure"
	"gyre/internal/table"
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
func Steps(r *rundir.Run, prefilter bool) (figure.Figure, error) {
	available := AnalysedSteps(r, prefilter)
	n := len(available)
	if n < 3 {
		return figure.Figure{}, nil
	}
	var rows []analysis
	for _, step := range []int{available[0], available[n/2], available[n-1]} {
		record, _ := r.At(step)
		rows = append(rows, newAnalysis(fmt.Sprintf("step %d", step), record, prefixOf(prefilter)))
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
	f := figure.Figure{Name: "gradient_analysis_steps.png", Title: title, Height: 2.4, Caption: rows[0].describe() +
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
			{Title: label + "reward std", X: axis(list), Y: figure.Axis{Label: stdLabel, Log: true},
				Marks: []figure.Mark{stdMarks(list)}},
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

// Signal is an analysis in a table of them: what is varied from column to column, what from row to row, and the run or
// probe that holds it. Its last analysed step counts.
type Signal struct{ Column, Row, Path string }

// readSignals reads the analyses, column by column, both columns and rows in the order of their first appearance.
func readSignals(list []Signal) (columns, rows []string, cells []analysis, err error) {
	found := map[string]analysis{}
	for _, s := range list {
		run, err := rundir.Read(s.Path)
		if err != nil {
			return nil, nil, nil, err
		}
		steps := AnalysedSteps(run, false)
		if len(steps) == 0 {
			return nil, nil, nil, fmt.Errorf("%s: no step has a gradient analysis", s.Path)
		}
		record, _ := run.At(steps[len(steps)-1])
		name := s.Column + "/" + s.Row
		if _, twice := found[name]; twice {
			return nil, nil, nil, fmt.Errorf("%s is given twice: expected one analysis of each", name)
		}
		found[name] = newAnalysis(name, record, postFilter)
		if !slices.Contains(columns, s.Column) {
			columns = append(columns, s.Column)
		}
		if !slices.Contains(rows, s.Row) {
			rows = append(rows, s.Row)
		}
	}
	for _, column := range columns {
		for _, row := range rows {
			a, ok := found[column+"/"+row]
			if !ok {
				return nil, nil, nil, fmt.Errorf("%s/%s is missing: expected an analysis of each column in each row",
					column, row)
			}
			cells = append(cells, a)
		}
	}
	return columns, rows, cells, comparable(cells)
}

// Signals draws the task gradient of each analysis per bucket, and says in a table which of them can be told from zero.
func Signals(title string, list []Signal) (f figure.Figure, results *table.Table, err error) {
	names, rows, cells, err := readSignals(list)
	if err != nil {
		return f, nil, err
	}
	first := cells[0]
	f = figure.Figure{Title: title, Width: 3.7, Height: 2.4, Caption: first.describe() +
		"; buckets by reward variance, Q1 = lowest"}
	f.Note(first.caveat())
	results = table.New("", "", "bucket", "std", "gradient per group", "it")
	for i := 3; i < 5; i++ {
		results.Columns[i].Format = "%.2g"
	}
	columns := make([][]figure.Panel, len(names)) // each form of the gradient has a range of its own
	for x, column := range names {
		for y, a := range cells[x*len(rows) : (x+1)*len(rows)] {
			columns[x] = append(columns[x], strengthPanel(a.buckets, column+", "+rows[y], task, a.intervals()))
			for _, b := range a.buckets {
				s := b.strength("task")
				verdict := cmp.Or(s.why, "may be zero")
				if s.low > 0 {
					verdict = "is not zero"
				}
				results.Add(column, rows[y], b.label, b.value("reward_std_mean"),
					table.Cell{Value: s.signal, Low: s.low, High: s.high}, verdict)
			}
		}
	}
	arrange(&f, columns)
	return f, results, nil
}
