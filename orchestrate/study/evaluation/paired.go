package evaluation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"gyre/internal/statistics"
	"gyre/internal/table"
	"gyre/orchestrate/loop/episode"
)

// task is what an episode begins with; members of a group share it, and so do groups that play the same row of a data
// set, whose label stands in place of their seeds.
type task struct {
	tag, label string
	seed       int64
}

func taskOf(e *episode.Episode) task {
	if e.Label != "" {
		return task{tag: e.Tag, label: e.Label}
	}
	return task{tag: e.Tag, seed: e.Seed}
}

// name is the task's for people.
func (t task) name() string { return t.tag + "/" + cmp.Or(t.label, fmt.Sprint(t.seed)) }

func success(e *episode.Episode) float64 { return e.Metrics["success"] }

// unjudged reports whether nobody knows which of a tag's episodes are successes.
func unjudged(episodes []*episode.Episode, tag string) bool {
	return slices.ContainsFunc(episodes, func(e *episode.Episode) bool { return e.Tag == tag && e.Unjudged })
}

// measures are what episodes are compared by.
var measures = []struct {
	name string
	of   func(e *episode.Episode) float64
}{
	{"success", success},
	{"score", func(e *episode.Episode) float64 { return e.Score }},
}

// Differences compares every result with the first, task by task, so that what makes a task hard for both does not
// count as noise. A task's value is the mean over its episodes. Intervals are of the mean difference over
// tasks, as those of a result are over its tasks; better and worse count the tasks that changed, and p is the sign
// test's of these. changed, for programs, are the tasks that changed sides.
func Differences(list []Result) *table.Table {
	t := table.New("metric", "a", "b", "difference", "pairs", "better", "worse", "p", "changed")
	t.Columns[8].Hidden = true
	t.Columns[3].Low, t.Columns[3].High, t.Columns[3].Format = "low", "high", "%+.3f"
	t.Columns[1].Hidden, t.Columns[2].Head = true, "policy"
	t.Columns[5].Head, t.Columns[6].Head, t.Columns[7].Format = "up", "down", "%.2g"
	for _, other := range list[min(1, len(list)):] {
		for _, m := range measures {
			before, after := byTask(list[0].Episodes, m.of), byTask(other.Episodes, m.of)
			for _, tag := range tagsOf(list[0].Episodes) {
				if m.name == "success" && unjudged(list[0].Episodes, tag) {
					continue
				}
				row := compare(tag+"/"+m.name, tag, list[0].Name, other.Name, before, after)
				if m.name == "success" {
					row = append(row, slices.DeleteFunc(changes(before, after), func(c change) bool {
						return !strings.HasPrefix(c.Task, tag+"/")
					}))
				}
				t.Add(row...)
			}
		}
	}
	return t
}

// compare is the row of one metric over the tasks of a tag.
func compare(metric, tag, a, b string, before, after map[task]float64) []any {
	var differences []float64
	better, worse := 0, 0
	for of, value := range before {
		other, played := after[of]
		if of.tag != tag || !played {
			continue
		}
		differences = append(differences, other-value)
		switch {
		case other > value:
			better++
		case other < value:
			worse++
		}
	}
	slices.Sort(differences) // a map has no order, and sums depend on it
	mean := ofDifferences(differences, strings.HasSuffix(metric, "/success"))
	return []any{metric, a, b, table.Between(mean), len(differences), better, worse, signTest(better, worse)}
}

// signTest is the two-sided probability of a split at least as uneven if neither side were favoured; 1 of no change.
func signTest(better, worse int) float64 {
	n := better + worse
	if n == 0 {
		return 1
	}
	coin := distuv.Binomial{N: float64(n), P: 0.5}
	return min(1, 2*coin.CDF(float64(min(better, worse))))
}

// byTask averages a measure over the episodes of each task.
func byTask(episodes []*episode.Episode, of func(e *episode.Episode) float64) map[task]float64 {
	values := map[task][]float64{}
	for _, e := range episodes {
		values[taskOf(e)] = append(values[taskOf(e)], of(e))
	}
	means := map[task]float64{}
	for key, own := range values {
		means[key] = statistics.Mean(own)
	}
	return means
}

func tagsOf(episodes []*episode.Episode) []string {
	tags := map[string]bool{}
	for _, e := range episodes {
		tags[e.Tag] = true
	}
	return slices.Sorted(maps.Keys(tags))
}

func ofTag(episodes []*episode.Episode, tag string) []*episode.Episode {
	return slices.DeleteFunc(slices.Clone(episodes), func(e *episode.Episode) bool { return e.Tag != tag })
}

// change is a task of which one result solved at least half of its episodes and another did not.
type change struct {
	Task   string  `json:"task"` // tag, and label or seed
	Before float64 `json:"before"`
	After  float64 `json:"after"`
}

// changes are those between successes by task, in the order of tags, seeds and labels.
func changes(before, after map[task]float64) []change {
	list := []change{}
	for _, of := range slices.SortedFunc(maps.Keys(before), func(x, y task) int {
		return cmp.Or(cmp.Compare(x.tag, y.tag), cmp.Compare(x.seed, y.seed), cmp.Compare(x.label, y.label))
	}) {
		if value, played := after[of]; played && (value >= 0.5) != (before[of] >= 0.5) {
			list = append(list, change{of.name(), before[of], value})
		}
	}
	return list
}

// Changed lists the tasks that changed sides between the first result and the others.
func Changed(list []Result) *table.Table {
	t := table.New("task", "b", "before", "after")
	t.Columns[1].Hidden, t.Columns[1].Head = len(list) < 3, "policy"
	t.Columns[2].Format, t.Columns[3].Format = "%.2f", "%.2f"
	for _, other := range list[min(1, len(list)):] {
		for _, c := range changes(byTask(list[0].Episodes, success), byTask(other.Episodes, success)) {
			t.Add(c.Task, other.Name, c.Before, c.After)
		}
	}
	return t
}
