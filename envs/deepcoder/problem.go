package deepcoder

import (
	"embed"
	"encoding/json"
	"fmt"
	"strings"

	"gyre/envs"
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
	call     sandbox.Call
	stdout   string // of a call without a function
	value    any    // of a call of a function
	function bool
}

// readProblems reads the problems of a file with the columns "problem" and "tests", and "solutions" where there are
// some; our own where no file is named.
func readProblems(path string) ([]problem, error) {
	return envs.ReadRows("problems", path, elementary, "elementary.jsonl", newProblem)
}

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
func newTests(value any, name string) ([]test, error) {
	var tests []test
	add := func(input, output any, name string) error {
		t, err := newTest(input, output, name)
		if err != nil {
			return fmt.Errorf("test %d: %w", len(tests)+1, err)
		}
		tests = append(tests, t)
		return nil
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
		for i := range inputs {
			output := outputs[i]
			// With a function, the one value is often wrapped in a list.
			if wrapped, ok := output.([]any); ok && name != "" && len(wrapped) == 1 {
				output = wrapped[0]
			}
			if err := add(inputs[i], output, name); err != nil {
				return nil, err
			}
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
			if kind, ok := t["testtype"].(string); ok && kind == "stdin" {
				own = ""
			}
			if err := add(t["input"], t["output"], own); err != nil {
				return nil, err
			}
		}
	}
	if len(tests) == 0 {
		return nil, fmt.Errorf("expected tests in column \"tests\": {\"inputs\": […], \"outputs\": […]} or " +
			"[{\"input\": …, \"output\": …}, …]")
	}
	return tests, nil
}

func newTest(input, output any, name string) (test, error) {
	if name == "" {
		in, ok := text(input)
		out, ok2 := text(output)
		if !ok || !ok2 {
			return test{}, fmt.Errorf("expected texts for standard input and output")
		}
		return test{call: sandbox.Call{Stdin: in}, stdout: out}, nil
	}
	args, ok := input.([]any)
	if lines, isText := input.(string); isText { // one JSON value per line
		ok = true
		for line := range strings.Lines(strings.TrimSpace(lines)) {
			var arg any
			if err := json.Unmarshal([]byte(line), &arg); err != nil {
				return test{}, fmt.Errorf("argument %q of %s: %w", strings.TrimSpace(line), name, err)
			}
			args = append(args, arg)
		}
		output = unpack(output)
	}
	if !ok {
		return test{}, fmt.Errorf("expected a list of arguments for %s", name)
	}
	return test{call: sandbox.Call{Function: name, Args: args}, value: output, function: true}, nil
}

// text is a test's text, or the lines of a list.
func text(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case []any:
		lines := make([]string, len(v))
		for i, line := range v {
			s, ok := line.(string)
			if !ok {
				return "", false
			}
			lines[i] = s
		}
		return strings.Join(lines, "\n"), true
	}
	return "", false
}
