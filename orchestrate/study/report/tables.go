package report

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

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

// differences lists the keys in which the configurations differ, name and output folder aside.
func differences(runs []*rundir.Run, labels []string) *table.Table {
	flat := make([]map[string]string, len(runs))
	keys := map[string]bool{}
	for i, r := range runs {
		flat[i] = map[string]string{}
		tree := map[string]any{}
		// A run without a readable configuration has empty cells.
		if _, err := toml.DecodeFile(r.File("config.toml"), &tree); err == nil {
			flatten("", tree, flat[i])
		}
		for key := range flat[i] {
			keys[key] = true
		}
	}
	for i, r := range runs {
		for _, c := range r.Changes() { // the last value alone would say that it always held
			keys[c.Key] = true
			flat[i][c.Key] = strings.TrimPrefix(fmt.Sprintf("%s; to step %d %s", flat[i][c.Key], c.Step, c.From), "; ")
		}
	}
	t := table.New(append([]string{"key"}, labels...)...)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		row := []any{key}
		differs := false
		for i := range runs {
			row = append(row, flat[i][key])
			differs = differs || flat[i][key] != flat[0][key]
		}
		if differs && key != "run.name" && key != "run.output" {
			t.Add(row...)
		}
	}
	return t
}

func flatten(prefix string, value any, out map[string]string) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			flatten(strings.TrimPrefix(prefix+"."+key, "."), inner, out)
		}
	case []map[string]any:
		for i, inner := range v {
			flatten(fmt.Sprintf("%s.%d", prefix, i), inner, out)
		}
	default:
		out[prefix] = fmt.Sprint(v)
	}
}

// validations has every validation's success by tag, with the 95 % interval where the number of episodes is known.
func validations(r *rundir.Run) *table.Table {
	t := table.New("step")
	keys, episodes := r.Keys("val-env/*/success"), r.ValidationEpisodes()
	for _, key := range keys {
		t.Columns = append(t.Columns, table.Column{Name: tagOf(key)})
	}
	for _, record := range r.Records {
		row := []any{record.Step}
		found := false
		for _, key := range keys {
			v, ok := rundir.Number(record, key)
			if !ok {
				row = append(row, nil)
				continue
			}
			found, row = true, append(row, table.Share(v, episodes[tagOf(key)]))
		}
		if found {
			t.Add(row...)
		}
	}
	return t
}

func tagOf(key string) string {
	return strings.TrimSuffix(strings.TrimPrefix(key, "val-env/"), "/success")
}

// times divides the run's time into phases that do not overlap: their shares add up to the whole. What took less than a
// hundredth is in other.
func times(o rundir.Outcome) *table.Table {
	t := &table.Table{Columns: []table.Column{{Name: "phase"}, {Name: "seconds", Format: "%.1f"}, {Name: "share"}}}
	rest := o.Total
	names := slices.SortedStableFunc(slices.Values(plot.Phases),
		func(a, b plot.Phase) int { return cmp.Compare(b.Seconds(o.Phases), a.Seconds(o.Phases)) })
	for _, p := range names {
		if s := p.Seconds(o.Phases); o.Total > 0 && s > 0.01*o.Total {
			t.Add(p.Label, s, table.Percent(s/o.Total))
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
func analyses(r *rundir.Run) (out []analysed, err error) {
	// the pattern is well-formed
	beside, _ := filepath.Glob(filepath.Join(filepath.Clean(r.Dir)+"-analysis", "*",
		metrics.File))
	within, _ := filepath.Glob(r.File("analysis", "*", metrics.File))
	for _, path := range append(beside, within...) {
		probe, err := rundir.Read(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		if out, err = appendSteps(out, probe, filepath.Base(filepath.Dir(path))+": "); err != nil {
			return nil, err
		}
	}
	if out, err = appendSteps(out, r, ""); len(out) > 0 {
		out[len(out)-1].Open = true
	}
	return out, err
}

func appendSteps(out []analysed, r *rundir.Run, prefix string) ([]analysed, error) {
	for _, step := range plot.AnalysedSteps(r, false) {
		a, err := newAnalysed(r, step)
		if err != nil {
			return out, fmt.Errorf("gradient analysis of step %d: %w", step, err)
		}
		a.Title = prefix + a.Title
		out = append(out, a)
	}
	return out, nil
}

// newAnalysed shows one step of the gradient analysis.
func newAnalysed(r *rundir.Run, step int) (analysed, error) {
	record, _ := r.At(step)
	profile := "profile not recorded"
	if name, ok := record.Values["grad_analysis/profile"].(string); ok {
		profile = name + " profile"
	}
	a := analysed{Title: fmt.Sprintf("Step %d (%s)", step, profile)}
	for _, f := range plot.Step(r, step) {
		drawn, err := draw(f)
		if err != nil {
			return a, err
		}
		a.Pictures = append(a.Pictures, drawn...)
	}
	columns := []struct{ title, metric string }{{"groups", "group_rv_count"}, {"episodes", "sample_count"},
		{"mean reward std", "reward_std_mean"},
		{"‖task‖", "task"}, {"‖entropy‖", "entropy"}, {"‖KL‖", "kl"},
		{"task signal per group", "signal_per_group/task"}, {"policy loss", "loss/policy"},
		{"cosine with all", "cosine_all/task"}}
	t := table.New("bucket")
	for _, c := range columns {
		t.Columns = append(t.Columns, table.Column{Name: c.title, Format: "%.3g"})
	}
	for _, name := range plot.Buckets(record) {
		row := []any{name}
		for _, c := range columns {
			v, ok := record.Float("grad_norm/" + name + "/" + c.metric)
			if !ok {
				row = append(row, nil)
				continue
			}
			low, ok1 := record.Float("grad_norm/" + name + "/signal_per_group_low/task")
			high, ok2 := record.Float("grad_norm/" + name + "/signal_per_group_high/task")
			if strings.HasPrefix(c.metric, "signal_") && ok1 && ok2 {
				row = append(row, table.Cell{Value: v, Text: fmt.Sprintf("%.3g [%.3g, %.3g]", v, low, high)})
				continue
			}
			row = append(row, v)
		}
		t.Add(row...)
	}
	a.Buckets = html(t)
	return a, nil
}
