package sweep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/figure"
	"gyre/internal/table"
	"gyre/orchestrate/study/plot"
)

// write puts the summary's files into the study's folder.
func (s *Summary) write(labels []string, first map[string]*Run) error {
	for _, f := range []struct {
		path  string
		write func(io.Writer) error
	}{{filepath.Join(s.Dir, "summary.csv"), s.runs().WriteCSV}, {filepath.Join(s.Dir, "summary.json"),
		s.JSON}, {filepath.Join(s.Dir, "best.json"), s.best}} {
		if err := atomicfile.Write(f.path, f.write); err != nil {
			return err
		}
		s.Files = append(s.Files, f.path)
	}
	return s.draw(labels, first)
}

// runs has a row per run.
func (s *Summary) runs() *table.Table {
	t := table.New("condition", "seed", "status", "steps", "peak_success", "last_success", "mean_last_success",
		"stopped_by", "seconds", "train_seconds",
		"eval_seconds", "wall_seconds", "reward_spread", "entropy", "grad_norm", "rung", "error")
	for _, r := range s.Rows {
		t.Add(r.Condition, r.Seed, string(r.Status), r.Steps, r.Peak, r.Last, r.LastMean, text(r.Rule), r.Total,
			r.Train, r.Eval, r.Wall, r.Spread, r.Entropy,
			r.GradNorm, r.Rung, text(r.Error))
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

// conditions has a row per condition.
func (s *Summary) conditions() *table.Table {
	t := table.New("condition", "runs", "failed_regimes", "failed_runs", "mean_success", "mean_success_low",
		"mean_success_high", "iqm_success", "iqm_success_low",
		"iqm_success_high")
	for _, a := range s.Conditions {
		t.Add(a.Condition, a.Runs, a.Regimes, a.Failed, a.Last.Value, a.Last.Low, a.Last.High, a.IQM.Value, a.IQM.Low,
			a.IQM.High)
	}
	return t
}

// differences has a row per condition and metric.
func (s *Summary) differences() *table.Table {
	t := table.New("condition", "versus", "metric", "difference", "low", "high", "pairs", "probability_of_improvement",
		"probability_low", "probability_high")
	for _, d := range s.Differences {
		p := Estimate{math.NaN(), math.NaN(), math.NaN()}
		if d.Improvement != nil {
			p = *d.Improvement
		}
		t.Add(d.Condition, d.Versus, d.Metric, d.Value, d.Low, d.High, d.Pairs, p.Value, p.Low, p.High)
	}
	return t
}

// JSON writes a list: an object per run, then one per condition, then one per difference.
func (s *Summary) JSON(w io.Writer) error {
	list := []json.RawMessage{}
	for _, t := range []*table.Table{s.runs(), s.conditions(), s.differences()} {
		var lines bytes.Buffer
		if err := t.WriteJSON(&lines); err != nil {
			return err
		}
		for line := range bytes.Lines(lines.Bytes()) {
			list = append(list, line)
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(list)
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
		fmt.Fprintf(&out, "best: %s (%s): %s\n", b.Condition, short(b.Score), strings.Join(b.Setting, " "))
		if len(b.Ties) > 0 {
			fmt.Fprintf(&out, "      as good: %s; the first of them counts\n", strings.Join(b.Ties, ", "))
		}
	}
	runs := table.New("condition", "seed", "ended", "steps", "peak success", "last", "last 3", "entropy", "spread",
		"seconds")
	for _, r := range s.Rows {
		ended := strings.ReplaceAll(string(r.Status), "_", " ")
		if r.Rule != "" {
			ended += " (" + r.Rule + ")"
		}
		if s.rungs > 0 {
			ended += fmt.Sprintf(", rung %d of %d", r.Rung, s.rungs)
		}
		runs.Add(r.Condition, r.Seed, ended, r.Steps, table.Percent(r.Peak), table.Percent(r.Last),
			table.Percent(r.LastMean), r.Entropy, r.Spread,
			math.Round(r.Total*10)/10)
	}
	conditions := table.New("condition", "runs", "failed regimes", "failed runs", "last success", "interquartile mean")
	for _, a := range s.Conditions {
		conditions.Add(a.Condition, a.Runs, a.Regimes, a.Failed, a.Last.percent(), a.IQM.percent())
	}
	list := []*table.Table{runs, conditions}
	if len(s.Differences) > 0 {
		list = append(list, s.against(s.Differences[0].Versus))
	}
	for _, t := range list {
		fmt.Fprintf(&out, "\n%s", t.Text(width))
	}
	for i, r := range s.Rows {
		if same := func(o Row) bool { return o.Condition == r.Condition && o.Error == r.Error }; r.Error != "" &&
			!slices.ContainsFunc(s.Rows[:i], same) {
			fmt.Fprintf(&out, "\n%s failed: %s\n", r.Condition, r.Error)
		}
	}
	_, err := io.WriteString(w, strings.TrimPrefix(out.String(), "\n"))
	return err
}

// against are the differences from the baseline for people; a condition without a pair has one row.
func (s *Summary) against(baseline string) *table.Table {
	t := table.New("against "+baseline, "metric", "difference", "pairs", "better with probability")
	for _, d := range s.Differences {
		switch {
		case d.Pairs > 0 && d.Improvement != nil:
			t.Add(d.Condition, d.Metric, d.cell(), d.Pairs, d.Improvement.cell())
		case d.Pairs > 0:
			t.Add(d.Condition, d.Metric, d.cell(), d.Pairs)
		case d.Improvement != nil:
			t.Add(d.Condition, "no run to compare")
		}
	}
	return t
}

// cell is an estimate with its interval, for people.
func (e Estimate) cell() any {
	switch {
	case math.IsNaN(e.Value):
		return nil
	case math.IsNaN(e.Low):
		return short(e.Value)
	}
	return fmt.Sprintf("%s [%s, %s]", short(e.Value), short(e.Low), short(e.High))
}

// percent is an estimate of a share.
func (e Estimate) percent() any {
	if math.IsNaN(e.Value) || math.IsNaN(e.Low) {
		return table.Percent(e.Value)
	}
	return fmt.Sprintf("%.1f %% [%.1f, %.1f]", 100*e.Value, 100*e.Low, 100*e.High)
}

func short(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// draw makes the study's figures.
func (s *Summary) draw(labels []string, first map[string]*Run) error {
	var list []plot.StudyCondition
	for _, label := range labels {
		c := plot.StudyCondition{Label: label, Stage: first[label].Stage, Coordinates: first[label].Coordinates}
		for _, r := range s.Rows {
			if r.Condition == label && (r.run != nil || r.Status != Pending) {
				c.Runs = append(c.Runs, plot.StudyRun{Seed: r.Seed, Status: string(r.Status), Rule: r.Rule,
					Steps: r.Steps, Success: r.Last, Run: r.run})
			}
		}
		for _, a := range s.Conditions {
			if a.Condition == label {
				c.Mean, c.Low, c.High = a.Last.Value, a.Last.Low, a.Last.High
			}
		}
		list = append(list, c)
	}
	var problems []error
	for _, f := range plot.Study(filepath.Base(s.Dir), list) {
		path := filepath.Join(s.Dir, "figures", f.Name)
		render := func(w io.Writer) error { return f.PNG(w, figure.PrintDPI) }
		problems = append(problems, atomicfile.Write(path, render))
		s.Files = append(s.Files, path)
	}
	return errors.Join(problems...)
}
