package trainer

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gyre/internal/statistics"
	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/run/metrics"
)

// record adds numbers to a line of metrics, which may also hold tables.
func record(line map[string]any, numbers map[string]float64) {
	for name, v := range numbers {
		line[name] = v
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// lengths describes the prompts that episodes began with, and how many episodes were cut because they grew too long.
func lengths(episodes []*episode.Episode, m map[string]float64) {
	if len(episodes) == 0 {
		return
	}
	prompt, cut := newExtent(), 0.0
	for _, e := range episodes {
		n := slices.Index(e.Mask, true)
		if n < 0 {
			n = len(e.IDs)
		}
		prompt.add(float64(n))
		cut += flag(e.Stop == "length")
	}
	prompt.into(m, "prompt_length")
	m["response_length/clip_ratio"] = cut / float64(len(episodes))
}

// extent is what a quantity goes from and to over a batch, and its mean.
type extent struct{ sum, n, min, max float64 }

func newExtent() extent { return extent{min: math.Inf(1), max: math.Inf(-1)} }

func (e *extent) add(v float64) {
	e.sum += v
	e.n++
	e.min, e.max = math.Min(e.min, v), math.Max(e.max, v)
}

func (e *extent) into(metrics map[string]float64, name string) {
	if e.n == 0 {
		return
	}
	metrics[name+"/mean"], metrics[name+"/min"], metrics[name+"/max"] = e.sum/e.n, e.min, e.max
}

// dataMetrics records verl's data metrics of a prepared batch: scores per episode, advantages, returns and values per sampled token, and
// how much of the returns' variance the critic explains.
func dataMetrics(samples []*Sample, trajectories []advantage.Trajectory, metrics map[string]float64, critic bool) {
	score, reward, adv, ret, value, length := newExtent(), newExtent(), newExtent(), newExtent(), newExtent(), newExtent()
	var residual, target statistics.Moments
	for i, s := range samples {
		score.add(s.Score)
		total := 0.0
		for _, r := range trajectories[i].Rewards {
			total += r
		}
		reward.add(total)
		length.add(float64(s.PolicyTokens()))
		for t, sampled := range s.Mask {
			if !sampled {
				continue
			}
			adv.add(float64(s.Advantages[t]))
			ret.add(float64(s.Returns[t]))
			if critic {
				value.add(float64(s.Values[t]))
				residual.Add(float64(s.Returns[t]) - float64(s.Values[t]))
				target.Add(float64(s.Returns[t]))
			}
		}
	}
	score.into(metrics, "critic/score")
	reward.into(metrics, "critic/rewards")
	adv.into(metrics, "critic/advantages")
	ret.into(metrics, "critic/returns")
	length.into(metrics, "response_length")
	if critic {
		value.into(metrics, "critic/values")
		metrics["critic/vf_explained_var"] = 1 - residual.Variance()/(target.Variance()+1e-5)
	}
}

// maskedMean of a column over all sampled tokens.
func maskedMean(samples []*Sample, column func(*Sample) []float32) float64 {
	sum, n := 0.0, 0.0
	for _, s := range samples {
		values := column(s)
		for t, sampled := range s.Mask {
			if sampled {
				sum += float64(values[t])
				n++
			}
		}
	}
	return sum / math.Max(n, 1)
}

// members lists the episodes of each group in the order of groups.
func members(episodes []*episode.Episode) (groups [][]*episode.Episode) {
	byGroup := map[int][]*episode.Episode{}
	for _, e := range episodes {
		byGroup[e.Group] = append(byGroup[e.Group], e)
	}
	for _, id := range slices.Sorted(maps.Keys(byGroup)) {
		groups = append(groups, byGroup[id])
	}
	return groups
}

// rewardTable has a column per group and a row per member: its score. A group with fewer members than others ends in NaN.
func rewardTable(episodes []*episode.Episode) metrics.Table {
	var t metrics.Table
	for i, group := range members(episodes) {
		t.Columns = append(t.Columns, fmt.Sprintf("group_%d", i))
		for len(t.Rows) < len(group) {
			t.Rows = append(t.Rows, nil)
		}
		for k := range t.Rows {
			for len(t.Rows[k]) < i { // of groups before it, which were smaller
				t.Rows[k] = append(t.Rows[k], math.NaN())
			}
			score := math.NaN()
			if k < len(group) {
				score = group[k].Score
			}
			t.Rows[k] = append(t.Rows[k], score)
		}
	}
	return t
}

// validationMetrics names what a validation found.
func validationMetrics(episodes []*episode.Episode) map[string]float64 {
	m := map[string]float64{}
	for name, x := range rollout.Summarize(episodes) {
		if !strings.Contains(name, "/") {
			name = "all/" + name
		}
		m["val-env/"+name] = x
	}
	coreValidation(episodes, m)
	return m
}

// coreValidation names a validation's returns and successes per tag as verl does: mean@K over all episodes, best@K and worst@K over the K members
// of each group.
func coreValidation(episodes []*episode.Episode, m map[string]float64) {
	type sums struct{ mean, best, worst, episodes, groups float64 }
	found := map[string]*sums{}
	for _, group := range members(episodes) {
		for kind, value := range map[string]func(*episode.Episode) float64{"reward": (*episode.Episode).Return, "acc": func(e *episode.Episode) float64 { return flag(e.Success) }} {
			key := fmt.Sprintf("val-core/%s/%s/%%s@%d", group[0].Tag, kind, len(group))
			s := found[key]
			if s == nil {
				s = &sums{}
				found[key] = s
			}
			best, worst := math.Inf(-1), math.Inf(1)
			for _, e := range group {
				v := value(e)
				s.mean += v
				best, worst = math.Max(best, v), math.Min(worst, v)
			}
			s.best, s.worst, s.episodes, s.groups = s.best+best, s.worst+worst, s.episodes+float64(len(group)), s.groups+1
		}
	}
	for key, s := range found {
		m[fmt.Sprintf(key, "mean")] = s.mean / s.episodes
		if s.episodes > s.groups {
			m[fmt.Sprintf(key, "best")], m[fmt.Sprintf(key, "worst")] = s.best/s.groups, s.worst/s.groups
		}
	}
}
