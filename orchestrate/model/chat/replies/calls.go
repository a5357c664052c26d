package replies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Call names a function. Its arguments are a JSON object, or a string that holds one.
type Call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// String is the call as JSON.
func (c Call) String() string {
	return fmt.Sprintf(`{"name": %s, "arguments": %s}`, quote(c.Name), c.Arguments)
}

// Tool is one that the policy was offered; Parameters are the JSON Schema of its arguments.
type Tool struct {
	Name       string
	Parameters json.RawMessage
}

// schema is what typing needs of a JSON Schema.
type schema struct {
	Type       any               `json:"type"`
	AnyOf      []schema          `json:"anyOf"`
	OneOf      []schema          `json:"oneOf"`
	Nullable   bool              `json:"nullable"`
	Properties map[string]schema `json:"properties"`
}

// types are those that a value may have, in the order in which they are declared.
func (s schema) types() (list []string) {
	switch declared := s.Type.(type) {
	case string:
		list = []string{declared}
	case []any:
		for _, one := range declared {
			if name, ok := one.(string); ok {
				list = append(list, name)
			}
		}
	}
	for _, choice := range slices.Concat(s.AnyOf, s.OneOf) {
		list = append(list, choice.types()...)
	}
	if s.Nullable {
		list = append(list, "null")
	}
	return list
}

// offered are tools by name.
type offered map[string]schema

func offer(tools []Tool) offered {
	o := offered{}
	for _, tool := range tools {
		var s schema
		_ = json.Unmarshal(tool.Parameters, &s) // what cannot be read types nothing
		o[tool.Name] = s
	}
	return o
}

// calls are those of a region's value: one, or a list.
func (o offered) calls(value json.RawMessage) ([]Call, error) {
	var items []json.RawMessage
	if json.Unmarshal(value, &items) != nil {
		items = []json.RawMessage{value}
	}
	var list []Call
	for _, item := range items {
		call, err := o.call(item)
		if err != nil {
			return nil, err
		}
		list = append(list, call)
	}
	if list == nil {
		return nil, errors.New("there is no call")
	}
	return list, nil
}

// call reads {"name": …, "arguments" or "parameters": {…}}, perhaps in a "function". A tool that was offered may be
// called without arguments.
func (o offered) call(value json.RawMessage) (call Call, err error) {
	written, err := readObject(value)
	if err != nil {
		return call, err
	}
	if inner := written.get("function"); inner != nil {
		if function, err := readObject(inner); err == nil {
			written = function
		}
	}
	if json.Unmarshal(written.get("name"), &call.Name) != nil || call.Name == "" {
		return call, errors.New("a call has no name")
	}
	arguments := written.get("arguments")
	if arguments == nil {
		arguments = written.get("parameters")
	}
	var inner string
	if json.Unmarshal(arguments, &inner) == nil {
		arguments = json.RawMessage(inner) // some write the object as a string
	}
	if _, known := o[call.Name]; known && (len(bytes.TrimSpace(arguments)) == 0 || string(arguments) == "null") {
		arguments = json.RawMessage("{}")
	}
	if !json.Valid(arguments) {
		return call, fmt.Errorf("the arguments of %s are no JSON", call.Name)
	}
	call.Arguments, err = o[call.Name].typed(bytes.TrimSpace(arguments))
	return call, err
}

// typed gives texts among the arguments the types that the schema declares. What has them stays as it is written.
func (s schema) typed(arguments json.RawMessage) (json.RawMessage, error) {
	all, err := readObject(arguments)
	if err != nil {
		return nil, err
	}
	changed := false
	for i, m := range all {
		declared, known := s.Properties[m.key]
		types := declared.types()
		if !known || len(types) == 0 {
			continue
		}
		value := m.value
		var items []json.RawMessage
		if !slices.Contains(types, "array") && json.Unmarshal(value, &items) == nil && items != nil { // of several tags
			var list []string
			for _, item := range items {
				list = append(list, string(fit(item, types)))
			}
			value = listOf(list)
		} else {
			value = fit(value, types)
		}
		changed = changed || !bytes.Equal(value, m.value)
		all[i].value = value
	}
	if !changed {
		return arguments, nil
	}
	return all.text(), nil
}

// fit gives a text the first of the types that it can have; any other value stays.
func fit(value json.RawMessage, types []string) json.RawMessage {
	var text string
	if len(value) == 0 || value[0] != '"' || json.Unmarshal(value, &text) != nil {
		return value
	}
	for _, name := range types {
		if found := as(name, text); found != "" {
			return json.RawMessage(found)
		}
	}
	return value
}

// as writes a text as a value of a type; "" where it is none.
func as(name, text string) string {
	bare := strings.TrimSpace(text)
	number, err := strconv.ParseFloat(bare, 64)
	isNumber := err == nil && !math.IsNaN(number) && !math.IsInf(number, 0) && !strings.ContainsAny(bare, "xX_")
	switch name {
	case "integer":
		if n, ok := new(big.Int).SetString(bare, 10); ok {
			return n.String()
		}
		if isNumber && number == math.Trunc(number) {
			return strconv.FormatFloat(number, 'f', -1, 64)
		}
	case "number":
		if isNumber {
			written, _ := json.Marshal(number) // finite numbers always encode
			return string(written)
		}
	case "boolean":
		switch strings.ToLower(bare) {
		case "true", "1":
			return "true"
		case "false", "0":
			return "false"
		}
	case "null":
		if bare == "null" || bare == "None" {
			return "null"
		}
	case "object", "array":
		begins := map[string]string{"object": "{", "array": "["}[name]
		if strings.HasPrefix(bare, begins) && json.Valid([]byte(bare)) {
			return bare
		}
	}
	return ""
}
