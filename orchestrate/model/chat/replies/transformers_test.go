package replies

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
)

// message is what transformers makes of a reply; a field that it has in several regions may be a list.
type message map[string]any

func (m message) text(names ...string) string {
	out := ""
	for _, name := range names {
		if text, ok := m[name].(string); ok {
			out += " " + text
		}
	}
	return strings.Join(strings.Fields(out), " ") // white space beside calls means nothing
}

// calls are those of all fields for them: {"function": {"name", "arguments"}}, or the function itself.
func (m message) calls() (list []any) {
	var add func(v any)
	add = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, one := range v {
				add(one)
			}
		case map[string]any:
			if function, wrapped := v["function"]; wrapped {
				v = function.(map[string]any)
			}
			list = append(list, map[string]any{"name": v["name"], "arguments": v["arguments"]})
		}
	}
	add(m["tool_calls"])
	add(m["tool_calls.named"])
	return list
}

// What transformers' parse_response reads of generated replies is read here, whole and in pieces, wherever it does not
// raise. scripts/fixtures_replies.py writes the file.
func TestTransformers(t *testing.T) {
	data, err := os.ReadFile("testdata/transformers.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	var head struct {
		Templates map[string]json.RawMessage
	}
	if err := json.Unmarshal(lines[0], &head); err != nil {
		t.Fatal(err)
	}
	tools, random := readTools(t, lines[0]), rand.New(rand.NewPCG(3, 4))
	compared, cut, calls := 0, 0, 0
	for _, line := range lines[1:] {
		var row struct {
			Family, Prompt, Reply string
			Message               message
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		var template *Template
		if own := head.Templates[row.Family]; own == nil {
			template = of(t, row.Family)
		} else if template, err = Parse(own); err != nil {
			t.Fatal(err)
		}
		c := expected{Prompt: row.Prompt, Reply: row.Reply}
		whole, malformed := pieces(template, c, tools)
		for range 5 {
			var cuts []int
			for at := 0; at < len(row.Reply); at += 1 + random.IntN(12) {
				cuts = append(cuts, at)
			}
			if got, n := pieces(template, c, tools, cuts...); !reflect.DeepEqual(got, whole) || n != malformed {
				t.Errorf("%s: %q cut at %v: %+q, whole %+q", row.Family, row.Reply, cuts, got, whole)
			}
		}
		if row.Message == nil {
			continue
		}
		if malformed > 0 { // a tag that does not end is dropped there
			cut++
			continue
		}
		compared++
		var got []any
		for _, call := range whole.Calls {
			var arguments any
			if err := json.Unmarshal(call.Arguments, &arguments); err != nil {
				t.Errorf("%s: %q: %v", row.Family, call.Arguments, err)
			}
			got = append(got, map[string]any{"name": call.Name, "arguments": arguments})
		}
		calls += len(got)
		mine := message{"content": whole.Content, "thinking": whole.Thinking}
		if want := row.Message; !reflect.DeepEqual(got, want.calls()) ||
			mine.text("content") != want.text("content.final", "content.response", "content") ||
			mine.text("thinking") != want.text("thinking", "reasoning_content") {
			t.Errorf("%s: %q\ngot  %+q\nwant %v", row.Family, row.Reply, whole, want)
		}
	}
	if compared < 200 || calls < 100 || cut > 10 {
		t.Errorf("compared %d replies with %d calls, left out %d", compared, calls, cut)
	}
}
