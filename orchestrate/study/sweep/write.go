package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/figure"
	"gyre/internal/table"
)

// write puts the summary's files into the study's folder.
func (s *Summary) write() error {
	runs := s.runs()
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"summary.csv", runs.WriteCSV},
		{"summary.json", func(w io.Writer) error { return table.WriteJSONList(w, runs, s.conditions, s.compared) }},
		{"best.json", s.best},
	} {
		path := filepath.Join(s.dir, f.name)
		if err := atomicfile.Write(path, f.write); err != nil {
			return err
		}
		s.Files = append(s.Files, path)
	}
	return s.draw()
}

// runs has a row per run.
func (s *Summary) runs() *table.Table {
	t := &table.Table{Columns: []table.Column{{Name: "condition"}, {Name: "seed"}, {Name: "status", Head: "ended"},
		{Name: "steps"}, {Name: "peak_success", Head: "peak success"}, {Name: "last_success", Head: "last"},
		{Name: "mean_last_success", Head: "last 3"}, {Name: "stopped_by", Hidden: true},
		{Name: "seconds", Format: "%.1f"}, {Name: "train_seconds", Hidden: true}, {Name: "eval_seconds", Hidden: true},
		{Name: "wall_seconds", Hidden: true}, {Name: "reward_spread", Head: "spread"}, {Name: "entropy"},
		{Name: "grad_norm", Hidden: true}, {Name: "rung", Hidden: true}, {Name: "error", Hidden: true}}}
	for _, g := range s.groups {
		for _, r := range g.rows {
			ended := strings.ReplaceAll(string(r.run.Status), "_", " ")
			if r.Rule != "" {
				ended += " (" + r.Rule + ")"
			}
			if s.rungs > 0 {
				ended += fmt.Sprintf(", rung %d of %d", len(r.run.Scores), s.rungs)
			}
			t.Add(g.Condition, r.run.Seed, table.Cell{Value: string(r.run.Status), Text: ended}, r.Steps,
				table.Percent(r.Peak), table.Percent(r.Last), table.Percent(r.LastMean), text(r.Rule), r.Total, r.Train,
				r.Eval, r.run.Seconds, r.Spread, r.Entropy, r.GradNorm, len(r.run.Scores), text(r.run.Error))
		}
	}
	return t
}

// text is a cell of a text; the empty one is not known.
func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// best writes a line per stage: what was best in it.
func (s *Summary) best(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	for _, b := range s.Best {
		if err := encoder.Encode(b); err != nil {
			return err
		}
	}
	return nil
}

// Text writes the summary for people, in lines of at most width characters.
func (s *Summary) Text(w io.Writer, width int) error {
	var out strings.Builder
	for _, b := range s.Best {
		fmt.Fprintf(&out, "best: %s (%.3g): %s\n", b.Condition, b.Score, strings.Join(b.Setting, " "))
		if len(b.Ties) > 0 {
			fmt.Fprintf(&out, "      as good: %s; the first of them counts\n", strings.Join(b.Ties, ", "))
		}
	}
	compared := &table.Table{Columns: s.compared.Columns} // what is known of it
	for _, row := range s.compared.Rows {
		if pairs := row[4]; pairs != 0 {
			compared.Add(row...)
		}
	}
	for _, t := range []*table.Table{s.runs(), s.conditions, compared} {
		if len(t.Rows) > 0 {
			fmt.Fprintf(&out, "\n%s", t.Text(width))
		}
	}
	for _, g := range s.groups {
		said := map[string]bool{"": true}
		for _, r := range g.rows {
			if problem := r.run.Error; !said[problem] {
				said[problem] = true
				fmt.Fprintf(&out, "\n%s failed: %s\n", g.Condition, problem)
			}
		}
	}
	_, err := io.WriteString(w, strings.TrimPrefix(out.String(), "\n"))
	return err
}

// draw makes the study's figures.
func (s *Summary) draw() error {
	var problems []error
	for _, f := range figures(filepath.Base(s.dir), s.groups) {
		path := filepath.Join(s.dir, "figures", f.Name)
		problems = append(problems, f.Save(path, figure.PrintDPI))
		s.Files = append(s.Files, path)
	}
	return errors.Join(problems...)
}
