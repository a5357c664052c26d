package sweep

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"gyre/internal/atomicfile"
	"gyre/internal/figure"
	"gyre/internal/statistics"
	"gyre/orchestrate/study/plot"
)

// write puts the summary's files into the study's folder.
func (s *Summary) write(labels []string, first map[string]*Run) error {
	for _, f := range []struct {
		path  string
		write func(io.Writer) error
	}{{filepath.Join(s.Dir, "summary.csv"), s.CSV}, {filepath.Join(s.Dir, "summary.json"), s.JSON}, {filepath.Join(s.Dir, "best.json"), s.best}} {
		if err := atomicfile.Write(f.path, f.write); err != nil {
			return err
		}
		s.Files = append(s.Files, f.path)
	}
	return s.draw(labels, first)
}

// CSV writes a row per run.
func (s *Summary) CSV(w io.Writer) error {
	rows := [][]string{{"condition", "seed", "status", "steps", "peak_success", "last_success", "mean_last_success", "stopped_by", "seconds", "train_seconds", "eval_seconds", "wall_seconds",
		"reward_spread", "entropy", "grad_norm", "rung", "error"}}
	for _, r := range s.Rows {
		row := []string{r.Condition, strconv.Itoa(r.Seed), string(r.Status), strconv.Itoa(r.Steps), number(r.Peak), number(r.Last), number(r.LastMean), r.Rule}
		for _, v := range []float64{r.Seconds, r.Train, r.Eval, r.Wall, r.Spread, r.Entropy, r.GradNorm} {
			row = append(row, number(v))
		}
		rows = append(rows, append(row, strconv.Itoa(r.Rung), r.Error))
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// number is a value in CSV: empty where there is none.
func number(v float64) string {
	if !statistics.Finite(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// JSON writes a list: an object per run, then one per condition, then one per difference.
func (s *Summary) JSON(w io.Writer) error {
	value := func(v float64) any {
		if !statistics.Finite(v) {
			return nil
		}
		return v
	}
	list := []any{}
	for _, r := range s.Rows {
		o := map[string]any{"condition": r.Condition, "seed": r.Seed, "status": r.Status, "steps": r.Steps, "peak_success": value(r.Peak), "last_success": value(r.Last),
			"mean_last_success": value(r.LastMean), "seconds": value(r.Seconds), "train_seconds": value(r.Train), "eval_seconds": value(r.Eval), "wall_seconds": value(r.Wall),
			"reward_spread": value(r.Spread), "entropy": value(r.Entropy), "grad_norm": value(r.GradNorm)}
		if r.Rule != "" {
			o["stopped_by"] = r.Rule
		}
		if s.rungs > 0 {
			o["rung"], o["rungs"] = r.Rung, s.rungs
		}
		if r.Error != "" {
			o["error"] = r.Error
		}
		list = append(list, o)
	}
	for _, a := range s.Conditions {
		list = append(list, map[string]any{"condition": a.Condition, "runs": a.Runs, "failed_regimes": a.Regimes, "failed_runs": a.Failed,
			"mean_success": value(a.Last.Value), "mean_success_low": value(a.Last.Low), "mean_success_high": value(a.Last.High),
			"iqm_success": value(a.IQM.Value), "iqm_success_low": value(a.IQM.Low), "iqm_success_high": value(a.IQM.High)})
	}
	for _, d := range s.Differences {
		o := map[string]any{"condition": d.Condition, "versus": d.Versus, "metric": d.Metric, "difference": value(d.Value), "low": value(d.Low), "high": value(d.High), "pairs": d.Pairs}
		if p := d.Improvement; p != nil {
			o["probability_of_improvement"], o["probability_low"], o["probability_high"] = value(p.Value), value(p.Low), value(p.High)
		}
		list = append(list, o)
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

// Text writes the summary for people.
func (s *Summary) Text(w io.Writer) error {
	for _, b := range s.Best {
		fmt.Fprintf(w, "best: %s (%s): %s\n", b.Condition, short(b.Score), strings.Join(b.Setting, " "))
	}
	if len(s.Best) > 0 {
		fmt.Fprintln(w)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "condition\tseed\tended\tsteps\tpeak success\tlast\tlast 3\tentropy\tspread\tseconds\n")
	for _, r := range s.Rows {
		ended := strings.ReplaceAll(string(r.Status), "_", " ")
		if r.Rule != "" {
			ended += " (" + r.Rule + ")"
		}
		if s.rungs > 0 {
			ended += fmt.Sprintf(", rung %d of %d", r.Rung, s.rungs)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Condition, r.Seed, ended, r.Steps, percent(r.Peak), percent(r.Last), percent(r.LastMean),
			short(r.Entropy), short(r.Spread), short(math.Round(r.Seconds*10)/10))
	}
	fmt.Fprint(t, "\ncondition\truns\tfailed regimes\tfailed runs\tlast success\t\tinterquartile mean\t\n")
	for _, a := range s.Conditions {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", a.Condition, a.Runs, a.Regimes, a.Failed, percent(a.Last.Value), a.Last.interval(percent),
			percent(a.IQM.Value), a.IQM.interval(percent))
	}
	if len(s.Differences) > 0 {
		fmt.Fprintf(t, "\nagainst %s\tmetric\tdifference\t95 %% interval\tpairs\tbetter with probability\n", s.Differences[0].Versus)
	}
	for _, d := range s.Differences {
		if d.Pairs == 0 {
			if d.Improvement != nil { // one line for all metrics
				fmt.Fprintf(t, "%s\tno run to compare\n", d.Condition)
			}
			continue
		}
		p := ""
		if d.Improvement != nil {
			p = short(d.Improvement.Value) + " " + d.Improvement.interval(short)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\n", d.Condition, d.Metric, short(d.Value), d.interval(short), d.Pairs, p)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range s.Rows {
		if r.Error != "" {
			fmt.Fprintf(w, "\n%s, seed %d failed: %s\n", r.Condition, r.Seed, r.Error)
		}
	}
	return nil
}

func (e Estimate) interval(format func(float64) string) string {
	if math.IsNaN(e.Low) {
		return "-"
	}
	return fmt.Sprintf("[%s, %s]", format(e.Low), format(e.High))
}

func percent(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*v)
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
				c.Runs = append(c.Runs, plot.StudyRun{Seed: r.Seed, Status: string(r.Status), Rule: r.Rule, Steps: r.Steps, Success: r.Last, Run: r.run})
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
		problems = append(problems, atomicfile.Write(path, func(w io.Writer) error { return f.PNG(w, figure.PrintDPI) }))
		s.Files = append(s.Files, path)
	}
	return errors.Join(problems...)
}
