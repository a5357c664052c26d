// Package chat turns text and messages into token ids and back, as Hugging Face's transformers does for the model
// directories it reads: tokenizer.json (package bpe), the special tokens of tokenizer_config.json,
// generation_config.json and config.json, and the chat template.
//
// Three kinds of text are kept apart:
//
//   - ordinary text (EncodeOrdinary, the contents of messages in a Conversation): nothing in it is markup, so
//     an environment or a prompt cannot forge the end of a turn or a role;
//   - markup (EncodeMarkup, what a chat template writes): special and other added tokens are recognised;
//   - a document (EncodeDocument): markup, with the tokens around it that the post-processor adds, such as a
//     BOS.
//
// A Conversation is the token history of one episode. It only ever grows, by the ids that were sampled and by ids made
// from new messages: there is no way to tokenize a reply again.
package chat

import (
	"errors"
	"slices"
)

// Owner says who wrote a span of a prompt. What follows a prompt is the policy's.
type Owner uint8

const (
	ByTemplate    Owner = iota // markup and prefixes
	ByEnvironment              // contents of messages: special tokens in them are ordinary text
)

// Span is a stretch of tokens with one owner.
type Span struct {
	Owner Owner
	IDs   []int32
}

// Conversation is the token history of one episode under a chat template. Its prompt for each turn starts with the
// prompt and the reply of the turn before, token for token. It is for one goroutine.
type Conversation struct {
	t      *Tokenizer
	roles  []string // of the messages so far, replies included
	opened bool
	frame  frame // of which the template sees one time throughout
}

// NewConversation starts an empty conversation.
func (t *Tokenizer) NewConversation() *Conversation {
	return &Conversation{t: t, frame: frame{prompt: true, now: t.now()}}
}

// Clone is a conversation that stands where c does, and goes on by itself.
func (c *Conversation) Clone() *Conversation {
	other := *c
	return &other
}

// Offer makes tools and variables known to the template. It comes before Open; what is offered before Continue counts
// for what follows.
func (c *Conversation) Offer(o Offer) error { return c.t.offer(&c.frame, o) }

// Open returns the first prompt: messages in the chat template, then the start of the assistant's turn, then prefix
// (the start of every reply, such as "<think>"), in spans. Contents of messages are the environment's, the rest is the
// template's.
func (c *Conversation) Open(messages []Message, prefix string) ([]Span, error) {
	if c.opened {
		return nil, errors.New("conversation is open already: expected Continue")
	}
	if len(messages) == 0 {
		return nil, errors.New("conversation opens without a message: expected at least one")
	}
	return c.extend(nil, nil, messages, prefix)
}

// Continue returns what follows a sampled reply: the end of the assistant's turn, messages, and the start of the next
// reply as in Open. If the reply already ends with the token that ends a turn, that token is not repeated; if it was
// cut off, the token is added and is the template's. The ids of the reply stay as they were sampled and are not part of
// the result.
func (c *Conversation) Continue(reply []int32, messages []Message, prefix string) ([]Span, error) {
	if !c.opened {
		return nil, errors.New("conversation is not open: expected Open first")
	}
	if len(messages) == 0 {
		return nil, errors.New("conversation continues without a message: expected at least one after the reply")
	}
	return c.extend(append(slices.Clone(c.roles), "assistant"), reply, messages, prefix)
}

func (c *Conversation) extend(past []string, reply []int32, messages []Message, prefix string) ([]Span, error) {
	a, err := c.t.arrange(past, messages, c.frame)
	if err != nil {
		return nil, err
	}
	parts, err := c.t.separate(a)
	if err != nil {
		return nil, err
	}
	parts = append(parts, part{prefix, -1})
	ids, from, err := c.t.EncodeSegments(segments(parts), len(past) > 0)
	if err != nil {
		return nil, err
	}
	if len(past) > 0 {
		first := slices.IndexFunc(from, func(i int) bool { return parts[i].slot >= 0 })
		if first < 0 {
			first = len(ids)
		}
		said := c.t.alreadySaid(reply, ids[:first])
		ids, from = ids[said:], from[said:]
	}
	c.opened, c.roles = true, past
	for _, m := range messages {
		c.roles = append(c.roles, m.Role)
	}
	var spans []Span
	for i, id := range ids {
		owner := ByTemplate
		if parts[from[i]].slot >= 0 {
			owner = ByEnvironment
		}
		if n := len(spans); n == 0 || spans[n-1].Owner != owner {
			spans = append(spans, Span{Owner: owner})
		}
		last := &spans[len(spans)-1]
		last.IDs = append(last.IDs, id)
	}
	return spans, nil
}

// alreadySaid returns how many ids of closing (what the template writes after a reply) the reply ends with already: the
// longest overlap that has a special token or stop id in it, or else everything up to the stop id that the reply ends
// with.
func (t *Tokenizer) alreadySaid(reply, closing []int32) int {
	stops := func(id int32) bool { return slices.Contains(t.stop, id) }
	ends := func(id int32) bool { return t.Special(id) || stops(id) }
	for n := min(len(reply), len(closing)); n > 0; n-- {
		if slices.Equal(reply[len(reply)-n:], closing[:n]) && slices.ContainsFunc(closing[:n], ends) {
			return n
		}
	}
	if len(reply) > 0 && stops(reply[len(reply)-1]) {
		return slices.Index(closing, reply[len(reply)-1]) + 1
	}
	return 0
}
