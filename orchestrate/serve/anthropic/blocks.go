package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
)

// block is a part of a message's content.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   content         `json:"content"`
}

var blockKeys = serve.Keys{Ignored: strings.Fields("cache_control citations caller is_error")}

// unsupported are blocks that there are not, with what to do about them.
var unsupported = map[string]string{"image": "the model reads text alone: describe the image",
	"document":          "the model reads text alone: send the document's text",
	"redacted_thinking": "it holds what another model thought: leave it out"}

func (b *block) read(data []byte) error {
	_ = json.Unmarshal(data, &struct{ Type *string }{&b.Type}) // what has no type is of none that is known
	switch b.Type {
	case "text", "thinking", "tool_use", "tool_result":
		if err := blockKeys.Read(data, b); err != nil {
			return fmt.Errorf("a block of type %s: %w", b.Type, err)
		}
	default:
		help, known := unsupported[b.Type]
		if !known {
			help = "expected text, thinking, tool_use or tool_result"
		}
		return fmt.Errorf("a block of type %.60q is not supported: %s", b.Type, help)
	}
	if b.Type == "text" && b.Text == "" {
		return errors.New("a block of type text has no text")
	}
	if strings.HasPrefix(b.Signature, signed) && b.Signature != signatureOf(b.Thinking) {
		return errors.New("the signature of a thinking block does not fit its thinking: send thinking blocks back " +
			"unchanged, or leave them out")
	}
	return nil
}

// each reads the elements of a list.
func each[T any](list *[]T, name string, data []byte, read func(to *T, data []byte) error) error {
	var raw []json.RawMessage
	if json.Unmarshal(data, &raw) != nil {
		return serve.Bad(name, "%s is %.80s, expected a list", name, data)
	}
	*list = make([]T, len(raw))
	for i := range raw {
		if err := read(&(*list)[i], raw[i]); err != nil {
			return serve.Bad(name, "%s.%d: %v", name, i, err)
		}
	}
	return nil
}

// content are blocks, or a text, which is one block.
type content []block

func (c *content) UnmarshalJSON(data []byte) error {
	var text *string
	if json.Unmarshal(data, &text) != nil {
		if data[0] != '[' {
			return serve.Bad("", "content is %.80s, expected a string or a list of blocks", data)
		}
		return each((*[]block)(c), "content", data, (*block).read)
	}
	if *c = nil; text != nil {
		*c = content{{Type: "text", Text: *text}}
	}
	return nil
}

// systemContent is what the system says.
type systemContent struct{ content }

func (s *systemContent) UnmarshalJSON(data []byte) error {
	if err := s.content.UnmarshalJSON(data); err != nil {
		return serve.Bad("system", "system: %v", err)
	}
	return nil
}

// message is a message of a content that is one of texts alone.
func (c content) message(role string) (m chat.Message, err error) {
	var texts []string
	for i, b := range c {
		if b.Type != "text" {
			return m, fmt.Errorf("content.%d is a block of type %s, expected text", i, b.Type)
		}
		texts = append(texts, b.Text)
	}
	return said(role, texts), nil
}

// said is a message of texts.
func said(role string, texts []string) chat.Message {
	m := chat.Message{Role: role, Content: strings.Join(texts, "")}
	if len(texts) > 1 {
		m.Parts = texts
	}
	return m
}

type message struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// conversation are the messages of a request.
type conversation []message

func (c *conversation) UnmarshalJSON(data []byte) error {
	return each((*[]message)(c), "messages", data, func(m *message, data []byte) error {
		return serve.Keys{}.Read(data, m)
	})
}

// chat are the request's messages as templates know them: the system first, a message for each result of a tool. A
// message of a user after another is part of it.
func (q *request) chat() (list []chat.Message, err error) {
	system, err := q.System.message("system")
	if err != nil {
		return nil, serve.Bad("system", "system: %v", err)
	}
	if system.Content != "" {
		list = []chat.Message{system}
	}
	called := map[string]bool{}
	for i, m := range q.Messages {
		var own []chat.Message
		switch m.Role {
		case "assistant":
			own = make([]chat.Message, 1)
			own[0], err = spoken(m.Content, called)
		case "user":
			own, err = heard(m.Content, called)
		case "system":
			own = make([]chat.Message, 1)
			own[0], err = m.Content.message("system")
		default:
			err = fmt.Errorf("the role is %.40q, expected user, assistant or system", m.Role)
		}
		if err != nil {
			return nil, serve.Bad("messages", "messages.%d: %v", i, err)
		}
		if n := len(list) - 1; n >= 0 && list[n].Role == "user" && own[0].Role == "user" {
			list[n] = said("user", []string{list[n].Content + "\n\n" + own[0].Content})
			own = own[1:]
		}
		list = append(list, own...)
	}
	if n := len(q.Messages); n > 0 && q.Messages[n-1].Role == "assistant" {
		return nil, serve.Bad("messages", "the last message is the assistant's, but its beginning cannot be given: end "+
			"with a message of the user")
	}
	return list, nil
}

// spoken is a message of the assistant. The ids of its calls become known.
func spoken(c content, called map[string]bool) (m chat.Message, err error) {
	var texts, thoughts []string
	var calls []chat.ToolCall
	for i, b := range c {
		switch b.Type {
		case "text":
			texts = append(texts, b.Text)
		case "thinking":
			thoughts = append(thoughts, b.Thinking)
		case "tool_use":
			called[b.ID] = true
			calls = append(calls, chat.ToolCall{ID: b.ID, Type: "function",
				Function: chat.Call{Name: b.Name, Arguments: b.Input}})
		default:
			return m, fmt.Errorf("content.%d is a block of type %s, which the assistant does not say", i, b.Type)
		}
	}
	m = said("assistant", texts)
	m.ToolCalls = calls
	if thought := strings.Join(thoughts, ""); thought != "" {
		m.Fields = map[string]json.RawMessage{}
		m.Fields[chat.Reasoning[0]], err = json.Marshal(thought)
	}
	return m, err
}

// heard are a user's texts and the results of tools, in their order.
func heard(c content, called map[string]bool) (list []chat.Message, err error) {
	for from := 0; from < len(c); {
		to, m := from, chat.Message{}
		for to < len(c) && c[to].Type == "text" {
			to++
		}
		switch b := c[from]; {
		case to > from:
			m, err = c[from:to].message("user")
		case b.Type != "tool_result":
			err = fmt.Errorf("a block of type %s, which the user does not say", b.Type)
		case !called[b.ToolUseID]:
			err = fmt.Errorf("the result of the call %.80q, which no message before has", b.ToolUseID)
		default:
			m, err = b.Content.message("tool")
			m.ToolCallID = b.ToolUseID
		}
		if err != nil {
			return nil, fmt.Errorf("content.%d: %w", from, err)
		}
		list, from = append(list, m), max(to, from+1)
	}
	if list == nil {
		return nil, errors.New("the content is empty, expected at least one block")
	}
	return list, nil
}
