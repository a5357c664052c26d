package session

import (
	"errors"
	"fmt"
	"slices"

	"gyre/orchestrate/model/chat"
)

// History is the tree of what was said in a session. It is for one goroutine at a time.
type History struct {
	tokenizer *chat.Tokenizer
	base      *chat.Conversation // empty: all branches see one time
	openings  []*Turn            // whose prompts open a conversation
	turns     []*Turn            // in the order of their replies
	tokens    int
}

// New is an empty history.
func New(t *chat.Tokenizer) *History {
	return &History{tokenizer: t, base: t.NewConversation()}
}

// Turn is a reply, and what was said between it and the reply before.
type Turn struct {
	Number   int     // from 0, in the order of the replies
	Prompt   []int32 // what follows the reply before: the client's and the template's
	Reply    []int32 // as it was drawn
	Logprobs []float32

	messages     []chat.Message // that Prompt holds
	tools        string         // that the conversation was opened with
	said         reply
	conversation *chat.Conversation // up to Prompt
	parent       *Turn
	children     []*Turn
}

// Prompt is a prompt that waits for its reply.
type Prompt struct {
	IDs     []int32
	history *History
	turn    Turn
}

// Prompt gives the prompt of a call with these messages, the last of which is not the model's own.
//
// Another list of tools begins a new conversation. The template's variables count for what this call adds.
func (h *History) Prompt(messages []chat.Message, o chat.Offer) (*Prompt, error) {
	if len(messages) == 0 {
		return nil, errors.New("messages is empty: expected at least one")
	}
	offered, err := nameTools(o.Tools)
	if err != nil {
		return nil, err
	}
	p := &Prompt{history: h, turn: Turn{tools: offered}}
	way := follow(h.opened(offered), messages)
	p.turn.parent, p.turn.messages = way.at, slices.Clone(messages[way.taken:])
	var spans []chat.Span
	spans, err = p.extend(o, p.turn.messages)
	if bare := withoutThoughts(p.turn.messages); err != nil && bare != nil { // templates take thinking out themselves
		spans, err = p.extend(o, bare)
	}
	if err != nil {
		return nil, err
	}
	for _, s := range spans {
		p.turn.Prompt = append(p.turn.Prompt, s.IDs...)
	}
	p.IDs = append(way.at.ids(), p.turn.Prompt...)
	return p, nil
}

// opened are the openings of conversations with the same tools.
func (h *History) opened(tools string) (list []*Turn) {
	for _, t := range h.openings {
		if t.tools == tools {
			list = append(list, t)
		}
	}
	return list
}

// extend encodes what follows the reply before.
func (p *Prompt) extend(o chat.Offer, messages []chat.Message) ([]chat.Span, error) {
	before, from := p.turn.parent, p.history.base
	if before != nil {
		from = before.conversation
	}
	p.turn.conversation = from.Clone()
	if err := p.turn.conversation.Offer(o); err != nil {
		return nil, err
	}
	if before != nil {
		return p.turn.conversation.Continue(before.Reply, messages, "")
	}
	return p.turn.conversation.Open(messages, "")
}

// Reply adds a reply to the history: the tokens that were drawn with their log-probs, and the message that the client
// is given. A prompt may have several.
func (p *Prompt) Reply(ids []int32, logprobs []float32, said chat.Message) (*Turn, error) {
	h := p.history
	if len(ids) == 0 || len(logprobs) != len(ids) {
		return nil, fmt.Errorf("a reply of %d tokens and %d log-probs: expected one for each token", len(ids),
			len(logprobs))
	}
	t := p.turn
	t.Number, t.Reply, t.Logprobs = len(h.turns), slices.Clone(ids), slices.Clone(logprobs)
	t.said = newReply(h.text(ids), said)
	if t.parent == nil {
		h.openings = append(h.openings, &t)
	} else {
		t.parent.children = append(t.parent.children, &t)
	}
	h.turns, h.tokens = append(h.turns, &t), h.tokens+len(t.Prompt)+len(ids)
	return &t, nil
}

// text is what a reply says, without the token that ends it.
func (h *History) text(ids []int32) string {
	if n := len(ids); slices.Contains(h.tokenizer.StopIDs(), ids[n-1]) {
		ids = ids[:n-1]
	}
	return h.tokenizer.Said(ids)
}

// Turns counts the replies.
func (h *History) Turns() int { return len(h.turns) }

// Tokens counts the tokens that are kept: those of common prefixes once.
func (h *History) Tokens() int { return h.tokens }

// path is the way from the opening to a turn.
func (t *Turn) path() (way []*Turn) {
	for ; t != nil; t = t.parent {
		way = append(way, t)
	}
	slices.Reverse(way)
	return way
}

// ids are all tokens up to the end of a reply.
func (t *Turn) ids() (ids []int32) {
	for _, t := range t.path() {
		ids = append(append(ids, t.Prompt...), t.Reply...)
	}
	return ids
}

// Paths are the branches, each from the opening to a reply from which nobody went on, in the order of these replies.
func (h *History) Paths() (list [][]*Turn) {
	for _, t := range h.turns {
		if len(t.children) == 0 {
			list = append(list, t.path())
		}
	}
	return list
}

// Branch is a whole sequence, as clients see it.
type Branch struct {
	IDs      []int32    `json:"ids"`
	Mask     []int      `json:"mask"`     // 1 where the token was drawn
	Logprobs []*float32 `json:"logprobs"` // null where it was not
	Shared   int        `json:"shared"`   // tokens at the beginning that are those of an earlier branch
}

// Branches are the paths as sequences.
func (h *History) Branches() []Branch {
	list, seen := []Branch{}, map[*Turn]bool{}
	for _, path := range h.Paths() {
		var b Branch
		for _, t := range path {
			if seen[t] {
				b.Shared += len(t.Prompt) + len(t.Reply)
			}
			seen[t] = true
			b.IDs = append(append(b.IDs, t.Prompt...), t.Reply...)
			b.Mask = append(append(b.Mask, make([]int, len(t.Prompt))...), slices.Repeat([]int{1}, len(t.Reply))...)
			b.Logprobs = append(b.Logprobs, make([]*float32, len(t.Prompt))...)
			for i := range t.Logprobs {
				b.Logprobs = append(b.Logprobs, &t.Logprobs[i])
			}
		}
		list = append(list, b)
	}
	return list
}
