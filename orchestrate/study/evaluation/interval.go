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
	three     Method = "rule of three over tasks, as they are alike"
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
// Teachers Should Know About the Bootstrap, 5.3). Tasks that are alike say nothing of how far others lie from them: the
// rule of three bounds how many there are (Hanley and Lippman-Hand 1983), which bounds a share alone.
func (c clusters) interval(share bool) (e statistics.Estimate, how Method) {
	n, mean, whole, alike := float64(len(c.sums)), c.mean(), true, true
	for i, sum := range c.sums {
		whole = whole && (sum == 0 || sum == c.counts[i])
		alike = alike && sum*c.counts[0] == c.sums[0]*c.counts[i]
	}
	switch {
	case share && whole: // a task is all or nothing
		return statistics.Wilson(mean, len(c.sums), confidence), wilson
	case n < 2:
		return statistics.Estimate{Value: mean, Low: math.NaN(), High: math.NaN()}, student
	case alike && share:
		return statistics.Estimate{Value: mean, Low: max(mean-3/n, 0), High: min(mean+3/n, 1)}, three
	case alike:
		return statistics.Estimate{Value: mean, Low: math.NaN(), High: math.NaN()}, three
	case n < few:
		widened := distuv.UnitNormal.CDF(math.Sqrt(n/(n-1)) * statistics.Student((1+confidence)/2, n-1))
		tasks := make([]float64, len(c.sums))
		for i := range tasks {
			tasks[i] = float64(i)
		}
		return statistics.Bootstrap(2*widened-1, func(drawn ...[][]float64) float64 {
			sum, count := 0.0, 0.0
			for _, i := range drawn[0][0] {
				sum, count = sum+c.sums[int(i)], count+c.counts[int(i)]
			}
			return sum / count
		}, [][]float64{tasks}), bootstrap
	}
	half := statistics.Student((1+confidence)/2, n-1) * c.deviation()
	if e = (statistics.Estimate{Value: mean, Low: mean - half, High: mean + half}); share {
		e.Low, e.High = max(e.Low, 0), min(e.High, 1)
	}
	return e, student
}

// ofDifferences is the mean of differences by task with its interval. Of successes that are each won, lost or even it
// is Bonett and Price's (2012), which adds one to the pairs won and to those lost, so that few pairs that are all even
// do not look like a proof; where all are alike the rule of three's.
func ofDifferences(differences []float64, successes bool) statistics.Estimate {
	n, won, lost, whole := float64(len(differences)), 1.0, 1.0, true
	for _, d := range differences {
		won, lost, whole = won+max(d, 0), lost+max(-d, 0), whole && d == math.Trunc(d)
	}
	c := clusters{differences, slices.Repeat([]float64{1}, len(differences)), len(differences)}
	e, how := c.interval(false)
	switch {
	case !successes || n == 0:
	case whole:
		won, lost = won/(n+2), lost/(n+2)
		half := distuv.UnitNormal.Quantile((1+confidence)/2) * math.Sqrt((won+lost-(won-lost)*(won-lost))/(n+2))
		e.Low, e.High = max(won-lost-half, -1), min(won-lost+half, 1)
	case how == three:
		e.Low, e.High = max(e.Value-3/n, -1), min(e.Value+3/n, 1)
	}
	return e
}

// Intervals says in a sentence how the intervals of results were made.
func Intervals(list []Result) string {
	var parts []string
	for _, r := range list {
		for _, tag := range tagsOf(r.Episodes) {
			own := ofTag(r.Episodes, tag)
			c := cluster(own, success)
			_, how := c.interval(true)
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
	share, _ := c.interval(true)
	out := table.PercentBetween(share)
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
		if unjudged(episodes, tag) {
			continue
		}
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
