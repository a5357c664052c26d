package report

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"gyre/internal/table"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/plot"
)

// outcomes has a row per run. A success has the interval of the episodes that it is over: a peak over few is beside one
// over many.
func outcomes(runs []*rundir.Run, labels []string) *table.Table {
	t := table.New("run", "ended", "steps", "success before", "peak", "at step", "last",
		fmt.Sprintf("last %d", rundir.LastValidations), "episodes", "entropy",
		"reward std", "grad norm", "hours")
	for i := range t.Columns {
		t.Columns[i].Format = "%.3g"
	}
	for i, r := range runs {
		o := r.Outcome()
		var at, episodes any
		if len(o.Success) > 0 {
			at = o.PeakStep
		}
		n := episodesOf(r)
		if n > 0 {
			episodes = n
		}
		t.Add(labels[i], describe(o), o.Steps, table.Share(o.Baseline, n), table.Share(o.Peak, n), at,
			table.Share(o.Last, n),
			table.Share(o.LastMean, n*min(len(o.Success), rundir.LastValidations)), episodes, o.Entropy, o.Spread,
			o.GradNorm, table.Cell{Value: o.Total / 3600, Text: fmt.Sprintf("%.2f", o.Total/3600)})
	}
	return t
}

// episodesOf is the number of episodes that a validation's success is over; 0 where that is not known, or is the mean
// over several tags.
func episodesOf(r *rundir.Run) int {
	tags := r.ValidationEpisodes()
	if len(tags) != 1 {
		return 0
	}
	for _, n := range tags {
		return n
	}
	return 0
}

// validations has every validation's success by tag, with the 95 % interval where the number of episodes is known.
func validations(r *rundir.Run) *table.Table {
	t := table.New("step")
	const pattern = "val-env/*/success"
	keys, episodes := r.Keys(pattern), r.ValidationEpisodes()
	for _, key := range keys {
		t.Columns = append(t.Columns, table.Column{Name: rundir.Tag(pattern, key)})
	}
	for _, record := range r.Records {
		row, found := []any{record.Step}, false
		for _, key := range keys {
			if v, ok := rundir.Number(record, key); ok {
				found, row = true, append(row, table.Share(v, episodes[rundir.Tag(pattern, key)]))
			} else {
				row = append(row, nil)
			}
		}
		if found {
			t.Add(row...)
		}
	}
	return t
}

// final has every number and text of the last step.
func final(r *rundir.Run) *table.Table {
	t := table.New("metric", "value")
	last := r.Records[len(r.Records)-1]
	for _, key := range slices.Sorted(maps.Keys(last.Values)) {
		switch v := last.Values[key].(type) {
		case float64, string, bool:
			t.Add(key, v)
		}
	}
	return t
}

// analyses are the analysed steps of a run, and before and after them the analyses of its policies that stand beside
// it: folders RUN-analysis or RUN/analysis with an output of gyre analyze each.
func analyses(r *rundir.Run) (out []plot.Analysed, err error) {
	// the patterns are well-formed
	beside, _ := filepath.Glob(filepath.Join(filepath.Clean(r.Dir)+"-analysis", "*", metrics.File))
	within, _ := filepath.Glob(r.File("analysis", "*", metrics.File))
	add := func(r *rundir.Run, prefix string) {
		for _, step := range plot.AnalysedSteps(r, false) {
			a := plot.Step(r, step)
			a.Title = prefix + a.Title
			out = append(out, a)
		}
	}
	for _, path := range append(beside, within...) {
		probe, err := rundir.Read(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		add(probe, filepath.Base(filepath.Dir(path))+": ")
	}
	if add(r, ""); len(out) > 0 {
		out[len(out)-1].Open = true
	}
	return out, nil
}
