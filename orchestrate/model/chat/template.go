package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"go.starlark.net/starlark"

	"gyre/orchestrate/model/chat/jinja"
)

// Message is one message of a chat. Name and ToolCallID become part of the markup: they are names, not text (see
// CheckNames).
type Message struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	Name       string `json:"name,omitempty"`         // of the tool that speaks
	ToolCallID string `json:"tool_call_id,omitempty"` // of the call that a tool answers
	// ToolCalls are those of an assistant's message, which become part of the markup too.
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
}

// Tool is a function that templates which know tools offer to the policy.
type Tool struct {
	Name, Description string
	// Parameters are the JSON Schema of the arguments: nil, a json.RawMessage, whose order templates keep, or what
	// json.Marshal takes.
	Parameters any
}

// ChatML is a plain template: every message between <|im_start|>role and <|im_end|>. It is what a new tokenizer made by
// bpe.Train gets when it has these two special tokens, and a sensible choice for a base model that has them too.
const ChatML = `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}` +
	`{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

// findTemplate looks for the chat template where transformers does: chat_template.jinja, chat_template.json, then
// tokenizer_config.json (one string, or a list of named ones of which "default" counts).
func (t *Tokenizer) findTemplate(dir string, inConfig json.RawMessage) error {
	path := filepath.Join(dir, "chat_template.jinja")
	source, err := os.ReadFile(path)
	if err == nil {
		return t.setTemplate(path, string(source))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var file struct {
		ChatTemplate json.RawMessage `json:"chat_template"`
	}
	name := "chat_template.json"
	if found, err := readJSON(dir, name, &file); err != nil {
		return err
	} else if !found {
		name, file.ChatTemplate = "tokenizer_config.json", inConfig
	}
	path = filepath.Join(dir, name)
	if len(file.ChatTemplate) == 0 || string(file.ChatTemplate) == "null" {
		return nil
	}
	var text string
	if json.Unmarshal(file.ChatTemplate, &text) == nil {
		return t.setTemplate(path, text)
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(file.ChatTemplate, &named); err != nil {
		return fmt.Errorf("%s: chat_template: expected a string or a list of {name, template}: %w", path, err)
	}
	for _, n := range named {
		if n.Name == "default" || len(named) == 1 {
			return t.setTemplate(path, n.Template)
		}
	}
	return fmt.Errorf("%s: chat_template has %d named templates, but none is called \"default\": write the one to "+
		"use to chat_template.jinja", path, len(named))
}

// template is a chat template; path names it in messages.
type template struct {
	path     string
	compiled *jinja.Template
}

// SetTemplate replaces the chat template by Jinja source. It must not be called while the tokenizer is in use.
func (t *Tokenizer) SetTemplate(jinja string) error { return t.setTemplate("chat template", jinja) }

func (t *Tokenizer) setTemplate(path, source string) error {
	compiled, err := jinja.Compile(source)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	t.template = &template{path, compiled}
	return nil
}

// HasTemplate reports whether there is a chat template.
func (t *Tokenizer) HasTemplate() bool { return t.template != nil }

// render writes messages in the chat template, as transformers' apply_chat_template(tokenize=False) does. Contents and
// markup cannot be told apart in the result: token ids come from a Conversation or EncodeMessages.
func (t *Tokenizer) render(messages []Message, tools []jinja.Value, addGenerationPrompt bool,
	now time.Time) (string, error) {
	if t.template == nil {
		return "", fmt.Errorf("%s has no chat template beside it: add a chat_template.jinja, name one in the "+
			"configuration "+"(model.chat_template), or use plain text prompts", t.path)
	}
	values, err := t.messageValues(messages)
	if err != nil {
		return "", err
	}
	variables := map[string]jinja.Value{
		"messages":              starlark.NewList(values),
		"add_generation_prompt": starlark.Bool(addGenerationPrompt),
		"tools":                 starlark.None,
		"documents":             starlark.None,
	}
	if len(tools) > 0 {
		variables["tools"] = starlark.NewList(slices.Clone(tools))
	}
	for name, content := range t.names {
		variables[name] = starlark.String(content)
	}
	text, err := t.template.compiled.Render(variables, now)
	if err != nil {
		return "", fmt.Errorf("%s: %w", t.template.path, err)
	}
	return text, nil
}

// dict makes a dictionary of names and values, without those that are nil.
func dict(pairs ...any) *starlark.Dict {
	d := starlark.NewDict(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		var v jinja.Value
		switch given := pairs[i+1].(type) {
		case string:
			v = starlark.String(given)
		case jinja.Value:
			v = given
		default:
			continue
		}
		_ = d.SetKey(starlark.String(pairs[i].(string)), v) // a string is a key, and nobody iterates
	}
	return d
}

// orNil is a text that may be missing.
func orNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func (t *Tokenizer) messageValues(messages []Message) ([]jinja.Value, error) {
	values := make([]jinja.Value, len(messages))
	for i, m := range messages {
		var calls any
		if len(m.ToolCalls) > 0 {
			list := starlark.NewList(nil)
			for _, call := range m.ToolCalls {
				v, err := call.values(t)
				if err != nil {
					return nil, fmt.Errorf("message %d: %w", i, err)
				}
				_ = list.Append(v) // nobody iterates
			}
			calls = list
		}
		values[i] = dict("role", m.Role, "content", m.Content, "name", orNil(m.Name), "tool_call_id",
			orNil(m.ToolCallID), "tool_calls", calls)
	}
	return values, nil
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{0,64}$`)

// CheckNames refuses names that are more than names: templates write them into the markup, where an environment's text
// must not get.
func CheckNames(messages []Message) error {
	for i, m := range messages {
		for what, text := range map[string]string{"role": m.Role, "name": m.Name, "tool_call_id": m.ToolCallID} {
			if !plainName.MatchString(text) {
				return fmt.Errorf("message %d has the %s %.80q, expected at most 64 letters, digits, '_', '.', ':' "+
					"and '-'", i, what, text)
			}
		}
	}
	return nil
}

// toolValues are tools as templates see them. Their texts become part of the markup, so none may hold a special token.
func (t *Tokenizer) toolValues(tools []Tool) ([]jinja.Value, error) {
	values := make([]jinja.Value, len(tools))
	for i, tool := range tools {
		if !plainName.MatchString(tool.Name) || tool.Name == "" {
			return nil, fmt.Errorf("tool %d is called %.80q, expected 1 to 64 letters, digits, '_', '.', ':' and '-'",
				i, tool.Name)
		}
		parameters, err := tool.parameters()
		if err != nil {
			return nil, fmt.Errorf("tool %s: its parameters: %w", tool.Name, err)
		}
		function := dict("name", tool.Name, "description", tool.Description, "parameters", parameters)
		if err := t.refuseMarkup(function); err != nil {
			return nil, fmt.Errorf("tool %s: its description or parameters %w", tool.Name, err)
		}
		values[i] = dict("type", "function", "function", function)
	}
	return values, nil
}

// schemaKeys are the keys of a JSON Schema in the order in which people write them.
var schemaKeys = []string{"type", "name", "description", "properties", "required"}

// parameters are the schema in its order. A Go map has none: it gets the usual one.
func (tool Tool) parameters() (jinja.Value, error) {
	text, ordered := tool.Parameters.(json.RawMessage)
	if !ordered {
		var err error
		if text, err = json.Marshal(tool.Parameters); err != nil {
			return nil, err
		}
	}
	if len(text) == 0 || string(text) == "null" {
		return dict("type", "object", "properties", starlark.NewDict(0)), nil
	}
	v, err := jinja.FromJSON(text)
	if err == nil && !ordered {
		v = usual(v)
	}
	return v, err
}

// usual puts the keys of dictionaries into the order of schemaKeys, and then of the alphabet.
func usual(v jinja.Value) jinja.Value {
	switch v := v.(type) {
	case *starlark.Dict:
		place := func(pair starlark.Tuple) int {
			if i := slices.Index(schemaKeys, string(pair[0].(starlark.String))); i >= 0 {
				return i
			}
			return len(schemaKeys)
		}
		pairs := v.Items()
		slices.SortStableFunc(pairs, func(a, b starlark.Tuple) int { return place(a) - place(b) })
		var all []any
		for _, pair := range pairs {
			all = append(all, string(pair[0].(starlark.String)), usual(pair[1]))
		}
		return dict(all...)
	case *starlark.List:
		for i := range v.Len() {
			_ = v.SetIndex(i, usual(v.Index(i))) // nobody iterates
		}
	}
	return v
}

// EncodeMessages returns the ids of messages in the chat template: apply_chat_template's, but with the contents of the
// messages as ordinary text. The template sees the tools that the policy is offered, if any. Where it changes contents
// (as some do with reasoning in an assistant's message), so that they cannot be told from markup, the rendering is
// encoded as it is, provided that no content holds a special token.
func (t *Tokenizer) EncodeMessages(messages []Message, addGenerationPrompt bool, offered ...Tool) ([]int32, error) {
	now := t.now()
	tools, err := t.toolValues(offered)
	if err != nil {
		return nil, err
	}
	parts, err := t.separate(nil, messages, tools, addGenerationPrompt, now)
	if err == nil {
		ids, _, err := t.EncodeSegments(segments(parts), false)
		return ids, err
	}
	text, renderErr := t.render(messages, tools, addGenerationPrompt, now)
	if renderErr != nil {
		return nil, renderErr
	}
	for _, m := range messages {
		ids, encodeErr := t.EncodeMarkup(m.Content)
		if encodeErr != nil || slices.ContainsFunc(ids, t.Special) {
			return nil, err
		}
	}
	return t.EncodeMarkup(text)
}
