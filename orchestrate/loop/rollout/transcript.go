package rollout

import (
	"slices"

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

// reply appends a turn's reply; trained says whether the policy is to learn from it. logprobs may be nil.
func (t *transcript) reply(ids []int32, logprobs []float32, trained bool) {
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
