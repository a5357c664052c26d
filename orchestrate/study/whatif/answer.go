package whatif

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/statistics"
	"gyre/internal/table"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/plot"
)

// Answer says what the changes of some histories of one run did.
type Answer struct {
	// Reach has a row per history: what was changed, and up to which step it equals the run to the bit.
	Reach *table.Table
	// Training has the means of metrics over the steps that both have, the run's and the history's.
	Training *table.Table
	// Validation compares the episodes of the last validation that all have, task by task; nil where there is none.
	Validation *table.Table
	Validated  int // after which step that is
	Files      []string
}

// moved are the metrics of Training.
var moved = []string{"critic/score/mean", "train/*/success", "rollout/in_group_reward_std", "response_length",
	"actor/entropy", "actor/ppo_kl", "actor/grad_norm"}

// Played is the validation of a run or of a history.
type Played struct {
	Name     string
	Episodes []*episode.Episode
}

// Compare reads what the run and its histories have logged, and writes the answer below what-if/: tables as JSON and a
// figure of both histories. pair compares validations with the first one, task by task.
func Compare(list []*History, pair func([]Played) *table.Table) (*Answer, error) {
	factual := list[0].Run
	a := &Answer{Reach: table.New("history", "changes", "first step", "last step", "equal to", "ended"),
		Training: table.New("metric", "history", "run", "with the change", "difference")}
	a.Training.Columns[4].Format = "%+.4g"
	a.Reach.Columns[0].Hidden, a.Training.Columns[1].Hidden = len(list) == 1, len(list) == 1
	title := "What if? " + factual.Name
	conditions := []plot.Condition{{Label: factual.Name, Runs: []*rundir.Run{factual}}}
	var runs []*rundir.Run
	for _, h := range list {
		r, err := rundir.Read(h.Dir())
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
		equal, last := h.Step, r.Records[len(r.Records)-1].Step
		for equal < min(last, h.Until) && sameStep(factual, r, equal+1) {
			equal++
		}
		ended := ""
		if r.Info != nil {
			ended = r.Info.Reason
		}
		a.Reach.Add(h.Name, strings.Join(h.Changes, ", "), h.Step+1, last, equal, ended)
		for _, pattern := range moved {
			if before, after, both := means(factual, r, pattern, h.Step, h.Until); both {
				a.Training.Add(pattern, h.Name, before, after, after-before)
			}
		}
		conditions = append(conditions, plot.Condition{Label: h.Name, Runs: []*rundir.Run{r}})
	}
	played, err := a.validations(factual, runs)
	if err != nil {
		return nil, err
	}
	if played != nil {
		a.Validation = pair(played)
	}
	name := list[0].Name
	if len(list) > 1 {
		name = "leave-one-out"
	}
	figure := plot.Conditions(title, conditions)
	figure.Name = name + ".png"
	return a, a.write(factual.File(Folder), name, plot.File{Name: figure.Name, Write: figure.PNG})
}

// sameStep reports whether two runs logged the same of a step, apart from what measures the machine.
func sameStep(a, b *rundir.Run, step int) bool {
	x, known := a.At(step)
	y, too := b.At(step)
	return known && too && reflect.DeepEqual(steady(x), steady(y))
}

func steady(r metrics.Record) map[string]string {
	out := map[string]string{}
	for key, v := range r.Values {
		validated := strings.HasPrefix(key, "val-env/") // the last step of either has one more
		if !validated && !strings.HasPrefix(key, "timing_s/") && !strings.HasPrefix(key, "perf/") {
			out[key] = fmt.Sprint(v)
		}
	}
	return out
}

// means are those of the metrics that a pattern names over the steps after one and up to another that both runs have.
func means(a, b *rundir.Run, pattern string, after, until int) (x, y float64, both bool) {
	of := func(r *rundir.Run) map[int]float64 {
		out := map[int]float64{}
		for _, p := range r.Mean(pattern) {
			if p.Step > after && p.Step <= until {
				out[p.Step] = p.Value
			}
		}
		return out
	}
	mine, other := of(a), of(b)
	maps.DeleteFunc(mine, func(step int, _ float64) bool { _, there := other[step]; return !there })
	maps.DeleteFunc(other, func(step int, _ float64) bool { _, there := mine[step]; return !there })
	ordered := func(of map[int]float64) (out []float64) {
		for _, step := range slices.Sorted(maps.Keys(of)) {
			out = append(out, of[step])
		}
		return out
	}
	return statistics.Mean(ordered(mine)), statistics.Mean(ordered(other)), len(mine) > 0
}

// validations are the episodes of the last validation that the run and all its histories have; nil where there is none.
func (a *Answer) validations(factual *rundir.Run, runs []*rundir.Run) (list []Played, err error) {
	shared := map[int]int{}
	for _, r := range append([]*rundir.Run{factual}, runs...) {
		for _, f := range r.Rollouts() {
			if f.Kind == "validation" {
				shared[f.Step]++
			}
		}
	}
	for step, n := range shared {
		if n == len(runs)+1 {
			a.Validated = max(a.Validated, step)
		}
	}
	if shared[a.Validated] != len(runs)+1 {
		return nil, nil
	}
	for _, r := range append([]*rundir.Run{factual}, runs...) {
		played, err := episode.ReadFile(r.File("rollouts", fmt.Sprintf("validation_%d.jsonl", a.Validated)))
		if err != nil {
			return nil, err
		}
		list = append(list, Played{r.Name, played})
	}
	return list, nil
}

// write saves the tables and the figure.
func (a *Answer) write(dir, name string, figure plot.File) error {
	const dpi = 120
	picture := filepath.Join(dir, figure.Name)
	if err := figure.Save(picture, dpi); err != nil {
		return err
	}
	tables := filepath.Join(dir, name+".json")
	err := atomicfile.Write(tables, func(w io.Writer) error {
		of := []*table.Table{a.Reach, a.Training}
		if a.Validation != nil {
			of = append(of, a.Validation)
		}
		return table.WriteJSONList(w, of...)
	})
	a.Files = []string{tables, picture}
	return err
}
