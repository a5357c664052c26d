package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// ToolCall is a call of a tool in an assistant's message, as OpenAI's API and transformers write it.
type ToolCall struct {
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"` // function
	Function Call   `json:"function"`
}

// Call names a function. Its arguments are a JSON object, or a string that holds one.
type Call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// values is a call as templates see it. Its texts become part of the markup, so none may hold a special token.
func (c ToolCall) values(t *Tokenizer) (map[string]any, error) {
	if !plainName.MatchString(c.Function.Name) || c.Function.Name == "" || !plainName.MatchString(c.ID) {
		return nil, fmt.Errorf("a tool call has the name %.80q and the id %.80q, expected at most 64 letters, digits, "+
			"'_', '.', ':' and '-'", c.Function.Name, c.ID)
	}
	text := []byte(c.Function.Arguments)
	var inner string
	if json.Unmarshal(text, &inner) == nil {
		text = []byte(inner)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	arguments, err := inOrder(decoder, 0)
	if _, more := decoder.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("more follows the object")
	}
	if _, object := arguments.(*exec.Dict); err == nil && !object {
		err = errors.New("they are no object")
	}
	if err != nil {
		return nil, fmt.Errorf("the arguments of a call of %s: expected a JSON object: %w", c.Function.Name, err)
	}
	if err := t.refuseMarkup(exec.AsValue(arguments)); err != nil {
		return nil, fmt.Errorf("the arguments of a call of %s %w", c.Function.Name, err)
	}
	return map[string]any{"id": c.ID, "type": "function",
		"function": map[string]any{"name": c.Function.Name, "arguments": arguments}}, nil
}

// refuseMarkup sees that no text of a value, and not its JSON, holds a special token of the model.
func (t *Tokenizer) refuseMarkup(v *exec.Value) error {
	w := jsonWriter{item: ", ", key: ": "}
	if err := w.value(v, 0); err != nil {
		return err
	}
	ids, err := t.EncodeMarkup(w.out.String())
	if err != nil {
		return err
	}
	if slices.ContainsFunc(ids, t.Special) || strings.Contains(w.out.String(), sentinelOpen) {
		return errors.New("hold a special token of the model")
	}
	return nil
}

// inOrder decodes the next JSON value; objects keep the order of their members.
func inOrder(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("a value is nested deeper than %d levels", maxDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		object := exec.NewDict()
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := inOrder(d, depth+1)
			if err != nil {
				return nil, err
			}
			object.Pairs = append(object.Pairs, &exec.Pair{Key: exec.AsValue(name), Value: exec.AsValue(value)})
		}
		_, err = d.Token()
		return object, err
	case json.Delim('['):
		array := list{}
		for d.More() {
			value, err := inOrder(d, depth+1)
			if err != nil {
				return nil, err
			}
			array = append(array, value)
		}
		_, err = d.Token()
		return array, err
	}
	if number, ok := token.(json.Number); ok {
		if whole, err := number.Int64(); err == nil {
			return int(whole), nil
		}
		return number.Float64()
	}
	return token, nil
}
