package replies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"
)

// expected is a reply, and what a client must get of it.
type expected struct {
	Family, Case, Prompt, Reply, Content, Thinking string
	Plain                                          bool // no tools are offered
	Malformed                                      int
	Calls                                          []struct {
		Name      string
		Arguments any
	}
}

// readCases are the replies of testdata/cases.jsonl, whose last line holds the tools.
func readCases(t *testing.T) (list []expected, tools []Tool) {
	t.Helper()
	data, err := os.ReadFile("testdata/cases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	for _, line := range lines[:len(lines)-1] {
		var c expected
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	return list, readTools(t, lines[len(lines)-1])
}

func readTools(t *testing.T, data []byte) (tools []Tool) {
	t.Helper()
	var file struct {
		Tools []struct {
			Function struct {
				Name       string
				Parameters json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(data, &file); err != nil || len(file.Tools) == 0 {
		t.Fatalf("no tools: %v", err)
	}
	for _, tool := range file.Tools {
		tools = append(tools, Tool{tool.Function.Name, tool.Function.Parameters})
	}
	return tools
}

// family is the template that is shipped for one.
func of(t *testing.T, name string) *Template {
	t.Helper()
	for _, f := range families() {
		if f.Family == name {
			return f.Template
		}
	}
	t.Fatalf("no family %s", name)
	return nil
}

// check compares what was read with what must be.
func (c expected) check(t *testing.T, how string, got Reply, malformed int) {
	t.Helper()
	ok := got.Content == c.Content && got.Thinking == c.Thinking && malformed == c.Malformed &&
		len(got.Calls) == len(c.Calls)
	for i := range c.Calls {
		var arguments any
		ok = ok && json.Unmarshal(got.Calls[i].Arguments, &arguments) == nil && got.Calls[i].Name == c.Calls[i].Name &&
			reflect.DeepEqual(arguments, c.Calls[i].Arguments)
	}
	if !ok {
		t.Errorf("%s, %s, %s: %q\ngot  %+q, %d malformed\nwant %+v", c.Family, c.Case, how, c.Reply, got, malformed, c)
	}
}

// pieces reads a reply that comes cut at some places, which are moved to the next character.
func pieces(template *Template, c expected, tools []Tool, cuts ...int) (Reply, int) {
	var got Reply
	r, at := template.New(c.Prompt, tools), 0
	for _, cut := range append(cuts, len(c.Reply)) {
		for cut < len(c.Reply) && !utf8.RuneStart(c.Reply[cut]) {
			cut++
		}
		got.Add(r.Add(c.Reply[at:max(at, cut)]))
		at = max(at, cut)
	}
	got.Add(r.Finish(""))
	return got, r.Malformed
}

// Replies in the forms of all families are read as clients expect: whole, in two pieces at every place, by single bytes,
// and in random pieces.
func TestFamilies(t *testing.T) {
	cases, tools := readCases(t)
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range cases {
		template, offered := of(t, c.Family), tools
		if c.Plain {
			offered = nil
		}
		whole, malformed := pieces(template, c, offered)
		c.check(t, "whole", whole, malformed)
		var all []int
		for cut := range c.Reply {
			got, malformed := pieces(template, c, offered, cut)
			c.check(t, "in two", got, malformed)
			all = append(all, cut)
		}
		got, malformed := pieces(template, c, offered, all...)
		c.check(t, "by characters", got, malformed)
		for range 50 {
			var cuts []int
			for at := 0; at < len(c.Reply); at += 1 + random.IntN(20) {
				cuts = append(cuts, at)
			}
			got, malformed := pieces(template, c, offered, cuts...)
			c.check(t, "in random pieces", got, malformed)
		}
	}
}

// Soups of delimiters and of what may stand between them are read alike however they are cut.
func TestSoups(t *testing.T) {
	cases, tools := readCases(t)
	random := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		c := cases[random.IntN(len(cases))]
		var soup strings.Builder
		for range random.IntN(6) { // pieces of replies in the form of the family
			if from := cases[random.IntN(len(cases))]; from.Family == c.Family {
				at := random.IntN(len(from.Reply))
				soup.WriteString(strings.ToValidUTF8(from.Reply[at:at+random.IntN(len(from.Reply)-at)], ""))
			}
		}
		c.Reply = soup.String()
		whole, malformed := pieces(of(t, c.Family), c, tools)
		var cuts []int
		for at := 0; at < len(c.Reply); at += 1 + random.IntN(5) {
			cuts = append(cuts, at)
		}
		if got, n := pieces(of(t, c.Family), c, tools, cuts...); !reflect.DeepEqual(got, whole) || n != malformed {
			t.Errorf("%s: %q\nwhole %+q, %d\ncut   %+q, %d at %v", c.Family, c.Reply, whole, malformed, got, n, cuts)
		}
	}
}

// Text is passed on as soon as no delimiter can begin in it.
func TestTextGoesOutAtOnce(t *testing.T) {
	_, tools := readCases(t)
	for family, steps := range map[string][][2]string{
		"hermes": {{"plain text", "plain text"}, {" goes ", " goes"}, {"out <to", " out"}, {"ol>", " <tool>"}, {"!", "!"},
			{"<tool_call>{no</tool_call>.", "<tool_call>{no</tool_call>."}},
		"llama":   {{"plain", "plain"}, {" {\"name\": ", " {\"name\":"}},
		"mistral": {{"a [TOOL", "a"}, {"S]", " [TOOLS]"}},
		"gpt-oss": {{"<|channel|>final<|mes", ""}, {"sage|>It", "It"}, {" is <|en", " is"}, {"d|>", ""}, {"<|", ""}},
	} {
		r := of(t, family).New("", tools)
		for _, step := range steps {
			var got Reply
			if got.Add(r.Add(step[0])); got.Content != step[1] || got.Thinking != "" {
				t.Errorf("%s: %q gives %+q, want %q", family, step[0], got, step[1])
			}
		}
	}
	for _, prompt := range []string{"<|im_start|>assistant\n<think>\n", "Question? <think>"} {
		r := of(t, "hermes").New(prompt, tools)
		var got Reply
		if got.Add(r.Add("\nHm, <tool_call>")); got.Thinking != "Hm, <tool_call>" {
			t.Errorf("thinking that the prompt opened: %+q", got)
		}
	}
}

// What cannot be run is refused by name.
func TestRefusedTemplates(t *testing.T) {
	field := func(body string) string {
		return `{"start_anchor": "a", "fields": {"content": {}, "tool_calls": {` + body + `}}}`
	}
	for data, says := range map[string]string{
		`{"fields": {"content": {}}}`:                                      "start_anchor: expected one",
		`{"version": 2, "start_anchor": "a", "fields": {"content": {}}}`:   "version 2",
		`{"start_anchor": "a", "fields": {}}`:                              "0 fields",
		`{"start_anchor": "a", "filds": {}}`:                               `unknown field "filds"`,
		field(``):                                                          "content nor tool_calls",
		field(`"open_pattern": "(?=[\\s\\S]*?</think>)"`):                  "field tool_calls: error parsing regexp: invalid or unsupported Perl syntax: `(?=` (patterns are Go's",
		field(`"open": "<", "open_pattern": "<"`):                          "a text or a pattern",
		field(`"open_pattern": "x*"`):                                      "where there is nothing",
		field(`"open": ""`):                                                "where there is nothing",
		field(`"open": 3`):                                                 "a text or a list of texts",
		field(`"open": "<", "content": "python-call-list"`):                "python-call-list",
		field(`"open": "<", "content": "xml-inline"`):                      "groups key and value",
		field(`"open": "<", "transform": {"a": "x {content}"}`):            "more than a placeholder",
		field(`"open": "<", "opens": "<"`):                                 `unknown field "opens"`,
		field(`"open": "<", "content_args": {"value_parser": {"name":1}}`): "cannot unmarshal",
	} {
		if _, err := Parse([]byte(data)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", data, err, says)
		}
	}
}

// The token that ended a reply closes a region, and is no text.
func TestEndingToken(t *testing.T) {
	template, err := Parse([]byte(`{"start_anchor": "a", "fields": {"tool_calls": {"open_pattern": ` +
		`"\\{\"name\": \"(?P<name>\\w+)\", \"parameters\": ", "close_pattern": "\\}<\\|eot\\|>\\s*", "content": "json", ` +
		`"transform": {"name": "{name}", "arguments": "{content}"}}, "content": {}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for reply, want := range map[string]Reply{
		`{"name": "f", "parameters": {"a": 1}}`: {Calls: []Call{{"f", json.RawMessage(`{"a": 1}`)}}},
		`{"name": "f", "parameters": {"a`:       {Content: `{"name": "f", "parameters": {"a`},
		"hello":                                 {Content: "hello"},
	} {
		r := template.New("", []Tool{{Name: "f"}})
		var got Reply
		got.Add(r.Add(reply))
		if got.Add(r.Finish("<|eot|>")); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+q, want %+q", reply, got, want)
		}
	}
}

// Chat templates are known by what they write; of others Hermes's form is read.
func TestFamilyOfTemplate(t *testing.T) {
	for source, want := range map[string]string{
		`'<|start|>assistant<|channel|>final<|message|>'`:                            "gpt-oss",
		`{{ '<tool_call>' + c.name }}<arg_key>`:                                      "glm",
		`{{ '\n<tool_call>\n<function=' + c.name }}`:                                 "xml",
		`{{ "[TOOL_CALLS] [" }}`:                                                     "mistral",
		`{{'<｜Assistant｜><think>\n'}}`:                                               "deepseek",
		`respond with <|tool_call|> followed by a JSON list`:                         "granite",
		`<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}`:    "hermes",
		`{{- '{"name": "' + tool_call.name + '", ' }}{{- '"parameters": ' }}`:        "llama",
		`{% for m in messages %}<|im_start|>{{ m.role }}{{ m.content }}{% endfor %}`: "hermes",
	} {
		if Of(source) != of(t, want) {
			t.Errorf("%s is not read as %s", source, want)
		}
	}
}

// TestReplies takes the replies of testdata/replies apart, in pieces of every size.
func TestReplies(t *testing.T) {
	datadriven.RunTest(t, "testdata/replies", func(t *testing.T, d *datadriven.TestData) string {
		reply, template, tools := d.Input, of(t, "hermes"), []Tool{{Name: "add"}}
		if strings.HasPrefix(reply, `"`) {
			var err error
			if reply, err = strconv.Unquote(reply); err != nil {
				t.Fatal(err)
			}
		}
		if strings.HasPrefix(reply, "{") || strings.HasPrefix(reply, "<|python_tag|>") {
			template = of(t, "llama")
		}
		if d.HasArg("plain") {
			tools = nil
		}
		var first string
		for n := 1; n <= 9; n++ {
			var cuts []int
			for at := n; at < len(reply); at += n {
				cuts = append(cuts, at)
			}
			got, _ := pieces(template, expected{Reply: reply}, tools, cuts...)
			out := fmt.Sprintf("text %q", got.Content)
			for _, call := range got.Calls {
				out += fmt.Sprintf("\ncall %s %s", call.Name, call.Arguments)
			}
			if first = max(first, out); n > 1 && out != first {
				t.Errorf("by %d: %s\nby 1: %s", n, out, first)
			}
		}
		return first
	})
}

// The template that the documentation shows reads what it says.
func TestDocumentedTemplate(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```json\n")
	block, _, _ = strings.Cut(block, "```")
	template, err := Parse([]byte(block))
	if err != nil {
		t.Fatalf("%s: %v", block, err)
	}
	got, _ := pieces(template, expected{Reply: `<think>Hm</think> @add {"a": 1}@`}, []Tool{{Name: "add"}})
	if want := (Reply{Thinking: "Hm", Calls: []Call{{"add", json.RawMessage(`{"a": 1}`)}}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+q, want %+q", got, want)
	}
}
