package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
)

// content is a message's text: a string, a list of parts, or null.
type content string

func (c *content) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, (*string)(c)) == nil {
		return nil
	}
	var parts []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	}
	if json.Unmarshal(data, &parts) != nil {
		return serve.Bad("messages", "a content is %.80s, expected a string or a list of parts", data)
	}
	var all strings.Builder
	for _, p := range parts {
		if !slices.Contains([]string{"text", "input_text", "output_text", "refusal"}, p.Type) {
			return serve.Bad("messages", "a content has a part of type %.40q, but the model reads text alone", p.Type)
		}
		all.WriteString(p.Text + p.Refusal)
	}
	*c = content(all.String())
	return nil
}

// message is one of a request or an answer.
type message struct {
	Role       string          `json:"role"`
	Content    *content        `json:"content"`
	Name       string          `json:"name,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
	ToolCalls  []chat.ToolCall `json:"tool_calls,omitempty"`
}

// maxMessages bounds a chat: templates take time that grows faster than their number.
const maxMessages = 4096

var roles = map[string]string{"system": "system", "developer": "system", "user": "user", "assistant": "assistant",
	"tool": "tool"}

// chatMessages are the messages as templates know them. A tool's answer carries the name that it was called by.
func chatMessages(list []message) ([]chat.Message, error) {
	if n := len(list); n == 0 || n > maxMessages {
		return nil, serve.Bad("messages", "there are %d messages, expected 1 to %d", n, maxMessages)
	}
	called := map[string]string{}
	out := make([]chat.Message, len(list))
	for i, m := range list {
		role, ok := roles[m.Role]
		if !ok {
			return nil, serve.Bad("messages", "message %d has the role %.40q, expected system, developer, user, "+
				"assistant or tool", i, m.Role)
		}
		out[i] = chat.Message{Role: role, Name: m.Name, ToolCallID: m.ToolCallID, ToolCalls: m.ToolCalls}
		if m.Content != nil {
			out[i].Content = string(*m.Content)
		}
		for _, call := range m.ToolCalls {
			called[call.ID] = call.Function.Name
		}
		if role == "tool" && out[i].Name == "" {
			out[i].Name = called[m.ToolCallID]
		}
	}
	return out, nil
}

// function is a tool that a request offers.
type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"` // kept in its order
}

// tool is a function as chat completions wrap it, or as responses write it, without a wrap.
type tool struct {
	Type     string    `json:"type"`
	Function *function `json:"function"`
	function
}

func chatTools(list []tool, choice json.RawMessage) ([]chat.Tool, error) {
	var word string
	if len(choice) > 0 && string(choice) != "null" {
		if json.Unmarshal(choice, &word) != nil || word != "auto" && word != "none" {
			return nil, serve.Bad("tool_choice", "tool_choice = %.80s is not supported: a call cannot be forced, "+
				"expected auto or none", choice)
		}
	}
	if word == "none" {
		return nil, nil
	}
	var out []chat.Tool
	for i, t := range list {
		if t.Type != "function" {
			return nil, serve.Bad("tools", "tool %d is of type %.40q, expected function", i, t.Type)
		}
		f := t.Function
		if f == nil {
			f = &t.function
		}
		var schema map[string]any
		if len(f.Parameters) > 0 && json.Unmarshal(f.Parameters, &schema) != nil {
			return nil, serve.Bad("tools", "tool %d has the parameters %.60s, expected a JSON Schema", i, f.Parameters)
		}
		out = append(out, chat.Tool{Name: f.Name, Description: f.Description, Parameters: f.Parameters})
	}
	return out, nil
}

// encode turns a chat into the ids of its prompt.
func (a *API) encode(session Session, messages []chat.Message, tools []chat.Tool) (ids []int32, err error) {
	bytes := 0
	for _, m := range messages {
		bytes += len(m.Content)
	}
	if err := a.host.CheckText(bytes); err != nil {
		return nil, err
	}
	switch {
	case session != nil:
		ids, err = session.Prompt(messages, tools)
	default:
		ids, err = a.host.Tokenizer().EncodeMessages(messages, true, tools...)
	}
	if err != nil && !errors.As(err, new(*serve.Error)) {
		err = serve.Bad("messages", "%v", err)
	}
	return ids, err
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
	t := a.host.Tokenizer()
	text := t.TokenBytes(id)
	bytes := make([]int, len(text))
	for i, b := range text {
		bytes[i] = int(b)
	}
	return alternative{t.Decode([]int32{id}, false), logprob, bytes}
}

// logprobs are those of a part of a reply.
func (a *API) logprobs(p piece) []tokenLogprob {
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

// named gives calls their ids.
func (a *API) named(calls []chat.ToolCall) []chat.ToolCall {
	for i := range calls {
		calls[i].ID = fmt.Sprintf("call_%x_%d", a.host.Model().Opened.UnixNano(), a.numbers.Add(1))
	}
	return calls
}
