package rollout

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gyre/envs"
	"gyre/envs/reward"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/model/chat"
)

// transcript is the token side of one episode. Its ids only ever grow; a prompt extends the sequence before it or
// starts another.
type transcript struct {
	conversation *chat.Conversation
	ids          []int32
	mask         []bool
	logprob      []float32
	rewards      []episode.Reward
	components   map[string][]episode.Reward
	turns        []episode.Turn
	cut          []int // of the turns
	observation  int   // where the pending turn's observation starts
	contexts     []int // where sequences start; nil = there is one
	start        int   // of the present one
	unknown      bool  // some of logprob are not those of the policy
}

// observe appends what the environment and the template say before the next reply.
func (t *transcript) observe(ids []int32) {
	t.observation = len(t.ids)
	t.grow(ids, nil, false)
}

// restart begins another sequence with a conversation so far, of whose replies none is trained here.
func (t *transcript) restart(conversation *chat.Conversation, ids []int32) {
	t.conversation = conversation
	if t.contexts == nil {
		t.contexts = []int{0}
	}
	t.start = len(t.ids)
	t.contexts = append(t.contexts, t.start)
	t.observe(ids)
}

// prompt is the sequence that the pending reply continues.
func (t *transcript) prompt() []int32 { return t.ids[t.start:] }

// length is that of the present sequence.
func (t *transcript) length() int { return len(t.ids) - t.start }

// reply appends a turn's reply; trained says whether the policy is to learn from it, cut whether it was cut off.
// logprobs may be nil.
func (t *transcript) reply(ids []int32, logprobs []float32, trained, cut bool) {
	if cut {
		t.cut = append(t.cut, len(t.turns))
	}
	t.unknown = t.unknown || logprobs == nil && trained
	start := len(t.ids)
	t.grow(ids, logprobs, trained)
	t.turns = append(t.turns, episode.Turn{Observation: t.observation, Reply: start, End: len(t.ids)})
}

// component records what a reward component gives to tokens, zeros too: a component that was judged 0 differs from
// one that nobody judged.
func (t *transcript) component(name string, shares []episode.Reward) {
	if t.components == nil {
		t.components = map[string][]episode.Reward{}
	}
	for _, share := range shares {
		list := t.components[name]
		if n := len(list); n > 0 && list[n-1].Token == share.Token { // another action of the same reply
			list[n-1].Value += share.Value
			continue
		}
		t.components[name] = append(list, share)
	}
}

func (t *transcript) grow(ids []int32, logprobs []float32, masked bool) {
	if logprobs == nil {
		logprobs = make([]float32, len(ids))
	}
	t.ids, t.logprob = append(t.ids, ids...), append(t.logprob, logprobs...)
	t.mask = append(t.mask, slices.Repeat([]bool{masked}, len(ids))...)
}

// weighting says how named components become the reward that training uses.
type weighting struct {
	parts     map[string]config.Reward // by name; empty = the environment's own sum
	successAt float64                  // reward that makes a success where the environment does not tell; NaN = none does
}

// newWeighting weighs by [[rewards]]. A success is what earns the most that all components together can earn.
func newWeighting(rewards []config.Reward) weighting {
	w := weighting{parts: map[string]config.Reward{}}
	for _, r := range rewards {
		w.parts[r.Name] = r
		low, high, known := reward.Range(r.Name, r.Options)
		if !known {
			low, high = math.NaN(), math.NaN()
		}
		w.successAt += max(r.Weight*low, r.Weight*high)
	}
	return w
}

// judge says whether a reward is a success, where the environment does not tell; false: nobody knows.
func (w weighting) judge(earned float64) (success, known bool) {
	const rounding = 1e-9 // of a sum of weighted components
	return earned >= w.successAt-rounding, !math.IsNaN(w.successAt)
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
	if len(w.parts) == 0 {
		reward = result.Reward
	}
	for _, c := range result.Components {
		own, weighted := w.parts[c.Name]
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
	if len(w.parts) == 0 {
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
	for _, name := range slices.Sorted(maps.Keys(w.parts)) {
		if !seen[name] {
			return fmt.Errorf("[[rewards]] weighs the component %q, but no episode of the first batch has one; they "+
				"have: %s", name, strings.Join(slices.Sorted(maps.Keys(seen)), ", "))
		}
	}
	return nil
}
