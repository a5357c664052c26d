package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"go.starlark.net/starlark"

	"gyre/internal/regular"
	"gyre/orchestrate/model/chat/jinja"
	"gyre/orchestrate/model/chat/replies"
)

// ChatML is a plain template: every message between <|im_start|>role and <|im_end|>. It is what a new tokenizer made by
// bpe.Train gets when it has these two special tokens, and a sensible choice for a base model that has them too.
const ChatML = `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}` +
	`{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

// findTemplate looks for the chat template where transformers does: chat_template.jinja, chat_template.json, then
// tokenizer_config.json (one string, or a list of named ones of which "default" counts).
func (t *Tokenizer) findTemplate(dir string, inConfig json.RawMessage) error {
	path := filepath.Join(dir, "chat_template.jinja")
	source, err := regular.Read(path)
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
	replies  *replies.Template // of the family that it belongs to

	probe      sync.Once // guards dropsTools
	dropsTools bool
}

// SetTemplate replaces the chat template by Jinja source. It must not be called while the tokenizer is in use.
func (t *Tokenizer) SetTemplate(jinja string) error { return t.setTemplate("chat template", jinja) }

func (t *Tokenizer) setTemplate(path, source string) error {
	compiled, err := jinja.Compile(source)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	t.template = &template{path: path, compiled: compiled, replies: replies.Of(source)}
	return nil
}

// HasTemplate reports whether there is a chat template.
func (t *Tokenizer) HasTemplate() bool { return t.template != nil }

// frame is what a template sees beside the messages.
type frame struct {
	tools     []jinja.Value
	variables map[string]jinja.Value
	prompt    bool // the start of a reply follows
	now       time.Time
}

// render writes messages in the chat template, as transformers' apply_chat_template(tokenize=False) does. Contents and
// markup cannot be told apart in the result: token ids come from a Conversation or EncodeMessages.
func (t *Tokenizer) render(messages []jinja.Value, f frame) (string, error) {
	variables := map[string]jinja.Value{
		"messages":              starlark.NewList(messages),
		"add_generation_prompt": starlark.Bool(f.prompt),
		"tools":                 starlark.None,
		"documents":             starlark.None,
	}
	if len(f.tools) > 0 {
		variables["tools"] = starlark.NewList(slices.Clone(f.tools))
	}
	for name, content := range t.names {
		variables[name] = starlark.String(content)
	}
	maps.Copy(variables, f.variables)
	text, err := t.template.compiled.Render(variables, f.now)
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

// values are messages as templates see them. Their texts go through write: of message i its content, or part of it,
// and its fields. lists says which contents are lists of parts.
func (t *Tokenizer) values(messages []Message, lists []bool,
	write func(i int, text string, content bool) string) ([]jinja.Value, error) {
	values := make([]jinja.Value, len(messages))
	for i, m := range messages {
		var calls, content any
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
		if lists[i] {
			texts, parts := m.Parts, starlark.NewList(nil)
			if texts == nil {
				texts = []string{m.Content}
			}
			for _, text := range texts {
				_ = parts.Append(dict("type", "text", "text", write(i, text, true))) // nobody iterates
			}
			content = parts
		} else {
			content = write(i, m.Content, true)
		}
		d := dict("role", m.Role, "content", content, "name", orNil(m.Name), "tool_call_id", orNil(m.ToolCallID),
			"tool_calls", calls)
		if err := t.fields(d, m, func(text string) string { return write(i, text, false) }); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		values[i] = d
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

// EncodeMessages returns the ids of messages in the chat template: apply_chat_template's, but with the contents of the
// messages as ordinary text. The template sees what is offered, if anything is. Where it changes contents (as some do
// with reasoning in an assistant's message), so that they cannot be told from markup, the rendering is encoded as it
// is, provided that no content holds a special token.
func (t *Tokenizer) EncodeMessages(messages []Message, addGenerationPrompt bool, offered ...Offer) ([]int32, error) {
	f := frame{prompt: addGenerationPrompt, now: t.now()}
	for _, offer := range offered {
		if err := t.offer(&f, offer); err != nil {
			return nil, err
		}
	}
	a, err := t.arrange(nil, messages, f)
	if err != nil {
		return nil, err
	}
	parts, err := t.separate(a)
	if err == nil {
		ids, _, err := t.EncodeSegments(segments(parts), false)
		return ids, err
	}
	for _, s := range a.slots {
		ids, encodeErr := t.EncodeMarkup(s.text)
		if encodeErr != nil || slices.ContainsFunc(ids, t.Special) {
			return nil, err
		}
	}
	return t.EncodeMarkup(a.text)
}
