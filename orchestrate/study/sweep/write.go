package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gyre/internal/atomicfile"
	"gyre/internal/figure"
	"gyre/internal/table"
)

// write puts the summary's files, and the study's figures, into its folder.
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
	var problems []error
	for _, f := range figures(filepath.Base(s.dir), s.groups) {
		path := filepath.Join(s.dir, "figures", f.Name)
		problems = append(problems, f.Save(path, figure.PrintDPI))
		s.Files = append(s.Files, path)
	}
	return errors.Join(problems...)
}

// runs has a row per run.
func (s *Summary) runs() *table.Table {
	t := &table.Table{Columns: []table.Column{{Name: "condition"}, {Name: "seed"}, {Name: "status", Head: "ended"},
		{Name: "steps"}, {Name: "peak_success", Head: "peak success"}, {Name: "last_success", Head: "last"},
		{Name: "mean_last_success", Hidden: true}, {Name: "stopped_by", Hidden: true},
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

// Text is the summary for people, in lines of at most width characters.
func (s *Summary) Text(width int) string {
	var out strings.Builder
	for _, b := range s.Best {
		fmt.Fprintf(&out, "best: %s (%s): %s\n", b.Condition, b.said, strings.Join(b.Setting, " "))
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
	return strings.TrimPrefix(out.String(), "\n")
}

// logWidth is that of the tables in the summary log, which people read in windows of any width.
const logWidth = 160

// The summary log is the summary as text. It is written anew when the study is started, grows by a line as each run
// ends, and ends in the lines of all runs in their order and the tables. What a run's line says is also in a file
// beside its log, LOG.result.

// head is what the summary log begins with.
func (x *execution) head() []string {
	s := x.study
	if len(s.Header) > 0 {
		return s.Header
	}
	place := fmt.Sprintf("slots=%d | threads_per_run=%d", len(x.slots), x.slots[0].threads)
	if len(s.Devices) > 0 {
		place += fmt.Sprintf(" | devices=%s | devices_per_run=%d", strings.Join(s.Devices, ","),
			len(x.slots[0].devices))
	}
	return []string{fmt.Sprintf("base=%s | steps=%d | seeds=%d", s.BasePath(), x.base.Run.Steps, s.Seeds), place}
}

// beginLog starts the log with the lines of the runs that are over already.
func (x *execution) beginLog() error {
	return atomicfile.Write(x.study.summaryLog(), func(w io.Writer) error {
		fmt.Fprintf(w, "=== %s: %s\n%s\n", x.study.title(), time.Now().Format(time.DateTime),
			strings.Join(x.head(), "\n"))
		for _, r := range x.state.Runs {
			if r.Over() || r.Status == Paused {
				fmt.Fprint(w, x.study.line(r))
			}
		}
		return nil
	})
}

// logRun adds the line of a run that has just ended.
func (x *execution) logRun(r *Run, line string) error {
	result := strings.TrimSuffix(r.Log, ".log") + ".result"
	err := atomicfile.Write(result, func(w io.Writer) error { _, err := io.WriteString(w, line); return err })
	return errors.Join(err, x.addToLog(line))
}

// endLog adds the lines of all runs and the tables.
func (x *execution) endLog(s *Summary) error {
	var text strings.Builder
	fmt.Fprintf(&text, "\n=== %s Summary ===\n%s\n", x.study.title(), x.head()[0])
	for _, r := range x.shown() {
		text.WriteString(x.study.line(r))
	}
	text.WriteString("\n" + s.Text(logWidth))
	return x.addToLog(text.String())
}

func (x *execution) addToLog(text string) error {
	f, err := os.OpenFile(x.study.summaryLog(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// line says what a run took and how it ended, and the last words of one that failed.
func (s *Study) line(r *Run) string {
	parts := []string{r.Line}
	if s.Seeds > 1 {
		parts = append(parts, fmt.Sprintf("seed=%d", r.Seed))
	}
	result := newRow(r, "")
	end := map[Status]string{
		Finished: "status=success",
		Failed:   "status=fail",
		Paused:   fmt.Sprintf("status=paused | steps=%d", result.Steps),
		// a training regime that failed, and no failure of the run
		StoppedEarly: fmt.Sprintf("status=stopped_early | early_stop=%s | steps=%d", result.Rule, result.Steps),
	}[r.Status]
	if end == "" {
		return strings.Join(append(parts, "status=missing\n"), separator)
	}
	parts = append(parts, "train_time="+seconds(result.Train), "eval_time="+seconds(result.Eval),
		"total_time="+seconds(result.Total), fmt.Sprintf("wall_time=%.0fs", r.Seconds), "gpu="+r.Devices, end)
	text := strings.Join(parts, separator) + "\n"
	if r.Status == Failed {
		for _, last := range lastLines(r.Log, 2) {
			text += "  error: " + last + "\n"
		}
	}
	return text
}

func seconds(v float64) string {
	if math.IsNaN(v) {
		return "N/A"
	}
	return fmt.Sprintf("%.2fs", v)
}
