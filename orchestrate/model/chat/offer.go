package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.starlark.net/starlark"

	"gyre/internal/nearest"
	"gyre/orchestrate/model/chat/jinja"
)

// Offer is what a template sees beside the messages: the policy's tools, and variables of its own such as
// enable_thinking.
type Offer struct {
	Tools     []Tool
	Variables map[string]json.RawMessage
}

// Tool is a function that templates which know tools offer to the policy.
type Tool struct {
	Name, Description string
	// Parameters are the JSON Schema of the arguments: nil, a json.RawMessage, whose order templates keep, or what
	// json.Marshal takes.
	Parameters any
	// Given is the function as a client wrote it, with all keys in their order, which templates see then.
	Given json.RawMessage
}

// ReadTools reads a list of tools: functions as chat completions wrap them, or as responses write them, without a wrap.
func ReadTools(data []byte) ([]Tool, error) {
	var list []struct {
		Type     string          `json:"type"`
		Function json.RawMessage `json:"function"`
	}
	var bare []json.RawMessage
	if len(data) == 0 {
		return nil, nil
	}
	if json.Unmarshal(data, &list) != nil || json.Unmarshal(data, &bare) != nil {
		return nil, fmt.Errorf("expected a list of tools, got %.80s", data)
	}
	var tools []Tool
	for i, wrap := range list {
		if wrap.Type != "function" {
			return nil, fmt.Errorf("tool %d is of type %.40q, expected function", i, wrap.Type)
		}
		tool := Tool{Given: wrap.Function}
		written := wrap.Function
		if written == nil {
			written = bare[i]
		}
		var f struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		}
		if json.Unmarshal(written, &f) != nil {
			return nil, fmt.Errorf("tool %d is %.80s, expected a name, a description and parameters", i, written)
		}
		var schema map[string]any
		if len(f.Parameters) > 0 && json.Unmarshal(f.Parameters, &schema) != nil {
			return nil, fmt.Errorf("tool %d has the parameters %.60s, expected a JSON Schema", i, f.Parameters)
		}
		tool.Name, tool.Description, tool.Parameters = f.Name, f.Description, f.Parameters
		tools = append(tools, tool)
	}
	return tools, nil
}

// VariableError says what is wrong with a variable of an offer.
type VariableError struct{ error }

// framed are variables that Gyre itself gives to templates.
var framed = []string{"messages", "tools", "add_generation_prompt"}

// offer puts tools and variables into a frame. As in transformers a variable that the template does not read changes
// nothing, but one that looks like a slip is refused. Their texts become part of the markup, so none may hold a special
// token.
func (t *Tokenizer) offer(f *frame, o Offer) (err error) {
	if f.tools, err = t.toolValues(o.Tools); err != nil {
		return err
	}
	f.variables = map[string]jinja.Value{}
	for _, name := range slices.Sorted(maps.Keys(o.Variables)) {
		if t.template == nil {
			return t.noTemplate()
		}
		if slices.Contains(framed, name) {
			return VariableError{fmt.Errorf("the chat template's variable %s is not for requests to give", name)}
		}
		if !t.ReadsVariable(name) {
			if near := nearest.Hint(name, t.template.compiled.Variables); near != "" {
				return VariableError{fmt.Errorf("the chat template has no variable %.80q%s", name, near)}
			}
			continue // clients say enable_thinking to all models
		}
		v, err := jinja.FromJSON(o.Variables[name])
		if err == nil {
			err = t.refuseMarkup(v)
		}
		if err != nil {
			return VariableError{fmt.Errorf("the chat template's variable %s = %.80s: %w", name, o.Variables[name], err)}
		}
		f.variables[name] = v
	}
	return nil
}

// ReadsVariable tells whether the chat template may read a variable.
func (t *Tokenizer) ReadsVariable(name string) bool {
	if t.template == nil {
		return false
	}
	_, found := slices.BinarySearch(t.template.compiled.Variables, name)
	return found
}

// toolValues are tools as templates see them. Their texts become part of the markup, so none may hold a special token.
func (t *Tokenizer) toolValues(tools []Tool) ([]jinja.Value, error) {
	values := make([]jinja.Value, len(tools))
	for i, tool := range tools {
		if !plainName.MatchString(tool.Name) || tool.Name == "" {
			return nil, fmt.Errorf("tool %d is called %.80q, expected 1 to 64 letters, digits, '_', '.', ':' and '-'",
				i, tool.Name)
		}
		function, err := tool.function()
		if err != nil {
			return nil, fmt.Errorf("tool %s: its parameters: %w", tool.Name, err)
		}
		if err := t.refuseMarkup(function); err != nil {
			return nil, fmt.Errorf("tool %s: its description or parameters %w", tool.Name, err)
		}
		values[i] = dict("type", "function", "function", function)
	}
	return values, nil
}

// function is a tool as templates see it; there are always parameters.
func (tool Tool) function() (*starlark.Dict, error) {
	parameters, err := tool.parameters()
	if err != nil {
		return nil, err
	}
	if tool.Given == nil {
		return dict("name", tool.Name, "description", tool.Description, "parameters", parameters), nil
	}
	v, err := jinja.FromJSON(tool.Given)
	given, isObject := v.(*starlark.Dict)
	if err == nil && !isObject {
		err = errors.New("expected an object")
	}
	if err != nil {
		return nil, err
	}
	if _, found, _ := given.Get(starlark.String("parameters")); !found {
		_ = given.SetKey(starlark.String("parameters"), parameters) // nobody iterates
	}
	return given, nil
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
