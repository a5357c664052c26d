package openai

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gyre/internal/nearest"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
)

// responseInput is a text, or a list of messages, what was thought, calls and their results.
type responseInput []chat.Message

func (in *responseInput) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*in = responseInput{{Role: "user", Content: text}}
		return nil
	}
	if data[0] != '[' {
		return serve.Bad("input", "input is %.80s, expected a string or a list of items", data)
	}
	var items []map[string]json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		return serve.Bad("input", "input: %v", err)
	}
	for i, item := range items {
		if err := in.add(item); err != nil {
			return serve.Bad("input", "item %d of input: %v", i, err)
		}
	}
	return nil
}

// add takes an item in. What the assistant thought, said and called one after another is one message.
func (in *responseInput) add(item map[string]json.RawMessage) (err error) {
	var kind string
	_ = json.Unmarshal(item["type"], &kind) // what is no text is no kind that is known
	for _, name := range []string{"type", "id", "status", "phase"} {
		delete(item, name)
	}
	var m chat.Message
	switch kind {
	case "", "message":
		err = m.Read(item)
	case "reasoning":
		m.Role = "assistant"
		if m.Fields, err = thoughtOf(item); err == nil && m.Fields == nil {
			return nil
		}
	case "function_call", "function_call_output":
		m, err = callItem(kind, item)
	default:
		return fmt.Errorf("it is of type %.40q, expected message, reasoning, function_call or function_call_output",
			kind)
	}
	n := len(*in) - 1
	if err != nil || n < 0 || m.Role != "assistant" || (*in)[n].Role != "assistant" || kind == "reasoning" {
		*in = append(*in, m)
		return err
	}
	switch before := &(*in)[n]; {
	case len(m.ToolCalls) > 0:
		before.ToolCalls = append(before.ToolCalls, m.ToolCalls...)
	case before.Content == "" && before.ToolCalls == nil && before.Fields != nil: // it is what was thought
		before.Content, before.Parts = m.Content, m.Parts
		maps.Copy(before.Fields, m.Fields)
	default:
		*in = append(*in, m)
	}
	return nil
}

// callItem is a call, or what one came to, as a message.
func callItem(kind string, item map[string]json.RawMessage) (m chat.Message, err error) {
	said := map[string]string{"function_call": "arguments", "function_call_output": "output"}[kind]
	known := []string{"call_id", "name", said}
	for _, key := range slices.Sorted(maps.Keys(item)) {
		if !slices.Contains(known, key) && string(item[key]) != "null" {
			return m, fmt.Errorf("there is no key %.80q of a %s%s", key, kind, nearest.Hint(key, known))
		}
	}
	var id, name string
	if json.Unmarshal(item["call_id"], &id) != nil || item["name"] != nil && json.Unmarshal(item["name"], &name) != nil {
		return m, fmt.Errorf("expected strings for call_id and name of a %s, got %.80s and %.80s", kind, item["call_id"],
			item["name"])
	}
	if kind == "function_call" {
		return chat.Message{Role: "assistant", ToolCalls: []chat.ToolCall{{ID: id,
			Function: chat.Call{Name: name, Arguments: item[said]}}}}, nil
	}
	err = m.Read(map[string]json.RawMessage{"content": item[said]})
	m.Role, m.ToolCallID, m.Name = "tool", id, name
	return m, err
}

// thoughtOf is the text of a reasoning item as a field: all of it, or else its summary; nil where neither was given.
func thoughtOf(item map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	type texts []struct{ Text string }
	var whole, summary texts
	for name, into := range map[string]*texts{"content": &whole, "summary": &summary} {
		if raw, ok := item[name]; ok && json.Unmarshal(raw, into) != nil {
			return nil, fmt.Errorf("the %s of a reasoning is %.80s, expected a list of texts", name, raw)
		}
	}
	if len(whole) == 0 {
		whole = summary
	}
	var lines []string
	for _, part := range whole {
		lines = append(lines, part.Text)
	}
	if lines == nil {
		return nil, nil
	}
	text, err := json.Marshal(strings.Join(lines, "\n"))
	return map[string]json.RawMessage{chat.Reasoning[0]: text}, err
}
