package sweep

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"gyre/internal/atomicfile"
	"gyre/internal/statistics"
	"gyre/orchestrate/plot"
	"gyre/orchestrate/rundir"
)

// Summary is what came out of a study.
type Summary struct {
	Dir         string
	Rows        []Row
	Conditions  []Aggregate
	Differences []Difference
	Best        []Best
	Files       []string
	rungs       int // of a search
}

// Best is what a stage, or a search, found best.
type Best struct {
	Stage     int               `json:"stage"`
	Condition string            `json:"condition"`
	Score     float64           `json:"score"`
	At        map[string]string `json:"at,omitempty"` // its values on the axes
	Setting   []string          `json:"set"`          // its overrides, those of stages before included
}

// Row is one run's result. What is not known is NaN.
type Row struct {
	Condition string
	Seed      int
	Status    Status
	Rung      int    // of a search, reached: from 1; 0 = none
	Rule      string // of an early stop
	Error     string // of a failure
	Steps     int
	Peak      float64 // validation success
	Last      float64
	LastMean  float64 // of the last rundir.LastValidations validations
	Seconds   float64 // as the run's metrics add them up
	Wall      float64 // of the run's processes
	Train     float64
	Eval      float64
	Spread    float64
	Entropy   float64
	GradNorm  float64
	Objective float64 // the study's, where it names one

	tasks map[string]float64 // last validation success by tag
	run   *rundir.Run        // nil when it logged nothing
}

// Aggregate is a condition over its seeds.
type Aggregate struct {
	Condition string
	Runs      int // with a result
	Regimes   int // of these, training regimes that failed: stopped by a collapse rule
	Failed    int // runs without a result
	Last      Estimate
	IQM       Estimate // interquartile mean over runs and tasks, stratified bootstrap
}

// Difference is a condition against the baseline, paired by seed.
type Difference struct {
	Condition, Versus, Metric string
	Estimate
	Pairs int
	// Improvement is the probability that a run of the condition does better than one of the baseline; of last_success only.
	Improvement *Estimate
}

// compared are the metrics of the differences.
var compared = []struct {
	name  string
	value func(Row) float64
}{
	{"peak_success", func(r Row) float64 { return r.Peak }},
	{"last_success", func(r Row) float64 { return r.Last }},
	{"mean_last_success", func(r Row) float64 { return r.LastMean }},
	{"steps", func(r Row) float64 { return float64(r.Steps) }},
	{"entropy", func(r Row) float64 { return r.Entropy }},
	{"reward_spread", func(r Row) float64 { return r.Spread }},
}

// newRow reads a run's result. A run that logged nothing has only its status.
func newRow(r *Run, objective string) Row {
	nan := math.NaN()
	row := Row{Condition: r.Condition, Seed: r.Seed, Status: r.Status, Rung: len(r.Scores), Error: r.Error, Objective: nan, Wall: r.Seconds, Peak: nan, Last: nan, LastMean: nan, Train: nan, Eval: nan,
		Seconds: nan, Spread: nan, Entropy: nan, GradNorm: nan}
	run, err := rundir.Read(r.Dir)
	if err != nil {
		return row
	}
	o := run.Outcome()
	row.run, row.Rule, row.Steps, row.Peak, row.Last, row.LastMean = run, o.Rule, o.Steps, o.Peak, o.Last, o.LastMean
	row.Seconds, row.Train, row.Eval, row.Spread, row.Entropy, row.GradNorm = o.Total, o.Train, o.Eval, o.Spread, o.Entropy, o.GradNorm
	if all := run.Series(objective); len(all) > 0 {
		row.Objective = all[len(all)-1].Value
	}
	row.tasks = map[string]float64{}
	for _, key := range run.Keys("val-env/*/success") {
		all := run.Series(key)
		row.tasks[key] = all[len(all)-1].Value
	}
	return row
}

// result tells whether a run says something about its condition: finished, at a rung of a search, or stopped by a collapse rule.
func (r Row) result() bool {
	return r.Status == Finished || r.Status == StoppedEarly || r.Status == Paused
}

// score is what a run is judged by, at its last validation or, of success, by several; false while it is not known.
func (s *Study) score(r Row, last bool) (float64, bool) {
	v := r.LastMean
	switch {
	case s.Objective != "":
		v = r.Objective
	case last:
		v = r.Last
	}
	return v, !math.IsNaN(v)
}

func (s *Study) objective() string { return cmp.Or(s.Objective, "validation success") }

// best has the highest mean score over its seeds. Regimes that collapsed, and conditions with failed runs, come after all others.
func (x *execution) best(runs []*Run) (best Best, ok bool) {
	whole := false
	for i, first := range runs {
		if slices.ContainsFunc(runs[:i], func(r *Run) bool { return r.Condition == first.Condition }) {
			continue
		}
		var scores []float64
		every := true
		for _, r := range runs {
			if r.Condition != first.Condition {
				continue
			}
			row := newRow(r, x.study.Objective)
			every = every && row.Status == Finished
			if v, known := x.study.score(row, false); known && row.result() {
				scores = append(scores, v)
			}
		}
		if len(scores) == 0 {
			continue
		}
		if score := statistics.Mean(scores); !ok || every && !whole || every == whole && score > best.Score {
			best, ok, whole = newBest(first, score), true, every
		}
	}
	return best, ok
}

func newBest(r *Run, score float64) Best {
	b := Best{Stage: r.Stage, Condition: r.Condition, Score: score, Setting: r.Setting, At: map[string]string{}}
	for _, at := range r.Coordinates {
		name, value, _ := strings.Cut(at, "=")
		b.At[name] = value
	}
	return b
}

// summarise writes the summary of what there is.
func (x *execution) summarise() (Summary, error) {
	s := Summary{Dir: x.study.Dir(), rungs: x.rungs}
	var labels []string
	first := map[string]*Run{}
	for _, r := range x.shown() {
		s.Rows = append(s.Rows, newRow(r, x.study.Objective))
		if !slices.Contains(labels, r.Condition) {
			labels = append(labels, r.Condition)
			first[r.Condition] = r
		}
	}
	s.Best = x.bests()
	slices.SortStableFunc(s.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(slices.Index(labels, a.Condition), slices.Index(labels, b.Condition)), cmp.Compare(a.Seed, b.Seed))
	})
	rows := func(label string) []Row {
		return slices.DeleteFunc(slices.Clone(s.Rows), func(r Row) bool { return r.Condition != label })
	}
	baseline := x.study.Baseline
	if !slices.Contains(labels, baseline) {
		if baseline != "" && len(labels) > 0 {
			fmt.Fprintf(x.options.Console, "study.baseline is %q, which is no condition of this study: differences are against %s\n", baseline, labels[0])
		}
		baseline = ""
		if len(labels) > 0 {
			baseline = labels[0]
		}
	}
	for _, label := range labels {
		s.Conditions = append(s.Conditions, aggregate(label, rows(label)))
		if label != baseline && x.rungs == 0 { // those of a search differ in their steps too
			s.Differences = append(s.Differences, differences(label, baseline, rows(label), rows(baseline))...)
		}
	}
	return s, s.write(x.study, labels, first)
}

// bests are the best condition of every stage that has a result, or the best configuration of a search.
func (x *execution) bests() (out []Best) {
	if x.rungs > 0 {
		for _, t := range x.leaders() {
			if score, ok := t.score(t.rung()); ok && !t.lost() {
				return []Best{newBest(t.runs[0], score)}
			}
		}
		return nil
	}
	for stage := 1; stage <= x.study.Stages(); stage++ {
		if best, ok := x.best(x.state.of(stage)); ok {
			out = append(out, best)
		}
	}
	return out
}

func aggregate(label string, rows []Row) Aggregate {
	a := Aggregate{Condition: label}
	var last []float64
	for _, r := range rows {
		switch r.Status {
		case StoppedEarly:
			a.Regimes++
		case Failed:
			a.Failed++
		}
		if r.result() {
			a.Runs++
			if !math.IsNaN(r.Last) {
				last = append(last, r.Last)
			}
		}
	}
	a.Last = PairedDifference(last, make([]float64, len(last))) // against zero: the mean with Student's interval
	a.IQM = Bootstrap(func(s ...Scores) float64 { return InterquartileMean(s[0]) }, scoresOf(rows, tasksOf(rows)))
	return a
}

func tasksOf(sets ...[]Row) []string {
	var out []string
	for _, rows := range sets {
		for _, r := range rows {
			for task := range r.tasks {
				if !slices.Contains(out, task) {
					out = append(out, task)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func scoresOf(rows []Row, tasks []string) Scores {
	out := make(Scores, len(tasks))
	for i, task := range tasks {
		for _, r := range rows {
			if v, ok := r.tasks[task]; ok && r.result() {
				out[i] = append(out[i], v)
			}
		}
	}
	return out
}

func differences(label, baseline string, rows, base []Row) []Difference {
	var out []Difference
	for _, metric := range compared {
		var x, y []float64
		for _, a := range rows {
			i := slices.IndexFunc(base, func(b Row) bool { return b.Seed == a.Seed })
			if i < 0 || !a.result() || !base[i].result() {
				continue
			}
			if v, w := metric.value(a), metric.value(base[i]); !math.IsNaN(v) && !math.IsNaN(w) {
				x, y = append(x, v), append(y, w)
			}
		}
		d := Difference{Condition: label, Versus: baseline, Metric: metric.name, Estimate: PairedDifference(x, y), Pairs: len(x)}
		if metric.name == "last_success" {
			tasks := tasksOf(rows, base)
			p := Bootstrap(func(s ...Scores) float64 { return ProbabilityOfImprovement(s[0], s[1]) }, scoresOf(rows, tasks), scoresOf(base, tasks))
			d.Improvement = &p
		}
		out = append(out, d)
	}
	return out
}

// write puts the summary's files into the study's folder.
func (s *Summary) write(study *Study, labels []string, first map[string]*Run) error {
	log := study.SummaryLog
	if log == "" {
		log = filepath.Join(s.Dir, "summary.log")
	}
	for _, f := range []struct {
		path  string
		write func(io.Writer) error
	}{{filepath.Join(s.Dir, "summary.csv"), s.CSV}, {filepath.Join(s.Dir, "summary.json"), s.JSON}, {filepath.Join(s.Dir, "best.json"), s.best}, {log, s.Text}} {
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
		problems = append(problems, atomicfile.Write(path, func(w io.Writer) error { return f.Render(w, plot.PrintDPI) }))
		s.Files = append(s.Files, path)
	}
	return errors.Join(problems...)
}

// Failed counts the runs without a result.
func (s Summary) Failed() (n int) {
	for _, r := range s.Rows {
		if r.Status == Failed {
			n++
		}
	}
	return n
}
