package rollout

import (
	"fmt"
	"maps"
	"slices"

	"gyre/envs"
	"gyre/internal/statistics"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
)

// Sources: RAGEN's reward normalisation. The deviation is the unbiased one, and a set whose deviation is at most
// smallestStd becomes all zeros.
const (
	smallestStd = 1e-6
	clipLow     = -1
	clipHigh    = 3
)

// normalize replaces scores within each set of episodes (of one group, tag or batch). Where every set holds a single
// episode there is nothing to compare with, and scores stay as they are. Rewards are never changed.
func normalize(episodes []*episode.Episode, method, within string) {
	if method == "identity" {
		return
	}
	type key struct {
		group int
		tag   string
	}
	sets := map[key][]*episode.Episode{}
	compared := false
	for _, e := range episodes {
		var k key
		switch within {
		case "state":
			k.group = e.Group
		case "tag":
			k.tag = e.Tag
		}
		sets[k] = append(sets[k], e)
		compared = compared || len(sets[k]) > 1
	}
	if !compared {
		return
	}
	for _, set := range sets {
		scores := make([]float64, len(set))
		for i, e := range set {
			scores[i] = e.Score
		}
		mean, std := statistics.Mean(scores), 0.0
		if len(set) > 1 {
			std = statistics.Deviation(scores)
		}
		for _, e := range set {
			e.Score = normalized(method, e.Score-mean, std)
		}
	}
}

// normalized is a score, of which the mean is taken, after a method.
func normalized(method string, centred, std float64) float64 {
	switch {
	case method == "mean":
		return centred
	case std <= smallestStd:
		return 0
	case method == "asym_clip":
		return min(max(centred/(std+smallestStd), clipLow), clipHigh)
	}
	return centred / (std + smallestStd)
}

// markPasses gives every member of a group of n its pass@k: the probability that one of k members drawn without
// repetition has succeeded (Chen et al., 2021), for k = n (whether any has) and the powers of two below. In a group
// that lacks members k is at most those that it has; k is at most what the source plans where
// a budget gives a group more.
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
		if e.Unjudged {
			continue
		}
		n, c, most := size[e.Group], passed[e.Group], planned[e.Group]
		for k := 1; k < most; k *= 2 {
			e.Metrics[fmt.Sprintf("pass@%d", k)] = PassAt(min(k, n), n, c)
		}
		e.Metrics[fmt.Sprintf("pass@%d", most)] = PassAt(min(most, n), n, c)
	}
}

// PassAt is the probability that one of k of n episodes, of which c succeeded, did: 1 - C(n-c, k) / C(n, k), as a
// product that does not overflow.
func PassAt(k, n, c int) float64 {
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

// Summary is what episodes were like on average, under RAGEN's names.
type Summary struct {
	Length       *float64 `metric:"response_length" unit:"tokens" doc:"sampled per episode"`
	Cut          *float64 `metric:"response_length/cut_ratio" unit:"share" doc:"of replies that rollout.max_tokens cut off"`
	Environments `metric:""`
}

// Environments are the averages of the episodes' own metrics.
type Environments struct {
	Tags   map[string]Environment `metric:"{tag}"`
	Return *float64               `metric:"charts/avg_episode_return" unit:"reward" doc:"mean over tags of episodic_return"`
}

// Environment is what the episodes of one tag were like. Keys are success, num_actions, pass@{group size},
// episodic_return (rewards without penalties), reward/{component}, and turn means such as action_is_valid.
type Environment struct {
	Means   map[string]float64 `metric:"{key}" doc:"mean over the tag's episodes"`
	NonZero map[string]float64 `metric:"non-zero/{key}" doc:"mean over those where it is not zero"`
}

// Summarize averages the metrics of episodes.
func Summarize(episodes []*episode.Episode) Summary {
	s := Summary{Environments: Environments{Tags: map[string]Environment{}}}
	count, tokens, replies, cut := map[string]float64{}, 0.0, 0, 0
	for _, e := range episodes {
		tokens += float64(e.PolicyTokens())
		replies, cut = replies+len(e.Turns), cut+len(e.Cut)
		if count[e.Tag]++; count[e.Tag] == 1 {
			s.Tags[e.Tag] = Environment{map[string]float64{}, map[string]float64{}}
		}
		own := s.Tags[e.Tag] // sums, and how many are not zero
		add := func(name string, value float64) {
			own.Means[name] += value
			own.NonZero[name] += envs.Indicator(value != 0)
		}
		for name, value := range e.Metrics {
			add(name, value)
		}
		for name, rewards := range e.Components {
			add("reward/"+name, episode.Sum(rewards))
		}
	}
	if len(episodes) > 0 {
		s.Length = new(tokens / float64(len(episodes)))
	}
	if replies > 0 {
		s.Cut = new(float64(cut) / float64(replies))
	}
	mean, found := 0.0, false
	for _, tag := range slices.Sorted(maps.Keys(count)) { // in order: a sum's rounding must not differ between runs
		own := s.Tags[tag]
		for name, sum := range own.Means {
			own.Means[name] = sum / count[tag]
			if own.NonZero[name] > 0 {
				own.NonZero[name] = sum / own.NonZero[name]
			} else {
				delete(own.NonZero, name)
			}
		}
		if v, ok := own.Means["episodic_return"]; ok {
			mean, found = mean+v/float64(len(count)), true
		}
	}
	if found {
		s.Return = &mean
	}
	return s
}
