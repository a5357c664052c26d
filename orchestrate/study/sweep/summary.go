package sweep

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gyre/internal/statistics"
	"gyre/orchestrate/run/rundir"
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
	At        map[string]string `json:"at,omitempty"`   // its values on the axes
	Setting   []string          `json:"set"`            // its overrides, those of stages before included
	Ties      []string          `json:"ties,omitempty"` // conditions of the same score, which come later
}

// Row is one run's result. What is not known is NaN.
type Row struct {
	rundir.Outcome // its Total is Seconds in the summary's files
	Condition      string
	Seed           int
	Status         Status  // in the study
	Rung           int     // of a search, reached: from 1; 0 = none
	Error          string  // of a failure
	Wall           float64 // seconds of the run's processes
	Objective      float64 // the study's, where it names one

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
	// Improvement is the probability that a run of the condition does better than one of the baseline; of
	// last_success only.
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
	run, err := rundir.Read(r.Dir)
	if err != nil {
		run = &rundir.Run{}
	}
	row := Row{Outcome: run.Outcome(), Condition: r.Condition, Seed: r.Seed, Status: r.Status, Rung: len(r.Scores),
		Error:     r.Error,
		Objective: math.NaN(), Wall: r.Seconds, tasks: map[string]float64{}}
	if err != nil {
		return row
	}
	row.run = run
	if all := run.Series(objective); len(all) > 0 {
		row.Objective = all[len(all)-1].Value
	}
	for _, key := range run.Keys("val-env/*/success") {
		all := run.Series(key)
		row.tasks[key] = all[len(all)-1].Value
	}
	return row
}

// result tells whether a run says something about its condition: finished, at a rung of a search, or stopped by a
// collapse rule.
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

// best has the highest mean score over its seeds. Regimes that collapsed, and conditions with failed runs, come after
// all others.
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
		switch score := statistics.Mean(scores); {
		case !ok || every && !whole || every == whole && score > best.Score:
			best, ok, whole = newBest(first, score), true, every
		case every == whole && score == best.Score:
			best.Ties = append(best.Ties, first.Condition)
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
		return cmp.Or(cmp.Compare(slices.Index(labels, a.Condition), slices.Index(labels, b.Condition)),
			cmp.Compare(a.Seed, b.Seed))
	})
	rows := func(label string) []Row {
		return slices.DeleteFunc(slices.Clone(s.Rows), func(r Row) bool { return r.Condition != label })
	}
	baseline := ""
	if len(labels) > 0 && x.rungs == 0 { // configurations of a search differ in their steps too: they are not compared
		if baseline = cmp.Or(x.study.Baseline, labels[0]); !slices.Contains(labels, baseline) {
			fmt.Fprintf(x.options.Console,
				"study.baseline is %q, which is no condition of this study: differences are against %s\n", baseline,
				labels[0])
			baseline = labels[0]
		}
	}
	for _, label := range labels {
		s.Conditions = append(s.Conditions, aggregate(label, rows(label)))
		if baseline != "" && label != baseline {
			s.Differences = append(s.Differences, differences(label, baseline, rows(label), rows(baseline))...)
		}
	}
	if err := s.write(labels, first); err != nil {
		return s, err
	}
	s.Files = append(s.Files, x.study.summaryLog())
	return s, x.log.end(x.shown(), &s)
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
	// against zero: the mean with Student's interval, which knows no limits
	a.Last = PairedDifference(last, make([]float64, len(last)))
	a.Last.Low, a.Last.High = math.Max(a.Last.Low, 0), math.Min(a.Last.High, 1)
	a.IQM = bootstrap(func(s ...Scores) float64 { return InterquartileMean(s[0]) }, scoresOf(rows, tasksOf(rows)))
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
		d := Difference{Condition: label, Versus: baseline, Metric: metric.name, Estimate: PairedDifference(x, y),
			Pairs: len(x)}
		if metric.name == "last_success" {
			tasks := tasksOf(rows, base)
			p := bootstrap(func(s ...Scores) float64 { return ProbabilityOfImprovement(s[0], s[1]) },
				scoresOf(rows, tasks), scoresOf(base, tasks))
			d.Improvement = &p
		}
		out = append(out, d)
	}
	return out
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
