// Package report writes one self-contained HTML page about one or several runs: what they were, how they ended, curves,
// gradient analysis, sample episodes, and where several runs differ.
//
//	rundir.Run ──▶ page (what is shown) ──▶ page.html (how) ──▶ FILE.html
//
// The page loads nothing and runs nothing: pictures are data URLs, there are no scripts, and a content security policy
// says so to the browser. What policies and environments wrote is text and is escaped as such.
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
	"path"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/figure"
	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/plot"
	listing "gyre/orchestrate/study/runs"
)

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"panels": panels}).Parse(pageSource))

// Paired is how runs differ from the first, task by task, and what is to be known of it.
type Paired struct {
	Table *table.Table
	Note  string
}

// Write makes the page about runs. What compares them task by task stands first.
func Write(ctx context.Context, runs []*rundir.Run, paired Paired, path string) error {
	p, err := newPage(ctx, runs)
	if err != nil {
		return err
	}
	p.Paired = paired
	return atomicfile.Write(path, func(w io.Writer) error { return pageTemplate.Execute(w, p) })
}

// page is what the template shows.
type page struct {
	Title, Subtitle string
	Paired          Paired
	Outcomes        *table.Table
	Comparison      figure.Figure
	Differences     *table.Table
	Runs            []section
}

// section is one run's part.
type section struct {
	Anchor, Label, Status, Mood, Reason, About string
	Warnings                                   []string
	Training, Overview                         figure.Figure
	Validations, Time, Final                   *table.Table
	Causes                                     *table.Table    // suspected of what is wrong, with how to prove each
	CausesNote                                 string          // "": they were not looked for
	Analyses                                   []plot.Analysed // of the run, and of analyses of its policies
	Episodes                                   []sample
	EpisodeNote                                string
	Checkpoints                                []rundir.Stored
	Config                                     string
}

// panel is a picture as a data URL; the page arranges those of a figure in its width.
type panel struct {
	Data template.URL
	Alt  string
	Wide bool
}

// panels draws a figure's panels.
func panels(f figure.Figure) (list []panel) {
	for i, svg := range f.SVG() {
		// The picture was made here and is base64: nothing in the URL needs escaping.
		data := template.URL("data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(svg))
		list = append(list, panel{data, f.Title + ": " + f.Panels[i].Title, f.Panels[i].Wide})
	}
	return list
}

func newPage(ctx context.Context, runs []*rundir.Run) (*page, error) {
	labels := labelsOf(runs)
	p := &page{Title: labels[0], Subtitle: "A run of Gyre", Outcomes: outcomes(runs, labels).Turned()}
	if len(runs) > 1 {
		p.Title, p.Subtitle = fmt.Sprintf("%d runs", len(runs)), strings.Join(labels, ", ")
		p.Outcomes, p.Differences = outcomes(runs, labels), listing.Configurations(runs, labels)
		for _, row := range listing.Files(runs, labels).Rows {
			p.Differences.Add(append([]any{rundir.FileKey + row[0].(string)}, row[1:1+len(runs)]...)...)
		}
		p.Comparison = plot.Conditions("Comparison", conditionsOf(runs, labels))
	}
	for i, r := range runs {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s, err := newSection(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Dir, err)
		}
		s.Anchor, s.Label = fmt.Sprintf("run-%d", i+1), labels[i]
		if len(runs) == 1 { // of many runs it would take minutes
			if s.Causes, s.CausesNote, err = suspected(ctx, r); err != nil {
				return nil, err
			}
		}
		p.Runs = append(p.Runs, s)
	}
	return p, nil
}

// ofOneRun are the keys in which runs of one condition differ.
var ofOneRun = []string{"run.seed", "run.env_seed", "run.name", "run.output", "run.threads"}

// conditionsOf puts runs together whose configurations, files and changes differ in nothing but the seed and the place.
// A condition of several is called after the folder that its runs' labels share, or after all of them.
func conditionsOf(runs []*rundir.Run, labels []string) (out []plot.Condition) {
	at := map[string]int{}
	for i, r := range runs {
		text, _ := os.ReadFile(r.File("config.toml"))
		flat, err := config.Flatten(text)
		for _, key := range ofOneRun {
			delete(flat, key)
		}
		of := fmt.Sprint(flat, r.Changes()) // maps are printed in the order of their keys
		if r.Info != nil {
			of += fmt.Sprint(r.Info.Files)
		}
		k, known := at[of]
		if !known || err != nil || len(flat) == 0 {
			at[of] = len(out)
			out = append(out, plot.Condition{Label: labels[i], Runs: []*rundir.Run{r}})
			continue
		}
		c := &out[k]
		c.Runs = append(c.Runs, r)
		if folder := path.Dir(labels[i]); folder != "." && (c.Label == folder || path.Dir(c.Label) == folder) {
			c.Label = folder
		} else {
			c.Label += ", " + labels[i]
		}
	}
	return out
}

// labelsOf are the runs' names. A run whose configuration a resumption changed says so.
func labelsOf(runs []*rundir.Run) []string {
	out := listing.Names(runs)
	for k, r := range runs {
		if i := slices.IndexFunc(r.Changes(), config.Change.Trains); i >= 0 {
			out[k] += fmt.Sprintf(" (changed after step %d)", r.Changes()[i].Step)
		}
	}
	return out
}

func newSection(r *rundir.Run) (s section, err error) {
	o := r.Outcome()
	s = section{Status: describe(o), Mood: moods[o.Status], Reason: o.Reason, About: about(r),
		Training: plot.Training(r), Validations: validations(r), Time: plot.Times(o), Final: final(r),
		Checkpoints: r.Checkpoints()}
	if r.Broken != nil {
		s.Warnings = append(s.Warnings, fmt.Sprintf("The metrics could not be read to their end: %v", r.Broken))
	}
	if s.Overview, err = plot.Steps(r, false); err != nil { // steps that cannot be compared are shown one by one
		s.Warnings, s.Overview = append(s.Warnings, err.Error()), figure.Figure{}
	}
	if s.Analyses, err = analyses(r); err != nil {
		return s, err
	}
	if s.Episodes, s.EpisodeNote, err = samples(r); err != nil {
		s.Warnings = append(s.Warnings, fmt.Sprintf("No sample episodes: %v", err))
	}
	for _, c := range r.Changes() {
		s.Warnings = append(s.Warnings, fmt.Sprintf("After step %d the run went on with another %s: %s, before %s.",
			c.Step, c.Key, cmp.Or(c.To, "none"), cmp.Or(c.From, "none")))
	}
	s.Warnings = append(s.Warnings, warnings(r)...)
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

// moods are how the page colours the ends of runs.
var moods = map[string]string{"finished": "good", "stopped_early": "bad", "failed": "bad"}

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
