package rollout

import (
	"context"
	"fmt"
	"math"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/versions"
	"gyre/torch"
)

// drawn are tokens of a reply with their log-probs under the weights that drew each.
type drawn struct {
	IDs      []int32   `json:"ids"`
	Logprobs []float32 `json:"logprobs"`
	Prompt   uint32    `json:"prompt"` // checksum of what the reply continues
}

// draw takes what the sampler has of the pending reply: its draft, with log-probs of 0, and new tokens behind it.
func (r *runner) draw(out torch.Output, version int) {
	known := len(r.draft.IDs)
	if known == 0 {
		r.draft.Prompt = versions.Checksum(r.transcript.prompt())
	}
	if out.Logprobs != nil { // a server's may not be known
		r.draft.Logprobs = append(r.draft.Logprobs, out.Logprobs[known:]...)
	}
	r.draft.IDs = out.Tokens
	if n := len(r.versions); len(out.Tokens) > known && (n == 0 || r.versions[n-1].Version != version) {
		r.versions = append(r.versions, episode.Run{Token: len(r.transcript.ids) + known, Version: version})
	}
	if start := len(r.transcript.ids); r.older && len(out.Tokens) > known {
		r.mixed = append(r.mixed, [2]int{start + known, start + len(out.Tokens)})
	}
}

// relive starts an episode and gives it the replies that it has had. An environment that says something else this time
// fails.
func (r *runner) relive(ctx context.Context, replies []drawn) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	for i, reply := range replies {
		if r.over || versions.Checksum(r.transcript.prompt()) != reply.Prompt {
			r.differs(i + 1)
			return nil
		}
		r.count(len(reply.IDs))
		if err := r.answer(ctx, reply.IDs, reply.Logprobs, true); err != nil {
			return err
		}
	}
	if len(r.draft.IDs) > 0 && (r.over || versions.Checksum(r.transcript.prompt()) != r.draft.Prompt) {
		r.differs(len(replies) + 1)
	}
	return nil
}

// differs ends an episode whose environment does not repeat itself.
func (r *runner) differs(turn int) {
	if r.failed() {
		return // that is why
	}
	r.game.fail(fmt.Errorf("played again from its seed and its actions, the environment says something else before "+
		"turn %d", turn))
	r.finish(r.game.stop)
}

// entry says which weights draw the tokens of an episode of a run that is repeated.
type entry struct {
	given     bool
	diverging bool // see versions.Schedule
	runs      []episode.Run
}

// allows counts the tokens from one on that weights of a version may draw.
func (s entry) allows(token, version int) (int, error) {
	if !s.given {
		return math.MaxInt32, nil
	}
	at := -1
	for i, run := range s.runs {
		if run.Token <= token {
			at = i
		}
	}
	switch {
	case s.diverging && at < 0:
		return math.MaxInt32, nil
	case at < 0:
		return 0, fmt.Errorf("the schedule has no token %d of it: the environment or the configuration is another",
			token)
	case s.runs[at].Version > version:
		return 0, nil
	case s.runs[at].Version < version && !s.diverging:
		return 0, fmt.Errorf("by the schedule version %d drew token %d, which version %d has reached: the environment "+
			"or the configuration is another", s.runs[at].Version, token, version)
	case at+1 < len(s.runs):
		return s.runs[at+1].Token - token, nil
	}
	return math.MaxInt32, nil
}
