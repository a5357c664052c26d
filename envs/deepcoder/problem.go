package deepcoder

import (
	"embed"
	"encoding/json"
	"fmt"
	"strings"

	"gyre/envs/sandbox"
)

// elementary are a few problems of our own, so that the tag can be tried without a file.
//
//go:embed elementary.jsonl
var elementary embed.FS

// problem is a task and its tests.
type problem struct {
	text     string
	tests    []test
	solution string // "" when the file has none
}

// test is one call of the program and what must come of it. The expected part never enters the sandbox.
type test struct {
	call   sandbox.Call
	stdout string // of a call without a function
	value  any    // of a call of a function, as package json decodes it
}

// newProblem reads a row with the columns "problem" and "tests", and "solutions" where there are some.
func newProblem(row map[string]any) (problem, error) {
	p := problem{}
	p.text, _ = row["problem"].(string)
	if strings.TrimSpace(p.text) == "" {
		return p, fmt.Errorf("expected a text in column \"problem\"")
	}
	if list, ok := unpack(row["solutions"]).([]any); ok && len(list) > 0 {
		p.solution, _ = list[0].(string)
	}
	name := ""
	if metadata, ok := unpack(row["metadata"]).(map[string]any); ok {
		name, _ = metadata["func_name"].(string)
	}
	var err error
	p.tests, err = newTests(unpack(row["tests"]), name)
	return p, err
}

// unpack decodes what a column holds as JSON text.
func unpack(value any) any {
	text, ok := value.(string)
	if !ok {
		return value
	}
	var inner any
	if json.Unmarshal([]byte(text), &inner) != nil {
		return value
	}
	return inner
}

// newTests reads the forms that the data set mixes: {"inputs": […], "outputs": […], "fn_name"} and a list of {"input",
// "output"} with "fn_name" or "metadata": {"func_name"}.
func newTests(value any, name string) (tests []test, err error) {
	add := func(input, output any, name string) {
		t, failure := newTest(input, output, name)
		if failure != nil && err == nil {
			err = fmt.Errorf("test %d: %w", len(tests)+1, failure)
		}
		tests = append(tests, t)
	}
	switch list := value.(type) {
	case map[string]any:
		inputs, ok := list["inputs"].([]any)
		outputs, ok2 := list["outputs"].([]any)
		if !ok || !ok2 || len(inputs) != len(outputs) {
			return nil, fmt.Errorf("column \"tests\": expected as many \"inputs\" as \"outputs\"")
		}
		if own, ok := list["fn_name"].(string); ok {
			name = own
		}
		for i, output := range outputs {
			// With a function, the one value is often wrapped in a list.
			if wrapped, ok := output.([]any); ok && name != "" && len(wrapped) == 1 {
				output = wrapped[0]
			}
			add(inputs[i], output, name)
		}
	case []any:
		for _, item := range list {
			t, _ := item.(map[string]any)
			own := name
			if metadata, ok := t["metadata"].(map[string]any); ok {
				own, _ = metadata["func_name"].(string)
			}
			if n, ok := t["fn_name"].(string); ok {
				own = n
			}
			if t["testtype"] == "stdin" {
				own = ""
			}
			add(t["input"], t["output"], own)
		}
	}
	if len(tests) == 0 {
		err = fmt.Errorf("expected tests in column \"tests\": {\"inputs\": […], \"outputs\": […]} or [{\"input\": …, " +
			"\"output\": …}, …]")
	}
	return tests, err
}

func newTest(input, output any, name string) (t test, err error) {
	if name == "" {
		var ok, ok2 bool
		t.call.Stdin, ok = text(input)
		t.stdout, ok2 = text(output)
		if !ok || !ok2 {
			err = fmt.Errorf("expected texts for standard input and output")
		}
		return t, err
	}
	args, ok := input.([]any)
	if lines, isText := input.(string); isText { // one JSON value per line
		ok = true
		for line := range strings.Lines(strings.TrimSpace(lines)) {
			var arg any
			if err := json.Unmarshal([]byte(line), &arg); err != nil {
				return t, fmt.Errorf("argument %q of %s: %w", strings.TrimSpace(line), name, err)
			}
			args = append(args, arg)
		}
		output = unpack(output)
	}
	if !ok {
		return t, fmt.Errorf("expected a list of arguments for %s", name)
	}
	t.call = sandbox.Call{Function: name, Args: args}
	plain, err := json.Marshal(output)
	if err == nil {
		err = json.Unmarshal(plain, &t.value) // numbers as those of outcomes
	}
	return t, err
}

// text is a test's text, or the lines of a list.
func text(value any) (string, bool) {
	list, isList := value.([]any)
	if !isList {
		s, ok := value.(string)
		return s, ok
	}
	lines := make([]string, len(list))
	for i, line := range list {
		var ok bool
		if lines[i], ok = line.(string); !ok {
			return "", false
		}
	}
	return strings.Join(lines, "\n"), true
}
