package trainer

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"gyre/orchestrate/episode"
	"gyre/orchestrate/metrics"
)

// This file logs what users of RAGEN and verl look for under the names that they look for.

// totals are the seconds that a run has spent so far, interruptions and repeated steps not counted.
type totals struct{ train, eval, checkpoints float64 }

// readTotals adds up what a run's metrics say of the steps before.
func readTotals(path string) (t totals, err error) {
	for record, err := range metrics.Read(path) {
		if err != nil {
			return t, err
		}
		t.add(record.Values)
	}
	return t, nil
}

func (t *totals) add(values map[string]any) {
	for key, sum := range map[string]*float64{"timing_s/step": &t.train, "timing_s/testing": &t.eval, "timing_s/checkpoint": &t.checkpoints} {
		seconds, _ := values[key].(float64)
		*sum += seconds
	}
}

// into adds a step's line of metrics up and completes it.
func (t *totals) into(values map[string]any) {
	t.add(values)
	values["timing_s/train_total"], values["timing_s/eval_total"], values["timing_s/total"] = t.train, t.eval, t.train+t.eval+t.checkpoints
}

// throughput relates the tokens of a finished step to its time.
func throughput(m map[string]float64) {
	seconds := m["timing_s/step"]
	m["perf/time_per_step"] = seconds
	if tokens, ok := m["perf/total_num_tokens"]; ok && seconds > 0 {
		m["perf/throughput"] = tokens / seconds
	}
}

// lengths describes the prompts that episodes began with, and how many episodes were cut because they grew too long.
func lengths(episodes []*episode.Episode, m map[string]float64) {
	if len(episodes) == 0 {
		return
	}
	n, sum, low, high, cut := float64(len(episodes)), 0.0, math.Inf(1), math.Inf(-1), 0.0
	for _, e := range episodes {
		prompt := len(e.IDs)
		if i := slices.Index(e.Mask, true); i >= 0 {
			prompt = i
		}
		sum, low, high = sum+float64(prompt), math.Min(low, float64(prompt)), math.Max(high, float64(prompt))
		cut += flag(e.Stop == "length")
	}
	m["prompt_length/mean"], m["prompt_length/min"], m["prompt_length/max"] = sum/n, low, high
	m["response_length/clip_ratio"] = cut / n
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
