package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"
)

// Message is one message of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// ChatML is a plain template: every message between <|im_start|>role and <|im_end|>. It is what a new tokenizer made by
// TrainBPE gets when it has these two special tokens, and a sensible choice for a base model that has them too.
const ChatML = `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}` +
	`{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

// findTemplate looks for the chat template where transformers does: chat_template.jinja, chat_template.json, then
// tokenizer_config.json (one string, or a list of named ones of which "default" counts).
func (t *Tokenizer) findTemplate(dir string, inConfig json.RawMessage) error {
	path := filepath.Join(dir, "chat_template.jinja")
	source, err := readFile(path)
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
	return fmt.Errorf("%s: chat_template has %d named templates, but none is called \"default\": write the one to use to chat_template.jinja", path, len(named))
}

func (t *Tokenizer) setTemplate(path, source string) error {
	compiled, err := compile(source)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	compiled.path = path
	t.template = compiled
	return nil
}

// SetTemplate replaces the chat template by Jinja source. It must not be called while the tokenizer is in use.
func (t *Tokenizer) SetTemplate(jinja string) error { return t.setTemplate("chat template", jinja) }

// SetTime fixes the time that templates see (some write the date into the system message), which makes what they render
// reproducible. It must not be called while the tokenizer is in use.
func (t *Tokenizer) SetTime(now time.Time) { t.now = func() time.Time { return now } }

// HasTemplate reports whether there is a chat template.
func (t *Tokenizer) HasTemplate() bool { return t.template != nil }

// Render writes messages in the chat template, as transformers' apply_chat_template(tokenize=False) does. The result is
// for people: contents and markup cannot be told apart in it. Token ids come from a Conversation or EncodeMessages.
func (t *Tokenizer) Render(messages []Message, addGenerationPrompt bool) (string, error) {
	return t.render(messages, addGenerationPrompt, t.now())
}

func (t *Tokenizer) render(messages []Message, addGenerationPrompt bool, now time.Time) (string, error) {
	if t.template == nil {
		return "", fmt.Errorf("%s has no chat template beside it: add a chat_template.jinja, name one in the configuration "+
			"(model.chat_template), or use plain text prompts", t.path)
	}
	variables := map[string]any{
		"messages":              messageValues(messages),
		"add_generation_prompt": addGenerationPrompt,
		"tools":                 nil,
		"documents":             nil,
	}
	for name, content := range t.names {
		variables[name] = content
	}
	return t.template.execute(variables, now)
}

func messageValues(messages []Message) list {
	values := make(list, len(messages))
	for i, m := range messages {
		values[i] = map[string]any{"role": m.Role, "content": m.Content}
	}
	return values
}

// EncodeMessages returns the ids of messages in the chat template: apply_chat_template's, but with the contents of the
// messages as ordinary text. Where the template changes contents (as some do with reasoning in an assistant's message), so
// that they cannot be told from markup, the rendering is encoded as it is, provided that no content holds a special token.
func (t *Tokenizer) EncodeMessages(messages []Message, addGenerationPrompt bool) ([]int32, error) {
	now := t.now()
	parts, err := t.separate(nil, messages, addGenerationPrompt, now)
	if err == nil {
		ids, _, err := t.core.EncodeSegments(segments(parts))
		return ids, err
	}
	text, renderErr := t.render(messages, addGenerationPrompt, now)
	if renderErr != nil {
		return nil, renderErr
	}
	for _, m := range messages {
		ids, encodeErr := t.core.EncodeMarkup(m.Content)
		if encodeErr != nil || slices.ContainsFunc(ids, t.Special) {
			return nil, err
		}
	}
	return t.core.EncodeMarkup(text)
}
