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

// weighting says how named components become the reward that training uses.
type weighting map[string]config.Reward // by name; empty = the environment's own sum

func newWeighting(rewards []config.Reward) weighting {
	w := weighting{}
	for _, r := range rewards {
		w[r.Name] = r
	}
	return w
}

// componentSpecs are what environments that compute components on request are asked for.
func componentSpecs(rewards []config.Reward) []envs.ComponentSpec {
	var list []envs.ComponentSpec
	for _, r := range rewards {
		list = append(list, envs.ComponentSpec{Name: r.Name, Options: r.Options})
	}
	return list
}

// component is a reward component of an action with its weight in the reward.
type component struct {
	envs.Component
	weight float64
}

// apply gives the reward of an action, which is the environment's sum or the weighted sum of its components, and
// these components, placed as the experiment says.
func (w weighting) apply(result envs.Result) (reward float64, components []component) {
	if len(w) == 0 {
		reward = result.Reward
	}
	for _, c := range result.Components {
		own, weighted := w[c.Name]
		if weighted && own.Placement != "environment" {
			c.Placement = own.Placement
		}
		reward += own.Weight * c.Value
		components = append(components, component{c, own.Weight})
	}
	return reward, components
}

// credit writes a turn's components and its reward into the transcript, whose last reply they are about. lengths are
// the reply's tokens in bytes of text.
func (w weighting) credit(t *transcript, out outcome, lengths []int) {
	turn, last := t.turns[len(t.turns)-1], len(t.ids)-1
	totals := map[int]float64{}
	for _, c := range out.components {
		shares := place(c.Component, turn, last, lengths)
		t.component(c.Name, shares)
		for _, share := range shares {
			totals[share.Token] += c.weight * share.Value
		}
	}
	if len(w) == 0 {
		totals = map[int]float64{last: out.reward}
	}
	totals[last] += out.penalty
	for _, token := range slices.Sorted(maps.Keys(totals)) {
		if totals[token] != 0 {
			t.rewards = append(t.rewards, episode.Reward{Token: token, Value: totals[token]})
		}
	}
}

// place divides a component among the tokens that carry it. A segment of text that no token touches is carried by the
// last token.
func place(c envs.Component, turn episode.Turn, last int, lengths []int) []episode.Reward {
	from, to := last, last+1
	switch c.Placement {
	case envs.PlaceMean:
		from, to = turn.Reply, turn.End
	case envs.PlaceSpread:
		if a, b := touched(lengths, c.From, c.To); a < b {
			from, to = turn.Reply+a, turn.Reply+b
		}
	}
	if from >= to { // an empty reply
		from, to = last, last+1
	}
	shares := make([]episode.Reward, 0, to-from)
	for token := from; token < to; token++ {
		shares = append(shares, episode.Reward{Token: token, Value: c.Value / float64(to-from)})
	}
	return shares
}

// touched is the range of tokens that hold any of the bytes [from, to); a segment that starts before the text is none.
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

// checkNames refuses [[rewards]] that name none of the components that occur: a misspelt name would silently weigh
// nothing.
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
			return fmt.Errorf("[[rewards]] weighs the component %q, but no episode of the first batch has one; they "+
				"have: %s", name, strings.Join(slices.Sorted(maps.Keys(seen)), ", "))
		}
	}
	return nil
}
