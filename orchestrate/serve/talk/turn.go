package talk

import (
	"encoding/json"
	"fmt"
	"net/http"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/chat/replies"
	"gyre/torch"
)

// Ask is what a request wants of the next turn.
type Ask struct {
	Parameters
	Messages     []chat.Message
	Offer        chat.Offer
	MaxTokens    *int
	Alternatives int
	OneCall      bool // of several calls the first alone is given
}

// Turn is the model's while it is sampled.
type Turn struct {
	*Run
	Prompt  []int32
	ask     Ask
	session Session
}

// Open starts the replies that a request asks for. The caller calls Cancel in the end.
func (t *Talks) Open(r *http.Request, ask Ask) (*Turn, error) {
	if _, err := t.Host.Policy(ask.Model); err != nil {
		return nil, err
	}
	session, err := t.Session(r)
	if err != nil {
		return nil, err
	}
	turn := &Turn{ask: ask, session: session}
	if turn.Prompt, err = t.Encode(session, ask.Messages, ask.Offer); err != nil {
		return nil, err
	}
	requests, err := t.Requests(&ask.Parameters, turn.Prompt, ask.MaxTokens, ask.Alternatives)
	if err != nil {
		return nil, err
	}
	if session != nil {
		session.Sample(requests)
	}
	turn.Run, err = t.Start(r.Context(), requests)
	return turn, err
}

// Reply is a choice that is complete.
type Reply struct {
	Thinking, Text string
	Calls          []chat.ToolCall
	Output         torch.Output
}

// Message is the reply as the client gets it.
func (r *Reply) Message() chat.Message {
	m := chat.Said(replies.Reply{Thinking: r.Thinking, Content: r.Text})
	m.ToolCalls = r.Calls
	return m
}

// Play calls visit with what is new of the choices, and at the end of one with all of it.
func (t *Turn) Play(visit func(p Piece, whole *Reply) error) error {
	tokenizer := t.talks.Host.Tokenizer()
	readers, all := make([]*replies.Reader, t.Choices()), make([]Reply, t.Choices())
	for i := range readers {
		readers[i] = tokenizer.Reader(t.Prompt, t.ask.Offer.Tools)
	}
	return t.Run.Play(func(p Piece, out *torch.Output) error {
		reader, reply := readers[p.Choice], &all[p.Choice]
		parts := reader.Add(p.Text)
		if out != nil {
			parts = append(parts, reader.Finish(tokenizer.Ending(out.Tokens))...)
		}
		var news replies.Reply
		news.Add(parts)
		p.Thinking, p.Text, p.Before = news.Thinking, news.Content, len(reply.Calls)
		for _, call := range news.Calls {
			if !t.ask.OneCall || p.Before+len(p.Calls) == 0 {
				p.Calls = append(p.Calls, t.named(call))
			}
		}
		reply.Thinking, reply.Text = reply.Thinking+p.Thinking, reply.Text+p.Text
		if reply.Calls = append(reply.Calls, p.Calls...); out == nil {
			return visit(p, nil)
		}
		reply.Output = *out
		t.talks.metrics.MalformedCalls.Add(float64(reader.Malformed))
		if t.session != nil {
			t.session.Replied(t.Prompt, *out, reply.Message())
		}
		return visit(p, reply)
	})
}

// named is a call as clients get it: with an id, and its arguments as a string.
func (t *Turn) named(call chat.Call) chat.ToolCall {
	call.Arguments, _ = json.Marshal(string(call.Arguments)) // a text always encodes
	id := fmt.Sprintf("%s_%x_%d", t.talks.calls, t.talks.Host.Model().Opened.UnixNano(), t.talks.numbers.Add(1))
	return chat.ToolCall{ID: id, Type: "function", Function: call}
}
