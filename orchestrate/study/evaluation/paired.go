package evaluation

import (
	"maps"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"gyre/internal/statistics"
	"gyre/internal/table"
	"gyre/orchestrate/loop/episode"
)

// task is what an episode begins with; members of a group share it.
type task struct {
	tag  string
	seed int64
}

// measures are what episodes are compared by.
var measures = []struct {
	name string
	of   func(e *episode.Episode) float64
}{
	{"success", func(e *episode.Episode) float64 { return e.Metrics["success"] }},
	{"score", func(e *episode.Episode) float64 { return e.Score }},
}

// Differences compares every result with the first, task by task, so that what makes a task hard for both does not
// count as noise. A task's value is the mean over its episodes. Intervals are Student's of the mean difference over
// tasks, at 95 %; better and worse count the tasks that changed, and p is the sign test's of these.
func Differences(list []Result) *table.Table {
	t := table.New("metric", "a", "b", "difference", "pairs", "better", "worse", "p")
	t.Columns[3].Low, t.Columns[3].High, t.Columns[3].Format = "low", "high", "%+.3f"
	t.Columns[1].Hidden, t.Columns[5].Head, t.Columns[6].Head, t.Columns[7].Format = true, "up", "down", "%.2g"
	for _, other := range list[min(1, len(list)):] {
		for _, m := range measures {
			before, after := byTask(list[0].Episodes, m.of), byTask(other.Episodes, m.of)
			for _, tag := range tagsOf(before) {
				t.Add(compare(tag+"/"+m.name, tag, list[0].Name, other.Name, before, after)...)
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
	mean, low, high := statistics.MeanInterval(differences, 0.95)
	return []any{metric, a, b, table.Cell{Value: mean, Low: low, High: high}, len(differences), better, worse, signTest(better, worse)}
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
		key := task{e.Tag, e.Seed}
		values[key] = append(values[key], of(e))
	}
	means := map[task]float64{}
	for key, own := range values {
		means[key] = statistics.Mean(own)
	}
	return means
}

func tagsOf(tasks map[task]float64) []string {
	tags := map[string]bool{}
	for of := range tasks {
		tags[of.tag] = true
	}
	return slices.Sorted(maps.Keys(tags))
}
