package plot

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"

	"gyre/orchestrate/run/metrics"
)

// step is one analysed step.
type step struct {
	record  metrics.Record
	profile string
	buckets []bucket // with "all"
	title   string
	caption string
}

func newStep(run string, record metrics.Record, prefix string) step {
	s := step{record: record, profile: profileOf(record), buckets: buckets(record, prefix)}
	s.title = fmt.Sprintf("Gradient analysis, step %d", record.Step)
	parts := []string{run, describeProfile(s.profile)}
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
	s.caption = strings.Join(append(parts, "Q1 = lowest reward spread"), "; ")
	return s
}

// intervals names the estimates of the step's figures.
func (s step) intervals() string { return intervalText(s.record.Float("grad_analysis/confidence")) }

// summary has the buckets' reward spreads, and the gradient norms of the task and of the regularisers.
func (s step) summary() (figure, error) {
	list := proper(s.buckets)
	box, err := spreadBoxes(list)
	if err != nil {
		return figure{}, err
	}
	f := s.figure(3, 2.7, 2.3, box, strengthPanel(list, "Task gradient", components[2:], s.intervals()),
		strengthPanel(list, sumTitle, regularisers, s.intervals()))
	f.caption += caveat(s.profile)
	return f, nil
}

// draw writes the step's files.
func (s step) draw(out *output) error {
	name := func(what, extension string) string {
		return fmt.Sprintf("gradient_analysis_%s_step_%d.%s", what, s.record.Step, extension)
	}
	figures := []struct {
		what string
		make func() (figure, error)
	}{
		{"summary", s.summary},
		{"plots", s.norms},
		{"loss_plots", s.losses},
		{"reward_std", s.spread},
		{"normed_grads", s.normalized},
	}
	for _, f := range figures {
		if f.what == "reward_std" && !s.hasSpread() {
			out.options.Note(fmt.Sprintf("step %d: no %s: every bucket's reward spread is zero or was not logged", s.record.Step, name(f.what, "png")))
			continue
		}
		drawn, err := f.make()
		if err != nil {
			return err
		}
		if err := out.figure(name(f.what, "png"), drawn); err != nil {
			return err
		}
	}
	if err := out.file(name("metrics", "json"), s.writeJSON); err != nil {
		return err
	}
	return out.file(name("bucket_rv_table", "csv"), s.writeSpreads)
}

func (s step) hasSpread() bool {
	for _, b := range s.buckets {
		if v, ok := b.get("reward_std_mean"); ok && v != 0 {
			return true
		}
	}
	return false
}

func (s step) figure(columns int, width, height float64, panels ...panel) figure {
	// Many buckets need wide panels: about a third of an inch for a bar and its value.
	width = math.Max(width, 0.6+0.36*float64(len(s.buckets)))
	return figure{title: s.title, caption: s.caption, columns: columns, width: vg.Length(width) * vg.Inch,
		height: vg.Length(height) * vg.Inch, panels: panels}
}

// writeJSON writes everything that the step logged, tables included; numbers that JSON does not have are written as in
// metrics.jsonl.
func (s step) writeJSON(w io.Writer) error {
	values := map[string]any{"schema": metrics.Schema, "step": s.record.Step}
	for key, v := range s.record.Values {
		values[key] = plain(v)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(values)
}

// plain turns a metric into what encoding/json writes as metrics.jsonl has it.
func plain(value any) any {
	switch v := value.(type) {
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN"
		case math.IsInf(v, 1):
			return "Infinity"
		case math.IsInf(v, -1):
			return "-Infinity"
		}
	case metrics.Table:
		rows := make([][]any, len(v.Rows))
		for i, row := range v.Rows {
			for _, cell := range row {
				rows[i] = append(rows[i], plain(cell))
			}
		}
		return map[string]any{"columns": v.Columns, "rows": rows}
	}
	return value
}

// writeSpreads writes every group's reward standard deviation as CSV, as a run does. Buckets whose groups were not logged have none.
func (s step) writeSpreads(w io.Writer) error {
	rows := [][]string{{"bucket", "group_id", "reward_std", "profile"}}
	for _, b := range proper(s.buckets) {
		if b.spreads == nil {
			continue
		}
		for _, row := range b.table.Rows {
			cells := []string{"", "", "", s.profile}
			for i, name := range b.table.Columns {
				if at := slices.Index(rows[0], name); at >= 0 && i < len(row) && row[i] != nil {
					cells[at] = fmt.Sprint(row[i])
				}
			}
			rows = append(rows, cells)
		}
	}
	return csv.NewWriter(w).WriteAll(rows)
}
