package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"

	"gyre/orchestrate/model/chat/jinja"
	"gyre/orchestrate/model/chat/replies"
)

// ToolCall is a call of a tool in an assistant's message, as OpenAI's API and transformers write it.
type ToolCall struct {
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"` // function
	Function Call   `json:"function"`
}

// Call names a function. Its arguments are a JSON object, or a string that holds one.
type Call = replies.Call

// values is a call as templates see it. Its texts become part of the markup, so none may hold a special token.
func (c ToolCall) values(t *Tokenizer) (jinja.Value, error) {
	if !plainName.MatchString(c.Function.Name) || c.Function.Name == "" || !plainName.MatchString(c.ID) {
		return nil, fmt.Errorf("a tool call has the name %.80q and the id %.80q, expected at most 64 letters, digits, "+
			"'_', '.', ':' and '-'", c.Function.Name, c.ID)
	}
	text := []byte(c.Function.Arguments)
	var inner string
	if json.Unmarshal(text, &inner) == nil {
		text = []byte(inner)
	}
	if text = bytes.TrimSpace(text); len(text) == 0 || string(text) == "null" {
		text = []byte("{}")
	}
	arguments, err := jinja.FromJSON(text)
	if _, object := arguments.(*starlark.Dict); err == nil && !object {
		err = errors.New("they are no object")
	}
	if err != nil {
		return nil, fmt.Errorf("the arguments of a call of %s: expected a JSON object: %w", c.Function.Name, err)
	}
	if err := t.refuseMarkup(arguments); err != nil {
		return nil, fmt.Errorf("the arguments of a call of %s %w", c.Function.Name, err)
	}
	return dict("id", orNil(c.ID), "type", "function", "function", dict("name", c.Function.Name, "arguments", arguments)), nil
}

// refuseMarkup sees that no text of a value, and not its JSON, holds a special token of the model.
func (t *Tokenizer) refuseMarkup(v jinja.Value) error {
	text, err := jinja.JSON(v)
	if err != nil {
		return err
	}
	ids, err := t.EncodeMarkup(text)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(ids, t.Special) || strings.Contains(text, sentinelOpen) {
		return errors.New("hold a special token of the model")
	}
	return nil
}

// ShowsTools reports whether the chat template writes the tools that it is given: one that does not takes no notice.
func (t *Tokenizer) ShowsTools() bool {
	if t.template == nil {
		return false
	}
	t.template.probe.Do(func() {
		const name = "a_tool_that_is_offered"
		tools, err := t.toolValues([]Tool{{Name: name}})
		if err != nil {
			return
		}
		asked := []Message{{Role: "user", Content: "x"}}
		shown, err := t.arrange(nil, asked, frame{tools: tools, prompt: true, now: t.now()})
		t.template.dropsTools = err == nil && !strings.Contains(shown.text, name)
	})
	return !t.template.dropsTools
}
