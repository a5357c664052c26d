package sweep

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gyre/internal/statistics"
	"gyre/internal/table"
	"gyre/orchestrate/run/rundir"
)

// Summary is what came out of a study.
type Summary struct {
	Runs, Failed int // runs, and those without a result
	Best         []Best
	Files        []string

	dir        string
	groups     []group
	conditions *table.Table // over their seeds
	compared   *table.Table // with the baseline, paired by seed
	rungs      int          // of a search
}

// Best is what a stage, or a search, found best.
type Best struct {
	Stage     int               `json:"stage"`
	Condition string            `json:"condition"`
	Score     float64           `json:"score"`
	At        map[string]string `json:"at,omitempty"`   // its values on the axes
	Setting   []string          `json:"set"`            // its overrides, those of stages before included
	Ties      []string          `json:"ties,omitempty"` // conditions of the same score, which come later

	said string // the score, with what it is of
}

// confidence of all intervals of a study.
const confidence = 0.95

// row is one run's result. What is not known is NaN.
type row struct {
	rundir.Outcome // of its run directory
	run            *Run
	objective      float64            // the study's, where it names one
	tasks          map[string]float64 // last validation success by tag
	logged         *rundir.Run        // nil when it logged nothing
}

// group is the results of a condition, seed by seed.
type group struct {
	*Run  // the first
	rows  []row
	label string // in figures
	// of the runs' last validations, with Student's interval as far as it lies within 0 and 1
	mean statistics.Estimate
}

// groupsOf are the results of runs by condition, in the order in which those first appear.
func groupsOf(runs []*Run, objective string) (groups []group) {
	for _, r := range runs {
		i := slices.IndexFunc(groups, func(g group) bool { return g.Condition == r.Condition })
		if i < 0 {
			i, groups = len(groups), append(groups, group{Run: r, label: r.Condition})
		}
		groups[i].rows = append(groups[i].rows, newRow(r, objective))
	}
	for i, g := range groups {
		slices.SortStableFunc(g.rows, func(a, b row) int { return cmp.Compare(a.run.Seed, b.run.Seed) })
		var last []float64
		for _, r := range g.rows {
			if r.result() && !math.IsNaN(r.Last) {
				last = append(last, r.Last)
			}
		}
		mean := statistics.MeanInterval(last, confidence)
		groups[i].mean = statistics.Estimate{Value: mean.Value, Low: math.Max(mean.Low, 0), High: math.Min(mean.High, 1)}
	}
	return groups
}

// compared are the metrics of the differences.
var compared = []struct {
	name  string
	value func(row) float64
}{
	{"peak_success", func(r row) float64 { return r.Peak }},
	{"last_success", func(r row) float64 { return r.Last }},
	{"steps", func(r row) float64 { return float64(r.Steps) }},
	{"entropy", func(r row) float64 { return r.Entropy }},
	{"reward_spread", func(r row) float64 { return r.Spread }},
}

// newRow reads a run's result. A run that logged nothing has only its status.
func newRow(r *Run, objective string) row {
	logged, err := rundir.Read(r.Dir)
	if err != nil {
		return row{Outcome: (&rundir.Run{}).Outcome(), run: r, objective: math.NaN()}
	}
	out := row{Outcome: logged.Outcome(), run: r, objective: math.NaN(), tasks: map[string]float64{}, logged: logged}
	if all := logged.Series(objective); len(all) > 0 {
		out.objective = all[len(all)-1].Value
	}
	for _, key := range logged.Keys("val-env/*/success") {
		all := logged.Series(key)
		out.tasks[key] = all[len(all)-1].Value
	}
	return out
}

// result tells whether a run says something about its condition: finished, at a rung of a search, or stopped by a
// collapse rule.
func (r row) result() bool {
	return r.run.Status == Finished || r.run.Status == StoppedEarly || r.run.Status == Paused
}

// score is what a run is judged by, at its last validation or, of success, by several; false while it is not known.
func (s *Study) score(r row, last bool) (float64, bool) {
	v := r.LastMean
	switch {
	case s.Objective != "":
		v = r.objective
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
	for _, g := range groupsOf(runs, x.study.Objective) {
		var scores []float64
		every := true
		for _, r := range g.rows {
			every = every && r.run.Status == Finished
			if v, known := x.study.score(r, false); known && r.result() {
				scores = append(scores, v)
			}
		}
		if len(scores) == 0 {
			continue
		}
		switch score := statistics.Mean(scores); {
		case !ok || every && !whole || every == whole && score > best.Score:
			best, ok, whole = x.newBest(g.Run, score), true, every
		case every == whole && score == best.Score:
			best.Ties = append(best.Ties, g.Condition)
		}
	}
	return best, ok
}

func (x *execution) newBest(r *Run, score float64) Best {
	said := fmt.Sprintf("%.1f %% success, mean of the last %d validations of its runs", 100*score, rundir.LastValidations)
	switch {
	case x.study.Objective != "":
		said = fmt.Sprintf("%.3g %s at the end of its runs", score, x.study.Objective)
	case x.rungs > 0:
		said = fmt.Sprintf("%.1f %% success at the last validation of its runs", 100*score)
	}
	b := Best{said: said, Stage: r.Stage, Condition: r.Condition, Score: score, Setting: r.Setting, At: map[string]string{}}
	for _, at := range r.Coordinates {
		name, value, _ := strings.Cut(at, "=")
		b.At[name] = value
	}
	return b
}

// summarise writes the summary of what there is.
func (x *execution) summarise() (Summary, error) {
	s := Summary{dir: x.study.Dir(), rungs: x.rungs, groups: groupsOf(x.shown(), x.study.Objective), Best: x.bests()}
	var base group
	against := ""
	// Configurations of a search differ in their steps too: they are not compared.
	if len(s.groups) > 0 && x.rungs == 0 {
		base = s.groups[0]
		i := slices.IndexFunc(s.groups, func(g group) bool { return g.Condition == x.study.Baseline })
		if i >= 0 {
			base = s.groups[i]
		} else if x.study.Baseline != "" {
			fmt.Fprintf(x.options.Console,
				"study.baseline is %q, which is no condition of this study: differences are against %s\n",
				x.study.Baseline, base.Condition)
		}
		against = base.Condition
	}
	s.conditions = &table.Table{Columns: []table.Column{{Name: "condition"}, {Name: "runs"},
		{Name: "failed_regimes", Head: "failed regimes"}, {Name: "failed_runs", Head: "failed runs"},
		{Name: "mean_success", Head: "last success", Low: "mean_success_low", High: "mean_success_high"},
		{Name: "iqm_success", Head: "interquartile mean", Low: "iqm_success_low", High: "iqm_success_high"}}}
	s.compared = &table.Table{Columns: []table.Column{{Name: "condition", Head: "against " + against},
		{Name: "versus", Hidden: true}, {Name: "metric"},
		{Name: "difference", Low: "low", High: "high", Format: "%.3g"}, {Name: "pairs"},
		{Name: "probability_of_improvement", Head: "better with probability", Format: "%.3g", Low: "probability_low",
			High: "probability_high"}}}
	for _, g := range s.groups {
		s.add(g)
		if base.Run != nil && g.Run != base.Run {
			s.compare(g, base)
		}
	}
	if err := s.write(); err != nil {
		return s, err
	}
	s.Files = append(s.Files, x.study.summaryLog())
	return s, x.endLog(&s)
}

// bests are the best condition of every stage that has a result, or the best configuration of a search.
func (x *execution) bests() (out []Best) {
	if x.rungs > 0 {
		for _, t := range x.leaders() {
			if score, ok := t.score(t.rung()); ok && !t.lost() {
				return []Best{x.newBest(t.runs[0], score)}
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

// add adds a condition over its seeds: its runs with a result, of these the training regimes that failed (a collapse
// rule stopped them), runs without a result, and success.
func (s *Summary) add(g group) {
	runs, failed := 0, 0
	for _, r := range g.rows {
		if r.result() {
			runs++
		} else if r.run.Status == Failed {
			failed++
		}
	}
	s.Runs, s.Failed = s.Runs+len(g.rows), s.Failed+failed
	iqm := statistics.Bootstrap(confidence, statistics.InterquartileMean, scoresOf(g)...)
	s.conditions.Add(g.Condition, runs, g.collapsed(), failed, table.PercentBetween(g.mean), table.PercentBetween(iqm))
}

// scoresOf are the last successes of conditions: a row per task that any of them has, a column per run.
func scoresOf(groups ...group) [][][]float64 {
	tasks := map[string]bool{}
	for _, g := range groups {
		for _, r := range g.rows {
			for task := range r.tasks {
				tasks[task] = true
			}
		}
	}
	out := make([][][]float64, len(groups))
	for _, task := range slices.Sorted(maps.Keys(tasks)) {
		for i, g := range groups {
			var scores []float64
			for _, r := range g.rows {
				if v, ok := r.tasks[task]; ok && r.result() {
					scores = append(scores, v)
				}
			}
			out[i] = append(out[i], scores)
		}
	}
	return out
}

// compare adds a row per metric in which a condition is compared with the baseline, over pairs of runs of the same
// seed: what these share (environments, random draws) cancels. Of the last success it adds the probability that a run
// of the condition does better.
func (s *Summary) compare(g, base group) {
	for _, metric := range compared {
		var differences []float64
		for _, a := range g.rows {
			for _, b := range base.rows {
				v, w := metric.value(a), metric.value(b)
				if a.run.Seed == b.run.Seed && a.result() && b.result() && !math.IsNaN(v) && !math.IsNaN(w) {
					differences = append(differences, v-w)
				}
			}
		}
		cells := []any{g.Condition, base.Condition, metric.name,
			table.Between(statistics.MeanInterval(differences, confidence)), len(differences)}
		if metric.name == "last_success" {
			cells = append(cells, table.Between(statistics.Bootstrap(confidence, statistics.ProbabilityOfImprovement,
				scoresOf(g, base)...)))
		}
		s.compared.Add(cells...)
	}
}
