package report

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"os"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/figure"
	"gyre/internal/table"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/plot"
)

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
	Outcomes        template.HTML
	Comparison      []picture
	Differences     template.HTML
	Runs            []section
}

// section is one run's part.
type section struct {
	Anchor, Label, Status, Mood, Reason, About string
	Warnings                                   []string
	Training, Overview                         []picture
	Validations, Time, Final                   template.HTML
	Analyses                                   []analysed
	Episodes                                   []sample
	EpisodeNote                                string
	Checkpoints                                []string
	Config                                     string
}

// analysed is one analysed step of the run, or of an analysis of its policy.
type analysed struct {
	Title    string
	Open     bool
	Pictures []picture
	Buckets  template.HTML
}

// picture is a figure as panels, which the page arranges in its width.
type picture struct {
	Title, Caption string
	Panels         []panel
}

// panel is one of them as a data URL.
type panel struct {
	Data template.URL
	Alt  string
	Wide bool
}

func newPage(ctx context.Context, runs []*rundir.Run) (*page, error) {
	labels := labelsOf(runs)
	p := &page{Title: labels[0], Subtitle: "A run of Gyre"}
	if len(runs) > 1 {
		p.Title, p.Subtitle = fmt.Sprintf("%d runs", len(runs)), strings.Join(labels, ", ")
		p.Differences = html(differences(runs, labels))
		var conditions []plot.Condition
		for i, r := range runs {
			conditions = append(conditions, plot.Condition{Label: labels[i], Runs: []*rundir.Run{r}})
		}
		drawn, err := draw(plot.Conditions("Comparison", conditions))
		if err != nil {
			return nil, err
		}
		p.Comparison = drawn
	}
	if all := outcomes(runs, labels); len(runs) == 1 {
		p.Outcomes = html(all.Turned())
	} else {
		p.Outcomes = html(all)
	}
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

// html is a table for the page; "" for one without rows.
func html(t *table.Table) template.HTML {
	if len(t.Rows) == 0 {
		return ""
	}
	return t.HTML()
}

// labelsOf are the runs' names; where two have the same, their directories. A run whose configuration a resumption
// changed says so.
func labelsOf(runs []*rundir.Run) []string {
	seen := map[string]int{}
	for _, r := range runs {
		seen[r.Name]++
	}
	var out []string
	for _, r := range runs {
		label := r.Name
		if seen[r.Name] > 1 {
			label = r.Dir
		}
		if i := slices.IndexFunc(r.Changes(), rundir.Change.Trains); i >= 0 {
			label += fmt.Sprintf(" (changed after step %d)", r.Changes()[i].Step)
		}
		out = append(out, label)
	}
	return out
}

func newSection(r *rundir.Run, label string, index int) (section, error) {
	o := r.Outcome()
	s := section{Anchor: fmt.Sprintf("run-%d", index+1), Label: label, Status: describe(o), Mood: mood(o),
		Reason: o.Reason, About: about(r)}
	if r.Broken != nil {
		s.Warnings = append(s.Warnings, fmt.Sprintf("The metrics could not be read to their end: %v", r.Broken))
	}
	steps, err := plot.Steps(r)
	if err != nil { // steps that cannot be compared are shown one by one
		s.Warnings, steps = append(s.Warnings, err.Error()), figure.Figure{}
	}
	if s.Training, err = draw(plot.Training(r)); err != nil {
		return s, err
	}
	if s.Overview, err = draw(steps); err != nil {
		return s, err
	}
	if s.Analyses, err = analyses(r); err != nil {
		return s, err
	}
	s.Validations, s.Time, s.Final = html(validations(r)), html(times(o)), html(final(r))
	s.Episodes, s.EpisodeNote, err = samples(r)
	if err != nil {
		s.Warnings = append(s.Warnings, fmt.Sprintf("No sample episodes: %v", err))
	}
	for _, c := range r.Changes() {
		s.Warnings = append(s.Warnings, fmt.Sprintf("After step %d the run went on with another %s: %s, before %s.",
			c.Step, c.Key, cmp.Or(c.To, "none"), cmp.Or(c.From, "none")))
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

// draw makes a figure's panels; none of a figure without any.
func draw(f figure.Figure) ([]picture, error) {
	if len(f.Panels) == 0 {
		return nil, nil
	}
	drawn, err := f.SVG()
	if err != nil {
		return nil, fmt.Errorf("drawing %s: %w", f.Name, err)
	}
	p := picture{Title: f.Title, Caption: f.Caption}
	for i, svg := range drawn {
		// The picture was made here and is base64: nothing in the URL needs escaping.
		data := template.URL("data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(svg))
		p.Panels = append(p.Panels, panel{data, f.Title + ": " + f.Panels[i].Title, f.Panels[i].Wide})
	}
	return []picture{p}, nil
}

// describe says in a few words how a run ended.
func describe(o rundir.Outcome) string {
	switch o.Status {
	case "":
		return fmt.Sprintf("%d steps", o.Steps)
	case "stopped_early":
		return fmt.Sprintf("stopped early at step %d: %s", o.Steps,
			strings.ReplaceAll(cmp.Or(o.Rule, "collapse"), "_", " "))
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
		parts = append(parts, "id "+i.ID, "model "+i.Model, fmt.Sprintf("seed %d", i.Seed), i.Device, i.Platform,
			"gyre "+i.Gyre)
		if !i.Exact {
			parts = append(parts, "old log-probs recomputed")
		}
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return strings.TrimSpace(s) == "" }), " · ")
}
