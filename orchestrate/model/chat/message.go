package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.starlark.net/starlark"

	"gyre/internal/nearest"
	"gyre/orchestrate/model/chat/jinja"
)

// Message is one message of a chat. Name and ToolCallID become part of the markup: they are names, not text (see
// CheckNames).
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	// Parts are the texts of a content that was given as a list, of which Content holds all; nil: it was a string.
	Parts      []string `json:"parts,omitempty"`
	Name       string   `json:"name,omitempty"`         // of the tool that speaks
	ToolCallID string   `json:"tool_call_id,omitempty"` // of the call that a tool answers
	// ToolCalls are those of an assistant's message, which become part of the markup too.
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	// Fields are all others by name: what the assistant thought, and what else a template reads of messages.
	Fields map[string]json.RawMessage `json:"fields,omitempty"`
}

// Reasoning are the names of a field with what the assistant thought, those that count first before others.
var Reasoning = []string{"reasoning_content", "thinking", "reasoning"}

// unsupported are fields that OpenAI defines, with what to do about them.
var unsupported = map[string]string{"audio": "the model reads text alone", "function_call": "use tool_calls"}

// ReadMessages reads a list of messages as OpenAI's API and transformers write them.
func ReadMessages(data []byte) ([]Message, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("expected a list of messages, got %.80s", data)
	}
	list := make([]Message, len(raw))
	for i := range raw {
		if err := list[i].UnmarshalJSON(raw[i]); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	return list, nil
}

// ForTemplates are messages of OpenAI's API as templates know them: a developer speaks as the system, and a tool's
// answer carries the name that it was called by.
func ForTemplates(list []Message) []Message {
	called := map[string]string{}
	out := slices.Clone(list)
	for i := range out {
		m := &out[i]
		for _, call := range m.ToolCalls {
			called[call.ID] = call.Function.Name
		}
		switch {
		case m.Role == "developer":
			m.Role = "system"
		case m.Role == "tool" && m.Name == "":
			m.Name = called[m.ToolCallID]
		}
	}
	return out
}

// UnmarshalJSON reads one message.
func (m *Message) UnmarshalJSON(data []byte) error {
	var all map[string]json.RawMessage
	if json.Unmarshal(data, &all) != nil || all == nil {
		return fmt.Errorf(`expected {"role": …, "content": …}, got %.80s`, data)
	}
	return m.Read(all)
}

// Read takes a message from its fields.
func (m *Message) Read(all map[string]json.RawMessage) error {
	*m = Message{}
	var refusal string
	for _, known := range []struct {
		name     string
		into     any
		expected string
	}{{"role", &m.Role, "a string"}, {"name", &m.Name, "a string"}, {"tool_call_id", &m.ToolCallID, "a string"},
		{"tool_calls", &m.ToolCalls, "a list of calls"}, {"refusal", &refusal, "a string"}} {
		if raw, ok := all[known.name]; ok && json.Unmarshal(raw, known.into) != nil {
			return fmt.Errorf("%s is %.80s, expected %s", known.name, raw, known.expected)
		}
		delete(all, known.name)
	}
	if raw, ok := all["content"]; ok && json.Unmarshal(raw, &m.Content) != nil {
		var err error
		if m.Parts, err = readParts(raw); err != nil {
			return err
		}
		m.Content = strings.Join(m.Parts, "")
	}
	if m.Content == "" {
		m.Content = refusal
	}
	delete(all, "content")
	delete(all, "annotations") // of the model's own texts: where they come from
	for name, instead := range unsupported {
		if raw, ok := all[name]; ok && string(raw) != "null" {
			return fmt.Errorf("%s is not supported: %s", name, instead)
		}
		delete(all, name)
	}
	if len(all) > 0 {
		m.Fields = all
	}
	return nil
}

// readParts are the texts of a content that is a list.
func readParts(data []byte) ([]string, error) {
	var parts []map[string]json.RawMessage
	if json.Unmarshal(data, &parts) != nil {
		return nil, fmt.Errorf("a content is %.80s, expected a string or a list of parts", data)
	}
	known := []string{"type", "text", "refusal", "annotations", "logprobs"}
	texts := make([]string, len(parts))
	for i, p := range parts {
		var kind string
		_ = json.Unmarshal(p["type"], &kind) // what is no text is no kind either
		of := map[string]string{"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}[kind]
		if of == "" {
			return nil, fmt.Errorf("a content has a part of type %.40q, but the model reads text alone", kind)
		}
		for _, name := range slices.Sorted(maps.Keys(p)) {
			if !slices.Contains(known, name) && string(p[name]) != "null" {
				return nil, fmt.Errorf("a part of type %s has the key %.80q, which no API defines%s", kind, name,
					nearest.Hint(name, known))
			}
		}
		if raw := p[of]; raw == nil || json.Unmarshal(raw, &texts[i]) != nil {
			return nil, fmt.Errorf("a part of type %s has %s = %.80s, expected a string", kind, of, raw)
		}
	}
	return texts, nil
}

// texts are those that a template may write as they are.
func (m Message) texts() []string {
	list := []string{m.Content}
	for _, raw := range m.Fields {
		var text string
		if json.Unmarshal(raw, &text) == nil {
			list = append(list, text)
		}
	}
	return list
}

// reads tells whether the template may read a field of messages.
func (t *template) reads(name string) bool {
	_, found := slices.BinarySearch(t.compiled.Attributes, name)
	return found
}

// aliased are the fields with what the assistant thought under the names that transformers adds.
func (m Message) aliased() map[string]json.RawMessage {
	given := func(name string) bool { return m.Fields[name] != nil && string(m.Fields[name]) != "null" }
	at := slices.IndexFunc(Reasoning, given)
	if at < 0 {
		return m.Fields
	}
	all, thought := maps.Clone(m.Fields), m.Fields[Reasoning[at]]
	if all["reasoning_content"] = thought; all["thinking"] == nil {
		all["thinking"] = thought
	}
	return all
}

// fields adds to a message's values the fields that the template reads, and refuses those that nobody knows. Texts go
// through write, what else there is becomes part of the markup.
func (t *Tokenizer) fields(to *starlark.Dict, m Message, write func(text string) string) error {
	all := m.aliased()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		raw, thought := all[name], slices.Contains(Reasoning, name)
		if !t.template.reads(name) {
			if thought || string(raw) == "null" {
				continue
			}
			known := slices.Concat([]string{"role", "content", "name", "tool_calls", "tool_call_id"}, Reasoning,
				t.template.compiled.Attributes)
			return fmt.Errorf("there is no key %.80q%s: neither OpenAI's API nor the chat template knows it", name,
				nearest.Hint(name, known))
		}
		v, err := jinja.FromJSON(raw)
		text, isText := v.(starlark.String)
		switch {
		case err != nil:
		case isText:
			v = starlark.String(write(string(text)))
		case thought && v != starlark.None:
			err = errors.New("expected a string")
		default:
			err = t.refuseMarkup(v)
		}
		if err != nil {
			return fmt.Errorf("%s = %.80s: %w", name, raw, err)
		}
		_ = to.SetKey(starlark.String(name), v) // nobody iterates
	}
	return nil
}
