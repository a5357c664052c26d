package openai

import (
	"encoding/json"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/talk"
)

// message is one of an answer.
type message struct {
	Role      string          `json:"role"`
	Content   *string         `json:"content"`
	Reasoning string          `json:"reasoning_content,omitempty"`
	ToolCalls []chat.ToolCall `json:"tool_calls,omitempty"`
}

// messages are those of a request.
type messages []chat.Message

func (m *messages) UnmarshalJSON(data []byte) (err error) {
	if *m, err = chat.ReadMessages(data); err != nil {
		return serve.Bad("messages", "%v", err)
	}
	return nil
}

// offer is what a request gives the template beside messages.
func offer(q *chatRequest) (o chat.Offer, err error) {
	var word string
	if choice := q.ToolChoice; len(choice) > 0 && string(choice) != "null" {
		if json.Unmarshal(choice, &word) != nil || word != "auto" && word != "none" {
			return o, serve.Bad("tool_choice", "tool_choice = %.80s is not supported: a call cannot be forced, "+
				"expected auto or none", choice)
		}
	}
	if o.Variables = q.TemplateVariables; word == "none" {
		return o, nil
	}
	if o.Tools, err = chat.ReadTools(q.Tools); err != nil {
		err = serve.Bad("tools", "%v", err)
	}
	return o, err
}

// alternative is a token with its log-prob.
type alternative struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// tokenLogprob is a token that was drawn, and what could have been.
type tokenLogprob struct {
	alternative
	Top []alternative `json:"top_logprobs"`
}

func (a *API) alternative(id int32, logprob float32) alternative {
	t := a.talks.Host.Tokenizer()
	text := t.TokenBytes(id)
	bytes := make([]int, len(text))
	for i, b := range text {
		bytes[i] = int(b)
	}
	return alternative{t.Decode([]int32{id}, false), logprob, bytes}
}

// logprobs are those of a part of a reply.
func (a *API) logprobs(p talk.Piece) []tokenLogprob {
	out := make([]tokenLogprob, len(p.Tokens))
	for i, id := range p.Tokens {
		out[i] = tokenLogprob{a.alternative(id, p.Logprobs[i]), []alternative{}}
		if p.Alternatives != nil {
			for _, other := range p.Alternatives[i] {
				out[i].Top = append(out[i].Top, a.alternative(other.Token, other.Logprob))
			}
		}
	}
	return out
}
