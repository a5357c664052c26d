package rollout

import (
	"fmt"
	"maps"
	"slices"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
)

// markPasses gives every member of a group of n its pass@k: the probability that one of k members drawn without
// repetition has succeeded (Chen et al., 2021), for k = n (whether any has) and the powers of two below. In a group
// that lacks members k is at most those that it has.
func markPasses(episodes []*episode.Episode, sources []config.Env) {
	var planned []int // size of each group
	for _, s := range sources {
		planned = append(planned, slices.Repeat([]int{s.GroupSize}, s.Groups)...)
	}
	size, passed := map[int]int{}, map[int]int{}
	for _, e := range episodes {
		size[e.Group]++
		if e.Success {
			passed[e.Group]++
		}
	}
	for _, e := range episodes {
		n, c, most := size[e.Group], passed[e.Group], planned[e.Group]
		for k := 1; k < most; k *= 2 {
			e.Metrics[fmt.Sprintf("pass@%d", k)] = passAt(min(k, n), n, c)
		}
		e.Metrics[fmt.Sprintf("pass@%d", most)] = passAt(n, n, c)
	}
}

// passAt is 1 - C(n-c, k) / C(n, k), as a product that does not overflow.
func passAt(k, n, c int) float64 {
	if n-c < k {
		return 1
	}
	none := 1.0
	for i := n - c + 1; i <= n; i++ {
		none *= 1 - float64(k)/float64(i)
	}
	return 1 - none
}

// SolvedBy counts the episodes that had succeeded by the end of their first turn, their second, … up to most turns.
func SolvedBy(episodes []*episode.Episode, most int) []int {
	out := make([]int, most)
	for _, e := range episodes {
		for turn := len(e.Turns); e.Success && turn <= most; turn++ {
			out[turn-1]++
		}
	}
	return out
}

// Summarize averages the episodes' own metrics under RAGEN's names:
//
//	{tag}/{key}            mean over the tag's episodes: success, num_actions, pass@{group size}, episodic_return
//	                       (rewards without penalties), reward/{component}, and turn means such as action_is_valid
//	{tag}/non-zero/{key}   mean over those where it is not zero, absent if there are none
//	response_length        mean number of sampled tokens
//	charts/avg_episode_return  mean over tags of episodic_return
func Summarize(episodes []*episode.Episode) map[string]float64 {
	out := map[string]float64{}
	if len(episodes) == 0 {
		return out
	}
	type key struct{ tag, name string }
	sums, nonZero, count := map[key]float64{}, map[key]float64{}, map[string]float64{}
	tokens := 0.0
	for _, e := range episodes {
		count[e.Tag]++
		tokens += float64(e.PolicyTokens())
		add := func(name string, value float64) {
			sums[key{e.Tag, name}] += value
			nonZero[key{e.Tag, name}] += indicator(value != 0)
		}
		for name, value := range e.Metrics {
			add(name, value)
		}
		for name, shares := range e.Components {
			add("reward/"+name, episode.Sum(shares))
		}
	}
	out["response_length"] = tokens / float64(len(episodes))
	for k, sum := range sums {
		out[k.tag+"/"+k.name] = sum / count[k.tag]
		if n := nonZero[k]; n > 0 {
			out[k.tag+"/non-zero/"+k.name] = sum / n
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(count)) { // in order: a sum's rounding must not differ between runs
		if sum, ok := sums[key{tag, "episodic_return"}]; ok {
			out["charts/avg_episode_return"] += sum / count[tag] / float64(len(count))
		}
	}
	return out
}
