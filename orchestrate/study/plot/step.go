package plot

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"

	"gyre/internal/figure"
	"gyre/internal/table"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// stepAnalysis is an analysed step with what its figures have in common.
type stepAnalysis struct {
	analysis
	caption string
}

func newStep(run string, record metrics.Record, prefix string) stepAnalysis {
	s := stepAnalysis{analysis: newAnalysis(fmt.Sprintf("step %d", record.Step), record, prefix)}
	parts := []string{s.describe(), run}
	if prefix == preFilter {
		parts = append(parts, "before the filter")
	}
	episodes, groups := 0.0, 0.0
	for _, b := range s.buckets {
		episodes, groups = episodes+b.values["sample_count"], groups+b.values["group_rv_count"]
	}
	if episodes > 0 {
		parts = append(parts, fmt.Sprintf("%.0f episodes in %.0f groups", episodes, groups))
	}
	s.caption = strings.Join(append(parts, "Q1 = lowest reward variance"), "; ")
	return s
}

// Analysed is what a page shows of an analysed step.
type Analysed struct {
	Title   string
	Open    bool // on the page
	Figures []figure.Figure
	Buckets *table.Table
}

// Step is an analysed step: its summary, its gradient norms, and a table of its buckets.
func Step(r *rundir.Run, step int) Analysed {
	record, _ := r.At(step)
	s := newStep(r.Name, record, postFilter)
	return Analysed{Title: fmt.Sprintf("Step %d (%s)", step, s.describe()),
		Figures: []figure.Figure{s.summary(), s.norms()}, Buckets: s.bucketTable()}
}

// bucketTable has a row per bucket, for people.
func (s stepAnalysis) bucketTable() *table.Table {
	columns := []struct{ title, metric string }{{"groups", "group_rv_count"}, {"episodes", "sample_count"},
		{"mean reward std", "reward_std_mean"}, {"‖task‖", "task"}, {"‖entropy‖", "entropy"}, {"‖KL‖", "kl"},
		{"task signal per group", "signal_per_group/task"}, {"policy loss", "loss/policy"},
		{"cosine with all", "cosine_all/task"}}
	t := table.New("bucket")
	for _, c := range columns {
		t.Columns = append(t.Columns, table.Column{Name: c.title, Format: "%.3g"})
	}
	for _, b := range s.whole {
		row := []any{b.name}
		for _, c := range columns {
			cell := table.Cell{Value: b.value(c.metric)}
			if c.metric == "signal_per_group/task" {
				cell.Low, cell.High = b.value("signal_per_group_low/task"), b.value("signal_per_group_high/task")
			}
			row = append(row, cell)
		}
		t.Add(row...)
	}
	return t
}

// figure makes one of the step's figures of those panels that have something to show.
func (s stepAnalysis) figure(what string, columns int, width, height float64, panels ...figure.Panel) figure.Figure {
	// Many buckets need wide panels: about a third of an inch for a bar and its value.
	f := figure.Figure{Name: s.file(what, "png"), Title: "Gradient analysis, " + s.name, Caption: s.caption,
		Columns: columns, Height: height, Width: math.Max(width, 0.6+0.36*float64(len(s.whole)))}
	for _, p := range panels {
		if !p.Empty() {
			f.Panels = append(f.Panels, p)
		}
	}
	return f
}

func (s stepAnalysis) file(what, extension string) string {
	return fmt.Sprintf("gradient_analysis_%s_step_%d.%s", what, s.record.Step, extension)
}

// summary has the task's gradient, the buckets' reward standard deviations, and the gradient norms of the regularisers.
func (s stepAnalysis) summary() figure.Figure {
	f := s.figure("summary", 3, 2.7, 2.6, strengthPanel(s.buckets, "Task gradient", task, s.intervals()),
		stdBoxes(s.buckets), strengthPanel(s.buckets, regulariserTitle(s.buckets), regularisers, s.intervals()))
	f.Note(notComputed(s.buckets))
	f.Note(s.caveat())
	return f
}

// norms has the gradient norm of each term per bucket and, where the profile allows it, below them norms that can be
// compared between buckets of different size.
func (s stepAnalysis) norms() figure.Figure {
	var whole, perGroup []figure.Panel
	for i, t := range terms {
		switch {
		case !computed(s.whole, t.name):
		case s.profile == "exact":
			whole = append(whole, bars(s.whole, t.title+" gradient, whole bucket", t.name, "L2 norm", t.color))
			perGroup = append(perGroup, strengthPanel(s.whole, t.title+" gradient per group", terms[i:i+1],
				s.intervals()))
		default:
			whole = append(whole, bars(s.whole, t.title+" gradient", t.name, "L2 norm", t.color))
		}
	}
	f := s.figure("plots", max(len(whole), 2), 2.7, 2.4, append(whole, perGroup...)...)
	if s.profile == "exact" {
		f.Note("whole bucket: grows with its size")
	}
	f.Note(notComputed(s.whole))
	f.Note(s.caveat())
	return f
}

// losses has the loss terms per bucket.
func (s stepAnalysis) losses() figure.Figure {
	return s.figure("loss_plots", 2, 3.2, 2.3, bars(s.whole, "Policy loss", "loss/policy", "loss", figure.Blue),
		bars(s.whole, "Entropy term", "loss/entropy", "loss", figure.Orange),
		bars(s.whole, "KL term", "loss/kl", "loss", figure.Green),
		bars(s.whole, "Total loss", "loss/total", "loss", figure.Purple))
}

// normalized has, above each other, the norms divided by the bucket's episodes and by its sampled tokens: the two
// differ by orders of magnitude and cannot share an axis.
func (s stepAnalysis) normalized() figure.Figure {
	var episodes, tokens []figure.Panel
	for _, t := range terms {
		if computed(s.whole, t.name) {
			episodes = append(episodes, bars(s.whole, t.title+" per episode", "per_sample/"+t.name, "norm / episode",
				t.color))
			tokens = append(tokens, bars(s.whole, t.title+" per token", "per_token/"+t.name, "norm / token", t.color))
		}
	}
	f := s.figure("normed_grads", max(len(episodes), 2), 2.7, 2.3, append(episodes, tokens...)...)
	f.Note("where a gradient is noise, these shrink as 1/√n with the bucket's n episodes or tokens: a small bucket " +
		"then looks strong")
	return f
}

// std has the mean reward standard deviation of each bucket's groups, with the smallest and the largest as bars.
func (s stepAnalysis) std() figure.Figure {
	f := s.figure("reward_std", 1, 4, 3, bars(s.whole, "Reward std", "reward_std_mean", stdLabel, figure.Vermilion))
	f.Note("error bars: smallest and largest group")
	return f
}

// files are the step's figures and tables; note says which of them is missing.
func (s stepAnalysis) files() (files []File, note string) {
	figures := []figure.Figure{s.summary(), s.norms(), s.losses()}
	deviates := false
	for _, b := range s.whole {
		deviates = deviates || b.values["reward_std_mean"] != 0
	}
	if deviates {
		figures = append(figures, s.std())
	} else {
		note = fmt.Sprintf("%s: no %s: every bucket's reward std is zero or was not logged", s.name,
			s.file("reward_std", "png"))
	}
	for _, f := range append(figures, s.normalized()) {
		files = append(files, File{f.Name, f.PNG})
	}
	return append(files, File{s.file("metrics", "json"), func(w io.Writer, _ int) error { return s.writeJSON(w) }},
		File{s.file("bucket_rv_table", "csv"), func(w io.Writer, _ int) error { return s.groupTable().WriteCSV(w) }}), note
}

// writeJSON writes everything that the step logged, tables included.
func (s stepAnalysis) writeJSON(w io.Writer) error {
	line, err := metrics.Encode(s.record.Step, s.record.Values)
	if err != nil {
		return err
	}
	var object any
	_ = json.Unmarshal(line, &object) // what was just written
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(object)
}

// groupTable lists the groups of the buckets with their reward standard deviations. Buckets whose groups were not
// logged have none.
func (s stepAnalysis) groupTable() *table.Table {
	t := table.New("bucket", "group_id", "reward_std", "profile")
	for _, b := range s.buckets {
		if b.stds() == nil {
			continue
		}
		for _, row := range b.groups.Rows {
			t.Add(cell(b.groups, row, "bucket"), cell(b.groups, row, "group_id"), cell(b.groups, row, "reward_std"),
				s.profile)
		}
	}
	return t
}
