package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
)

// weighting says how named parts become the reward that training uses.
type weighting map[string]config.Reward // by name; empty = the environment's own sum

func newWeighting(rewards []config.Reward) weighting {
	w := weighting{}
	for _, r := range rewards {
		w[r.Name] = r
	}
	return w
}

// wanted is what environments that compute parts on request are asked for.
func wanted(rewards []config.Reward) []envs.ComponentSpec {
	var list []envs.ComponentSpec
	for _, r := range rewards {
		list = append(list, envs.ComponentSpec{Name: r.Name, Options: r.Options})
	}
	return list
}

// earned is what a step earned: the environment's sum, or the weighted sum of its parts.
func (w weighting) earned(result envs.Result) float64 {
	if len(w) == 0 {
		return result.Reward
	}
	sum := 0.0
	for _, part := range result.Components {
		sum += w[part.Name].Weight * part.Value
	}
	return sum
}

// credit writes a turn's parts and its reward into the transcript, whose last reply they are about. lengths are the reply's tokens in
// bytes of text.
func (w weighting) credit(t *transcript, out outcome, lengths []int) {
	turn := t.turns[len(t.turns)-1]
	last := len(t.ids) - 1
	totals := map[int]float64{}
	for _, part := range out.parts {
		weight, weighted := w[part.Name]
		if weighted && weight.Placement != "environment" {
			part.Placement = weight.Placement
		}
		shares := place(part, turn, last, lengths)
		t.component(part.Name, shares)
		for _, share := range shares {
			totals[share.Token] += weight.Weight * share.Value
		}
	}
	if len(w) == 0 {
		t.reward(out.reward + out.penalty)
		return
	}
	totals[last] += out.penalty
	for _, token := range slices.Sorted(maps.Keys(totals)) {
		if totals[token] != 0 {
			t.rewards = append(t.rewards, episode.Reward{Token: token, Value: totals[token]})
		}
	}
}

// place shares a part out among the tokens that carry it. A stretch of text that no token touches is carried by the last one.
func place(part envs.Component, turn episode.Turn, last int, lengths []int) []episode.Reward {
	from, to := last, last+1
	switch part.Placement {
	case envs.PlaceMean:
		from, to = turn.Reply, turn.End
	case envs.PlaceSpread:
		if a, b := touched(lengths, part.From, part.To); a < b {
			from, to = turn.Reply+a, turn.Reply+b
		}
	}
	if from >= to { // an empty reply
		from, to = last, last+1
	}
	shares := make([]episode.Reward, 0, to-from)
	for token := from; token < to; token++ {
		shares = append(shares, episode.Reward{Token: token, Value: part.Value / float64(to-from)})
	}
	return shares
}

// touched is the range of tokens that hold any of the bytes [from, to); a stretch that starts before the text is none.
func touched(lengths []int, from, to int) (first, end int) {
	if from < 0 {
		return 0, 0
	}
	first = len(lengths)
	at := 0
	for i, n := range lengths {
		if at < to && at+n > from {
			first, end = min(first, i), i+1
		}
		at += n
	}
	return first, end
}

// checkNames refuses [[rewards]] that name none of the parts that occur: a misspelt name would silently weigh nothing.
func (w weighting) checkNames(episodes []*episode.Episode) error {
	seen := map[string]bool{}
	for _, e := range episodes {
		for name := range e.Components {
			seen[name] = true
		}
	}
	if len(seen) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(w)) {
		if !seen[name] {
			return fmt.Errorf("[[rewards]] weighs the part %q, but no episode of the first batch has one; they have: %s",
				name, strings.Join(slices.Sorted(maps.Keys(seen)), ", "))
		}
	}
	return nil
}
