package openai

import (
	"encoding/json"
	"strings"
	"testing"
)

// read takes a reply apart, n bytes at a time, and gives what was passed on at once, the rest and the calls.
func read(text string, n int) (said, rest string, calls []string) {
	c := callReader{on: true}
	for len(text) > 0 {
		n := min(n, len(text))
		said += c.add(text[:n])
		text = text[n:]
	}
	rest, list := c.finish()
	for _, call := range list {
		var arguments string
		if json.Unmarshal(call.Function.Arguments, &arguments) != nil || call.Type != "function" {
			arguments = "no string"
		}
		calls = append(calls, call.Function.Name+arguments)
	}
	return said, rest, calls
}

func TestCallsAreTakenOutOfReplies(t *testing.T) {
	const call = `<tool_call>
{"name": "add", "arguments": {"b": 1, "a": 2}}
</tool_call>`
	for reply, want := range map[string]struct {
		text  string
		calls string
	}{
		"no call at all, a < b and <tool": {"no call at all, a < b and <tool", ""},
		"":                                {"", ""},
		call:                              {"", `add{"b": 1, "a": 2}`},
		"I add.\n\n" + call:               {"I add.", `add{"b": 1, "a": 2}`},
		call + "\n" + call:                {"", `add{"b": 1, "a": 2}, add{"b": 1, "a": 2}`},
		strings.TrimSuffix(call, "\n</tool_call>"):                                      {"", `add{"b": 1, "a": 2}`}, // the reply was as long as it may be
		"<tool_call>\n{\"name\": \"add\", \"argu":                                       {"<tool_call>\n{\"name\": \"add\", \"argu", ""},
		"<tool_call>nonsense</tool_call> so":                                            {"<tool_call>nonsense</tool_call> so", ""},
		`<tool_call>{"name": "f", "arguments": "{\"x\": 1}"}</tool_call>`:               {"", `f{"x": 1}`},
		`<tool_call>{"name": "f", "arguments": [1]}</tool_call>`:                        {`<tool_call>{"name": "f", "arguments": [1]}</tool_call>`, ""},
		`{"name": "f", "parameters": {"x": "</tool_call>"}}`:                            {"", `f{"x": "</tool_call>"}`},
		`<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "arguments": {}}`: {"", "f{}, g{}"},
		`{"name": "f"}`: {`{"name": "f"}`, ""},
		`{"answer": 4}`: {`{"answer": 4}`, ""},
		`{"name": "f", "parameters": {}} and so on`: {`{"name": "f", "parameters": {}} and so on`, ""},
		"  leading, trailing  \n":                   {"  leading, trailing  \n", ""},
	} {
		for n := range 9 {
			said, rest, calls := read(reply, n+1)
			if got := strings.Join(calls, ", "); said+rest != want.text || got != want.calls {
				t.Errorf("%q by %d: text %q + %q, calls %q; want %q and %q", reply, n+1, said, rest, got, want.text,
					want.calls)
			}
		}
	}
	off := callReader{}
	if said := off.add(call); said != call {
		t.Errorf("without tools %q", said)
	}
	if said, _, _ := read("plain text goes out at once", 5); said != "plain text goes out at once" {
		t.Errorf("passed on at once: %q", said)
	}
}
