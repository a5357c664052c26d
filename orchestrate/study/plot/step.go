package plot

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/figure"
	"gyre/internal/table"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// step is one analysed step.
type step struct {
	record         metrics.Record
	profile        string
	buckets        []bucket // with "all"
	title, caption string
}

func newStep(run string, record metrics.Record, prefix string) step {
	s := step{record: record, profile: profileOf(record), buckets: buckets(record, prefix)}
	s.title = fmt.Sprintf("Gradient analysis, step %d", record.Step)
	parts := []string{describeProfile(s.profile), run}
	if prefix == preFilter {
		parts = append(parts, "before the filter")
	}
	count := func(name string) (sum float64) {
		for _, b := range proper(s.buckets) {
			v, _ := b.get(name)
			sum += v
		}
		return sum
	}
	if n := count("sample_count"); n > 0 {
		parts = append(parts, fmt.Sprintf("%.0f episodes in %.0f groups", n, count("group_rv_count")))
	}
	s.caption = strings.Join(append(parts, "Q1 = lowest reward variance"), "; ")
	return s
}

// Step is the summary of an analysed step, and its gradient norms.
func Step(r *rundir.Run, step int) []figure.Figure {
	record, _ := r.At(step)
	s := newStep(r.Name, record, postFilter)
	return []figure.Figure{s.summary(), s.norms()}
}

// figure makes one of the step's figures of those panels that have something to show.
func (s step) figure(what string, columns int, width, height float64, panels ...figure.Panel) figure.Figure {
	// Many buckets need wide panels: about a third of an inch for a bar and its value.
	f := figure.Figure{Name: s.file(what, "png"), Title: s.title, Caption: s.caption, Columns: columns, Height: height,
		Width: math.Max(width, 0.6+0.36*float64(len(s.buckets)))}
	for _, p := range panels {
		if !p.Empty() {
			f.Panels = append(f.Panels, p)
		}
	}
	return f
}

func (s step) file(what, extension string) string {
	return fmt.Sprintf("gradient_analysis_%s_step_%d.%s", what, s.record.Step, extension)
}

// intervals names the estimates of the step's figures.
func (s step) intervals() string { return intervalText(s.record.Float("grad_analysis/confidence")) }

// summary has the task's gradient, the buckets' reward standard deviations, and the gradient norms of the regularisers.
func (s step) summary() figure.Figure {
	list := proper(s.buckets)
	f := s.figure("summary", 3, 2.7, 2.2, strengthPanel(list, "Task gradient", task, s.intervals()), stdBoxes(list),
		strengthPanel(list, regulariserTitle(list), regularisers, s.intervals()))
	f.Note(notComputed(list))
	f.Note(caveat(s.profile))
	return f
}

// norms has the gradient norm of each term per bucket and, where the profile allows it, below them norms that can be
// compared between buckets of different size.
func (s step) norms() figure.Figure {
	var whole, perGroup []figure.Panel
	what := " gradient"
	if s.profile == "exact" {
		what += ", whole bucket"
	}
	for _, t := range terms {
		if !computed(s.buckets, t.name) {
			continue
		}
		whole = append(whole, s.bars(t.title+what, t.name, "L2 norm", t))
		if s.profile == "exact" {
			perGroup = append(perGroup, strengthPanel(s.buckets, t.title+" gradient per group", []term{t},
				s.intervals()))
		}
	}
	f := s.figure("plots", max(len(whole), 2), 2.7, 2, append(whole, perGroup...)...)
	if s.profile == "exact" {
		f.Note("whole bucket: grows with its size")
	}
	f.Note(notComputed(s.buckets))
	f.Note(caveat(s.profile))
	return f
}

// losses has the loss terms per bucket.
func (s step) losses() figure.Figure {
	return s.figure("loss_plots", 2, 3.2, 1.9, s.bars("Policy loss", "loss/policy", "loss", terms[2]),
		s.bars("Entropy term", "loss/entropy", "loss", terms[1]),
		s.bars("KL term", "loss/kl", "loss", terms[0]),
		s.bars("Total loss", "loss/total", "loss", term{color: figure.Purple}))
}

// normalized has, above each other, the norms divided by the bucket's episodes and by its sampled tokens: the two
// differ by orders of magnitude and cannot share an axis.
func (s step) normalized() figure.Figure {
	var episodes, tokens []figure.Panel
	for _, t := range terms {
		if computed(s.buckets, t.name) {
			episodes = append(episodes, s.bars(t.title+" per episode", "per_sample/"+t.name, "norm / episode", t))
			tokens = append(tokens, s.bars(t.title+" per token", "per_token/"+t.name, "norm / token", t))
		}
	}
	f := s.figure("normed_grads", max(len(episodes), 2), 2.7, 1.9, append(episodes, tokens...)...)
	f.Note("where a gradient is noise, these shrink as 1/√n with the bucket's n episodes or tokens: a small bucket " +
		"then looks strong")
	return f
}

// std has the mean reward standard deviation of each bucket's groups, with the smallest and the largest as bars.
func (s step) std() figure.Figure {
	f := s.figure("reward_std", 1, 4, 2.6, s.bars("Reward std", "reward_std_mean", stdLabel,
		term{color: figure.Vermilion}))
	f.Note("error bars: smallest and largest group")
	return f
}

// bars is a panel of one metric per bucket, with values written above bars and their error bars, and "all" in grey. A
// bucket without the metric has no bar.
func (s step) bars(title, name, unit string, t term) figure.Panel {
	p := figure.Panel{Title: title, X: axis(s.buckets), Y: figure.Axis{Label: unit}}
	if !computed(s.buckets, name) {
		return p
	}
	largest := 0.0
	for _, b := range s.buckets {
		if v, ok := b.get(name); ok {
			largest = math.Max(largest, math.Abs(v))
		}
	}
	own, all := figure.Mark{Kind: figure.Bars, Color: t.color, Text: []string{}},
		figure.Mark{Kind: figure.Bars, Color: figure.Grey, Text: []string{}}
	for i, b := range s.buckets {
		m := &own
		if b.name == "all" {
			m = &all
		}
		v, ok := b.get(name)
		text := "n/a"
		if !ok {
			v = math.NaN()
		} else {
			text = decimal(v, largest)
		}
		low, high := math.NaN(), math.NaN()
		if _, l, h, ok := interval(b); ok && name == "reward_std_mean" {
			low, high = l, h
		}
		m.AddInterval(float64(i), v, low, high)
		m.Text = append(m.Text, text)
	}
	p.Add(own, all)
	return p
}

// decimal writes v with as many decimals as give the largest value of its panel three digits.
func decimal(v, largest float64) string {
	decimals := 2
	if largest > 0 {
		exponent := int(math.Floor(math.Log10(largest) + 1e-9))
		if decimals = max(0, 2-exponent); exponent < -2 || exponent > 4 { // in the axis's unit
			v, decimals = v*math.Pow(10, float64(-exponent)), 2
		}
	}
	return figure.Typographic(strconv.FormatFloat(v, 'f', decimals, 64))
}

// draw writes the step's files.
func (s step) draw(out *output) error {
	figures := []figure.Figure{s.summary(), s.norms(), s.losses()}
	if s.hasStd() {
		figures = append(figures, s.std())
	} else {
		out.options.Note(fmt.Sprintf("step %d: no %s: every bucket's reward std is zero or was not logged",
			s.record.Step, s.file("reward_std", "png")))
	}
	for _, f := range append(figures, s.normalized()) {
		if err := out.figure(f); err != nil {
			return err
		}
	}
	if err := out.file(s.file("metrics", "json"), s.writeJSON); err != nil {
		return err
	}
	return out.file(s.file("bucket_rv_table", "csv"), s.stdTable().WriteCSV)
}

func (s step) hasStd() bool {
	for _, b := range s.buckets {
		if v, ok := b.get("reward_std_mean"); ok && v != 0 {
			return true
		}
	}
	return false
}

// writeJSON writes everything that the step logged, tables included.
func (s step) writeJSON(w io.Writer) error {
	line, err := metrics.Encode(s.record.Step, s.record.Values)
	if err != nil {
		return err
	}
	var object any
	if err := json.Unmarshal(line, &object); err != nil {
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(object)
}

// stdTable lists the groups of the buckets with their reward standard deviations. Buckets whose groups were not logged
// have none.
func (s step) stdTable() *table.Table {
	t := table.New("bucket", "group_id", "reward_std", "profile")
	for _, b := range proper(s.buckets) {
		if b.stds == nil {
			continue
		}
		for _, row := range b.table.Rows {
			cells := make([]any, 0, 4)
			for _, name := range []string{"bucket", "group_id", "reward_std"} {
				if i := slices.Index(b.table.Columns, name); i >= 0 && i < len(row) {
					cells = append(cells, row[i])
				} else {
					cells = append(cells, nil)
				}
			}
			t.Add(append(cells, s.profile)...)
		}
	}
	return t
}
