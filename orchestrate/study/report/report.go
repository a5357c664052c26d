package report

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"gyre/internal/atomicfile"
	"gyre/internal/statistics"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/plot"
)

// dpi of the pictures: sharp on a screen of twice the usual density, without making the page heavy.
const dpi = 150

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

// Write makes the page about runs.
func Write(ctx context.Context, runs []*rundir.Run, path string) error {
	p, err := newPage(ctx, runs)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error { return pageTemplate.Execute(w, p) })
}

// page is what the template shows.
type page struct {
	Title, Subtitle string
	Outcomes        table
	Comparison      []picture
	Differences     table
	Runs            []section
}

// section is one run's part.
type section struct {
	Anchor, Label, Status, Mood, Reason, About string
	Warnings                                   []string
	Training, Overview                         []picture
	Validations, Time, Final                   table
	Analyses                                   []analysed
	Episodes                                   []sample
	EpisodeNote                                string
	Checkpoints                                []string
	Config                                     string
}

// analysed is one step of the gradient analysis.
type analysed struct {
	Step     int
	Profile  string
	Open     bool
	Pictures []picture
	Buckets  table
}

// picture is a figure as a data URL.
type picture struct {
	Data template.URL
	Alt  string
}

type table struct {
	Columns []string
	Rows    [][]cell
}

// cell is a value; text is aligned to the left.
type cell struct {
	Value string
	Text  bool
}

func newPage(ctx context.Context, runs []*rundir.Run) (*page, error) {
	labels := labelsOf(runs)
	p := &page{Title: labels[0], Subtitle: "A run of Gyre"}
	if len(runs) > 1 {
		p.Title, p.Subtitle = fmt.Sprintf("%d runs", len(runs)), strings.Join(labels, ", ")
		p.Differences = differences(runs, labels)
		var conditions []plot.Condition
		for i, r := range runs {
			conditions = append(conditions, plot.Condition{Label: labels[i], Runs: []*rundir.Run{r}})
		}
		if f := plot.Conditions("Comparison", conditions); !f.Empty() {
			drawn, err := draw(f)
			if err != nil {
				return nil, err
			}
			p.Comparison = []picture{drawn}
		}
	}
	p.Outcomes = outcomes(runs, labels)
	for i, r := range runs {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s, err := newSection(r, labels[i], i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Dir, err)
		}
		p.Runs = append(p.Runs, s)
	}
	return p, nil
}

// labelsOf are the runs' names; where two have the same, their directories.
func labelsOf(runs []*rundir.Run) []string {
	seen := map[string]int{}
	for _, r := range runs {
		seen[r.Name]++
	}
	var out []string
	for _, r := range runs {
		if seen[r.Name] > 1 {
			out = append(out, r.Dir)
		} else {
			out = append(out, r.Name)
		}
	}
	return out
}

func newSection(r *rundir.Run, label string, index int) (section, error) {
	o := r.Outcome()
	s := section{Anchor: fmt.Sprintf("run-%d", index+1), Label: label, Status: describe(o), Mood: mood(o), Reason: o.Reason, About: about(r)}
	if r.Broken != nil {
		s.Warnings = append(s.Warnings, fmt.Sprintf("The metrics could not be read to their end: %v", r.Broken))
	}
	if f, ok := plot.Training(r); ok {
		drawn, err := draw(f)
		if err != nil {
			return s, err
		}
		s.Training = append(s.Training, drawn)
	}
	f, ok, err := plot.Steps(r)
	if err != nil { // steps that cannot be compared are shown one by one
		s.Warnings = append(s.Warnings, err.Error())
	} else if ok {
		drawn, err := draw(f)
		if err != nil {
			return s, err
		}
		s.Overview = append(s.Overview, drawn)
	}
	steps := plot.AnalysedSteps(r, false)
	for i, step := range steps {
		a, err := newAnalysed(r, step, i == len(steps)-1)
		if err != nil {
			return s, fmt.Errorf("gradient analysis of step %d: %w", step, err)
		}
		s.Analyses = append(s.Analyses, a)
	}
	s.Validations, s.Time, s.Final = validations(r), times(o), final(r)
	s.Episodes, s.EpisodeNote, err = samples(r)
	if err != nil {
		s.Warnings = append(s.Warnings, fmt.Sprintf("No sample episodes: %v", err))
	}
	s.Warnings = append(s.Warnings, warnings(r)...)
	for _, c := range r.Checkpoints() {
		s.Checkpoints = append(s.Checkpoints, c.Path)
	}
	if text, err := os.ReadFile(r.File("config.toml")); err == nil {
		s.Config = string(text)
	}
	return s, nil
}

// mostWarnings is how many different warnings a page repeats.
const mostWarnings = 12

// warnings are what the run's log warns of, each once. A run without a log has none.
func warnings(r *rundir.Run) (out []string) {
	data, err := os.ReadFile(r.File("log.txt"))
	if err != nil {
		return nil
	}
	left := 0
	for line := range strings.Lines(string(data)) {
		_, text, ok := strings.Cut(strings.TrimSpace(line), " warning: ")
		if !ok || slices.Contains(out, text) {
			continue
		}
		if len(out) == mostWarnings {
			left++
			continue
		}
		out = append(out, text)
	}
	if left > 0 {
		out = append(out, fmt.Sprintf("%d further warnings are in log.txt", left))
	}
	return out
}

func draw(f plot.Picture) (picture, error) {
	var png bytes.Buffer
	if err := f.Render(&png, dpi); err != nil {
		return picture{}, fmt.Errorf("drawing %s: %w", f.Name, err)
	}
	// The picture was made here and is base64: nothing in the URL needs escaping.
	return picture{template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(png.Bytes())), f.Title() + ". " + f.Caption()}, nil
}

// describe says in a few words how a run ended.
func describe(o rundir.Outcome) string {
	switch o.Status {
	case "":
		return fmt.Sprintf("%d steps", o.Steps)
	case "stopped_early":
		return fmt.Sprintf("stopped early at step %d: %s", o.Steps, strings.ReplaceAll(cmp.Or(o.Rule, "collapse"), "_", " "))
	}
	return fmt.Sprintf("%s, step %d", strings.ReplaceAll(o.Status, "_", " "), o.Steps)
}

func mood(o rundir.Outcome) string {
	switch o.Status {
	case "finished":
		return "good"
	case "stopped_early", "failed":
		return "bad"
	}
	return ""
}

// about is what one needs to know to repeat the run or to trust it.
func about(r *rundir.Run) string {
	parts := []string{r.Dir}
	if i := r.Info; i != nil && i.Model != "" {
		parts = append(parts, "id "+i.ID, "model "+i.Model, fmt.Sprintf("seed %d", i.Seed), i.Device, i.Platform, "gyre "+i.Gyre)
		if !i.Exact {
			parts = append(parts, "old log-probs recomputed")
		}
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return strings.TrimSpace(s) == "" }), " · ")
}

// outcomes has a row per run.
func outcomes(runs []*rundir.Run, labels []string) table {
	t := table{Columns: []string{"run", "ended", "steps", "success before", "peak", "at step", "last", fmt.Sprintf("last %d", rundir.LastValidations),
		"entropy", "spread", "grad norm", "hours"}}
	for i, r := range runs {
		o := r.Outcome()
		at := ""
		if len(o.Success) > 0 {
			at = strconv.Itoa(o.PeakStep)
		}
		t.add(text(labels[i]), text(describe(o)), number(float64(o.Steps)), percent(o.Baseline), percent(o.Peak), cell{Value: at}, percent(o.Last), percent(o.LastMean),
			number(o.Entropy), number(o.Spread), number(o.GradNorm), cell{Value: fmt.Sprintf("%.2f", o.Total/3600)})
	}
	return t
}

// differences lists the keys in which the configurations differ, name and output folder aside.
func differences(runs []*rundir.Run, labels []string) table {
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
	t := table{Columns: append([]string{"key"}, labels...)}
	for _, key := range sorted(keys) {
		row := []cell{text(key)}
		differs := false
		for i := range runs {
			row = append(row, cell{Value: flat[i][key]})
			differs = differs || flat[i][key] != flat[0][key]
		}
		if differs && key != "run.name" && key != "run.output" {
			t.add(row...)
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
func validations(r *rundir.Run) table {
	t := table{Columns: []string{"step"}}
	keys, episodes := r.Keys("val-env/*/success"), r.ValidationEpisodes()
	for _, key := range keys {
		t.Columns = append(t.Columns, tagOf(key))
	}
	for _, record := range r.Records {
		row := []cell{number(float64(record.Step))}
		found := false
		for _, key := range keys {
			v, ok := rundir.Number(record, key)
			value := cell{}
			if ok {
				found, value = true, percent(v)
				if n := episodes[tagOf(key)]; n > 0 {
					low, high := statistics.Wilson(v, n, 0.95)
					value.Value += fmt.Sprintf(" [%.1f, %.1f]", 100*low, 100*high)
				}
			}
			row = append(row, value)
		}
		if found {
			t.add(row...)
		}
	}
	return t
}

func tagOf(key string) string {
	return strings.TrimSuffix(strings.TrimPrefix(key, "val-env/"), "/success")
}

// times has the phases that took more than a hundredth of the run.
func times(o rundir.Outcome) table {
	t := table{Columns: []string{"phase", "seconds", "share"}}
	names := sorted(o.Phases)
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(o.Phases[b], o.Phases[a]) })
	for _, name := range names {
		if s := o.Phases[name]; o.Total > 0 && s > 0.01*o.Total {
			t.add(text(name), cell{Value: fmt.Sprintf("%.1f", s)}, percent(s/o.Total))
		}
	}
	return t
}

// final has every number and text of the last step.
func final(r *rundir.Run) table {
	t := table{Columns: []string{"metric", "value"}}
	last := r.Records[len(r.Records)-1]
	for _, key := range sorted(last.Values) {
		switch v := last.Values[key].(type) {
		case float64:
			t.add(text(key), number(v))
		case string:
			t.add(text(key), text(v))
		case bool:
			t.add(text(key), cell{Value: fmt.Sprint(v)})
		}
	}
	return t
}

// newAnalysed shows one step of the gradient analysis.
func newAnalysed(r *rundir.Run, step int, open bool) (analysed, error) {
	record, _ := r.At(step)
	a := analysed{Step: step, Open: open, Profile: "profile not recorded"}
	if profile, ok := record.Values["grad_analysis/profile"].(string); ok {
		a.Profile = profile + " profile"
	}
	pictures, err := plot.Step(r, step)
	if err != nil {
		return a, err
	}
	for _, f := range pictures {
		drawn, err := draw(f)
		if err != nil {
			return a, err
		}
		a.Pictures = append(a.Pictures, drawn)
	}
	columns := []struct{ title, metric string }{{"groups", "group_rv_count"}, {"episodes", "sample_count"}, {"mean spread", "reward_std_mean"},
		{"‖task‖", "task"}, {"‖entropy‖", "entropy"}, {"‖KL‖", "kl"}, {"task signal per group", "signal_per_group/task"}, {"policy loss", "loss/policy"},
		{"cosine with all", "cosine_all/task"}}
	a.Buckets.Columns = []string{"bucket"}
	for _, c := range columns {
		a.Buckets.Columns = append(a.Buckets.Columns, c.title)
	}
	names := []string{}
	for i := 1; ; i++ {
		name := fmt.Sprintf("bucket_%d", i)
		if _, ok := record.Float("grad_norm/" + name + "/sample_count"); !ok {
			if i > 64 {
				break
			}
			continue
		}
		names = append(names, name)
	}
	for _, name := range append(names, "all") {
		row := []cell{text(name)}
		for _, c := range columns {
			value := cell{}
			if v, ok := record.Float("grad_norm/" + name + "/" + c.metric); ok {
				value = number(v)
				low, ok1 := record.Float("grad_norm/" + name + "/signal_per_group_low/task")
				high, ok2 := record.Float("grad_norm/" + name + "/signal_per_group_high/task")
				if strings.HasPrefix(c.metric, "signal_") && ok1 && ok2 {
					value.Value += fmt.Sprintf(" [%.3g, %.3g]", low, high)
				}
			}
			row = append(row, value)
		}
		a.Buckets.add(row...)
	}
	return a, nil
}

func (t *table) add(row ...cell) { t.Rows = append(t.Rows, row) }

func text(s string) cell { return cell{s, true} }

func number(v float64) cell {
	if math.IsNaN(v) {
		return cell{Value: "–"}
	}
	return cell{Value: strconv.FormatFloat(v, 'g', 5, 64)}
}

func percent(v float64) cell {
	if math.IsNaN(v) {
		return cell{Value: "–"}
	}
	return cell{Value: fmt.Sprintf("%.1f %%", 100*v)}
}

func sorted[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}
