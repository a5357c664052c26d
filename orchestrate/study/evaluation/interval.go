package evaluation

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"gyre/internal/statistics"
	"gyre/internal/table"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
)

// confidence of all intervals.
const confidence = 0.95

// few is how many tasks make Student's interval doubtful: below, the bootstrap takes its place.
const few = 30

// Method is how an interval was made.
type Method string

// The methods.
const (
	wilson    Method = "Wilson's over tasks, each solved always or never"
	student   Method = "Student's, clustered by task"
	bootstrap Method = "bootstrap over tasks, as they are few"
)

// clusters are the sums and counts of a measure by task. Episodes of a task share what makes it hard, so that only
// tasks are independent draws.
type clusters struct {
	sums, counts []float64
	episodes     int
}

// cluster groups a measure of episodes by task.
func cluster(episodes []*episode.Episode, of func(*episode.Episode) float64) clusters {
	c := clusters{episodes: len(episodes)}
	at := map[task]int{}
	for _, e := range episodes {
		i, known := at[taskOf(e)]
		if !known {
			i = len(c.sums)
			at[taskOf(e)] = i
			c.sums, c.counts = append(c.sums, 0), append(c.counts, 0)
		}
		c.sums[i] += of(e)
		c.counts[i]++
	}
	return c
}

// mean is that over all episodes.
func (c clusters) mean() float64 { return statistics.Sum(c.sums) / statistics.Sum(c.counts) }

// deviation is the standard error of the mean: that of a ratio of sums over independent tasks (Cochran, Sampling
// Techniques, 6.4), which for tasks of equal size is the error of the mean of their means.
func (c clusters) deviation() float64 {
	mean, squares, n := c.mean(), 0.0, float64(len(c.sums))
	for i, sum := range c.sums {
		residual := sum - mean*c.counts[i]
		squares += residual * residual
	}
	return math.Sqrt(n/(n-1)*squares) / statistics.Sum(c.counts)
}

// interval is the mean with its interval, and how that was made; share says that values lie between 0 and 1. The
// bootstrap's percentiles are widened for few tasks (Hesterberg 2015, What
// Teachers Should Know About the Bootstrap, 5.3).
func (c clusters) interval(share bool) (mean, low, high float64, how Method) {
	n := float64(len(c.sums))
	mean = c.mean()
	whole := true
	for i, sum := range c.sums {
		whole = whole && (sum == 0 || sum == c.counts[i])
	}
	switch {
	case share && whole: // a task is all or nothing
		low, high = statistics.Wilson(mean, len(c.sums), confidence)
		return mean, low, high, wilson
	case n < 2:
		return mean, math.NaN(), math.NaN(), student
	case n < few:
		widened := distuv.UnitNormal.CDF(math.Sqrt(n/(n-1)) * statistics.Student((1+confidence)/2, n-1))
		tasks := make([]float64, len(c.sums))
		for i := range tasks {
			tasks[i] = float64(i)
		}
		low, high = statistics.Bootstrap(2*widened-1, func(drawn ...[][]float64) float64 {
			sum, count := 0.0, 0.0
			for _, i := range drawn[0][0] {
				sum, count = sum+c.sums[int(i)], count+c.counts[int(i)]
			}
			return sum / count
		}, [][]float64{tasks})
		return mean, low, high, bootstrap
	}
	half := statistics.Student((1+confidence)/2, n-1) * c.deviation()
	if low, high = mean-half, mean+half; share {
		low, high = max(low, 0), min(high, 1)
	}
	return mean, low, high, student
}

// Intervals says in a sentence how the intervals of results were made.
func Intervals(list []Result) string {
	var parts []string
	for _, r := range list {
		for _, tag := range tagsOf(r.Episodes) {
			own := ofTag(r.Episodes, tag)
			c := cluster(own, success)
			_, _, _, how := c.interval(true)
			part := fmt.Sprintf("%s %d tasks, %d episodes (%s)", tag, len(c.sums), len(own), how)
			if !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
	}
	if parts == nil {
		return ""
	}
	return "95 % intervals: " + strings.Join(parts, "; ") + "."
}

// cell is a share with its interval for people.
func (c clusters) cell() table.Cell {
	mean, low, high, _ := c.interval(true)
	out := table.PercentBetween(mean, low, high)
	out.Text += fmt.Sprintf(" of %d", c.episodes)
	return out
}

// passes are the successes of episodes and their passes, in order and by task: pass@k, that one of k episodes of a task
// succeeds (Chen et al. 2021, arXiv 2107.03374), and pass^k, that all of k do (Yao et al. 2024, arXiv 2406.12045), both
// without bias from the episodes that were played, for powers of two and all. A task with fewer episodes counts with
// those that it has.
func passes(episodes []*episode.Episode) (names []string, shares map[string]clusters) {
	shares = map[string]clusters{}
	for _, tag := range tagsOf(episodes) {
		c := cluster(ofTag(episodes, tag), success)
		names = append(names, tag+"/success")
		shares[tag+"/success"] = c
		most := 0
		for _, n := range c.counts {
			most = max(most, int(n))
		}
		var ks []int
		for k := 1; k < most; k *= 2 {
			ks = append(ks, k)
		}
		for _, k := range append(ks, most) {
			any, all := c, c
			any.sums, all.sums = slices.Clone(c.sums), slices.Clone(c.sums)
			for i, n := range c.counts {
				size, solved := int(n), int(math.Round(c.sums[i]))
				any.sums[i] = n * rollout.PassAt(min(k, size), size, solved)
				all.sums[i] = n * (1 - rollout.PassAt(min(k, size), size, size-solved))
			}
			name := fmt.Sprintf("%s/pass@%d", tag, k)
			names, shares[name] = append(names, name), any
			if k > 1 {
				name = fmt.Sprintf("%s/pass^%d", tag, k)
				names, shares[name] = append(names, name), all
			}
		}
	}
	return names, shares
}
