package chat

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-strftime"
)

type renderedChat struct {
	Template string
	Messages []Message
	Tools    []struct {
		Name, Description string
		Parameters        json.RawMessage
	}
	Prompt bool
	Text   *string // nil: the template raises Error
	Error  string
}

func (r renderedChat) offered() (tools []Tool) {
	for _, tool := range r.Tools {
		tools = append(tools, Tool{tool.Name, tool.Description, tool.Parameters})
	}
	return tools
}

// renderedChats are what transformers makes of some chats in the templates of testdata (scripts/fixtures_tokenizer.py).
func renderedChats(t *testing.T) []renderedChat {
	t.Helper()
	f, err := os.Open("testdata/chats.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []renderedChat
	for s := bufio.NewScanner(f); s.Scan(); {
		var r renderedChat
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	if len(rows) < 30 {
		t.Fatalf("only %d chats", len(rows))
	}
	return rows
}

func withTemplate(t testing.TB, name string) *Tokenizer {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return open(t, map[string]string{"chat_template.jinja": string(source)})
}

func TestRenderMatchesTransformers(t *testing.T) {
	for _, r := range renderedChats(t) {
		tok := withTemplate(t, r.Template)
		tools, err := tok.toolValues(r.offered())
		if err != nil {
			t.Fatal(err)
		}
		got, err := tok.render(r.Messages, tools, r.Prompt, tok.now())
		switch {
		case r.Text == nil:
			if err == nil || !strings.HasSuffix(err.Error(), ": "+r.Error) || !strings.Contains(err.Error(),
				"chat_template.jinja: ") {
				t.Errorf("%s: got %q, %v; want the error %q", r.Template, got, err, r.Error)
			}
		case err != nil || got != *r.Text:
			t.Errorf("%s of %v:\n got %q, %v\nwant %q", r.Template, r.Messages, got, err, *r.Text)
		}
	}
}

func TestTemplateSources(t *testing.T) {
	user := []Message{{Role: "user", Content: "x"}}
	for want, files := range map[string]map[string]string{
		"jinja": {"chat_template.jinja": "jinja", "chat_template.json": `{"chat_template": "json"}`,
			"tokenizer_config.json": `{"chat_template": "config"}`},
		"json": {"chat_template.json": `{"chat_template": "json"}`,
			"tokenizer_config.json": `{"chat_template": "config"}`},
		"config":  {"tokenizer_config.json": `{"chat_template": "config"}`},
		"default": {"tokenizer_config.json": `{"chat_template": [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "default"}]}`},
	} {
		if got, err := open(t, files).Render(user, false); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	tok := open(t, map[string]string{})
	if _, err := tok.Render(user, false); tok.HasTemplate() || err == nil || !strings.Contains(err.Error(),
		"has no chat template") {
		t.Errorf("without a template: %v", err)
	}
	if err := tok.SetTemplate(ChatML); err != nil || !tok.HasTemplate() {
		t.Fatal(err)
	}
	if got, err := tok.Render(user, true); err != nil ||
		got != "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n" {
		t.Errorf("ChatML: %q, %v", got, err)
	}
}

// A template ends in time, writes a bounded text, does not overflow the stack and reads no file.
func TestTemplateBounds(t *testing.T) {
	tok := open(t, map[string]string{})
	for source, want := range map[string]string{
		"{% for i in range(65536) %}{% for j in range(65536) %}{{ messages[0].content }}{% endfor %}{% endfor %}": "writes more than",
		"{% for i in range(1000000000) %}{% endfor %}":                                                            "range: more than",
		"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}":                                                      "calls itself more than",
		"{% include '/etc/passwd' %}":                                                                             `the tag "include" is not known`,
		"{% import 'other' as o %}{{ o }}":                                                                        `the tag "import" is not known`,
		"{{ raise_exception('no such role') }}":                                                                   "the template refuses the messages: no such role",
		"{{ [1, 2] | tojson(indent=1000000000) }}":                                                                "indent",
		"{{ messages[0]['content'].nothing_like_this(1)['x'](2) }}":                                               "",
		"{{ range(1, 5, 0) }}":                                                                                    "the step is 0",
		strings.Repeat("{{ "+strings.Repeat("(", 1000000), 1):                                                     "not a chat template",
		"{{ " + strings.Repeat("-", 1000000) + "1 }}":                                                             "not a chat template",
		"{{ 'x' | shout }}":                                                                                       `the filter "shout" is not known`,
		"{{ 'x' is loud }}":                                                                                       `the test "loud" is not known`,
		"{{ messages.append(1) }}":                                                                                "is unsafe",
		"{{ 'x' * 100000000 * 100 }}":                                                                             "repeated too often",
		"{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}": "is longer than",
		"{{ 'a' + 1 }}":      "unknown binary op",
		"{{ nobody.there }}": "'nobody' is undefined",
		strings.Repeat("{% if true %}",
			50): "not a chat template",
		countDown + "{{ f(64) }}": "calls itself more than 64",
	} {
		err := tok.SetTemplate(source)
		if err == nil {
			_, err = tok.Render([]Message{{Role: "user", Content: strings.Repeat("long ", 1000)}}, true)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want an error with %q", source, err, want)
		}
	}
	if err := tok.SetTemplate("{% for %}" + strings.Repeat("long text ", 1000)); err == nil || len(err.Error()) > 1000 {
		t.Errorf("%.2000v: want an error that does not repeat the template", err)
	}
}

// countDown is a macro that calls itself so many times.
const countDown = `{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{% endif %}x{% endmacro %}`

// Operators, filters, macros and range() as Jinja has them.
func TestExpressions(t *testing.T) {
	tok := open(t, map[string]string{})
	for source, want := range map[string]string{
		`{{ "ab" * 3 }}{{ 2 * 3 }}{{ 1.5 * 2 }}{{ 5 * 10000000000 }}`:                  "ababab63.050000000000",
		`{{ 1 + 2 }}|{{ "a" + "b" }}|{{ ([1] + [2, 3]) | length }}|{{ 1 ~ "x" }}`:      "3|ab|3|1x",
		`{{ "a-b" | replace("-", "+") }}{{ "a,b".replace(",", ";") }}`:                 "a+ba;b",
		`{{ ["x", "y"] | join(", ") }}{{ "-".join(["p", "q"]) }}`:                      "x, yp-q",
		`{{ "%s-%d" | format("x", 7) }}|{{ "é☃x".find("x") }}|{{ [2, 1] | sort }}`:     "x-7|2|[1, 2]",
		`{{ missing }}|{{ missing | default("d") }}`:                                   "|d",
		`{% set n = namespace(x=1) %}{% set n.x = n.x + 1 %}{{ n.x }}`:                 "2",
		`{{ "yes" if 1 + 1 == 2 else "no" }}{{ "a" if false }}`:                        "yes",
		`{% macro m(a, b="z") %}{{ a ~ b }}{% endmacro %}{{ m("y") }}`:                 "yz",
		`{% set x %}{% for i in range(3) %}{{ i }},{% endfor %}{% endset %}{{ x }}`:    "0,1,2,",
		`{{ range(5, 1) | length }}|{% for i in range(5, 1, -2) %}{{ i }}{% endfor %}`: "0|53",
		countDown + `{{ f(63) }}`:                                     strings.Repeat("x", 64),
		countDown + `{% for i in range(100) %}{{ f(0) }}{% endfor %}`: strings.Repeat("x", 100),
	} {
		if err := tok.SetTemplate(source); err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := tok.Render([]Message{{Role: "user", Content: "x"}}, true); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", source, got, err, want)
		}
	}
}

// Bounds of Python's methods and of tojson, at the bounds.
func TestMethodsAtTheirBounds(t *testing.T) {
	tok := open(t, map[string]string{})
	nested := func(levels int) string {
		return "{% set n = namespace(l=1) %}{% for i in range(" + strconv.Itoa(levels) +
			") %}{% set n.l = KIND %}{% endfor %}{{ n.l | tojson | length }}"
	}
	for source, want := range map[string]string{ // "": refused
		`{{ "a,b,c".split(",", 0) | join("|") }}`:                "a,b,c",
		`{{ "a,b,c".split(",", 1) | join("|") }}`:                "a|b,c",
		`{{ "a,b,c".rsplit(",", 1) | join("|") }}`:               "a,b|c",
		`{{ "a,b,c".rsplit(",", 2) | join("|") }}`:               "a|b|c",
		`{{ "a,b,c".rsplit(",", 0) | join("|") }}`:               "a,b,c",
		`{{ "aaa".replace("a", "b", 2) }}`:                       "bba",
		`{{ "aaa".replace("a") }}`:                               "",
		`{{ "aaa".replace("a", "b", 1, 2) }}`:                    "",
		`{{ [1] | tojson(indent=64) | length }}`:                 "69",
		`{{ [1] | tojson(indent=65) | length }}`:                 "",
		`{{ [1] | tojson(indent=0) }}`:                           "[\n1\n]",
		`{{ [1] | tojson(indent=-1) }}`:                          "",
		`{{ [] | tojson(indent=2) }}{{ {} | tojson(indent=2) }}`: "[]{}",
		`{% set l = "a,b".split(",") %}{{ l[1] }}{{ l[-2] }}{{ l[2] is defined }}{{ l[-3] is defined }}`: "baFalseFalse",
		`{{ "a b".split(none, 0) }}`:                         "",
		`{{ " a  b ".split(none, -1) | join("|") }}`:         "a|b",
		strings.ReplaceAll(nested(64), "KIND", "[n.l]"):      "129",
		strings.ReplaceAll(nested(65), "KIND", "[n.l]"):      "",
		strings.ReplaceAll(nested(64), "KIND", "{'a': n.l}"): "449",
		strings.ReplaceAll(nested(65), "KIND", "{'a': n.l}"): "",
		`{% for m in messages %}{{ m.name }}{% if m.tool_call_id is defined %}{{ m.tool_call_id }}{% endif %};{% endfor %}`: "tool7;;",
	} {
		if err := tok.SetTemplate(source); err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		got, err := tok.Render([]Message{{Role: "tool", Name: "tool", ToolCallID: "7"}, {Role: "user"}}, false)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", source, got, err, want)
		}
	}
}

// Render is what the template makes of messages.
func (t *Tokenizer) Render(messages []Message, addGenerationPrompt bool) (string, error) {
	return t.render(messages, nil, addGenerationPrompt, t.now())
}

func TestTemplateTime(t *testing.T) {
	tok := open(t, map[string]string{"chat_template.jinja": "{{ strftime_now('%d %b %Y|%H:%M:%S|%j|%-d|%y%%|%J') }}"})
	tok.now = func() time.Time { return time.Date(2024, 7, 6, 9, 5, 3, 0, time.UTC) }
	if got, err := tok.Render(nil, false); err != nil || got != "06 Jul 2024|09:05:03|188|6|24%|%J" {
		t.Errorf("got %q, %v", got, err)
	}
}

// A format may end in the middle of a directive.
func TestUnfinishedDirectives(t *testing.T) {
	for _, format := range []string{"%", "100%", "%-", "%J", "%%%-"} {
		if got, want := strftime.Format(format, time.Time{}), strings.Replace(format, "%%", "%", 1); got != want {
			t.Errorf("%s gave %q, want %q", format, got, want)
		}
	}
}

func TestRenderConcurrently(t *testing.T) {
	tok := withTemplate(t, "default_system.jinja")
	want, err := tok.Render([]Message{{Role: "user", Content: "x"}}, true)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if got, err := tok.Render([]Message{{Role: "user", Content: "x"}}, true); err != nil || got != want {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
	all.Wait()
}

// Separators are a pair; anything else leaves the usual ones.
func TestSeparatorsOfToJSON(t *testing.T) {
	for source, want := range map[string]string{
		`{{ {"a": [1, 2]}|tojson(separators=[",", ":"]) }}`:                   `{"a":[1,2]}`,
		`{{ {"b": "é😀", "a": 1}|tojson(ensure_ascii=true, sort_keys=true) }}`: `{"a": 1, "b": "\u00e9\ud83d\ude00"}`,
		`{{ {"a": [1, 2]}|tojson(separators=[","]) }}`:                        `{"a": [1, 2]}`,
		`{{ {"a": [1, 2]}|tojson(separators=none) }}`:                         `{"a": [1, 2]}`,
		`{{ {"a": [1, 2]}|tojson }}`:                                          `{"a": [1, 2]}`,
	} {
		tokenizer := open(t, map[string]string{})
		if err := tokenizer.SetTemplate(source); err != nil {
			t.Fatal(err)
		}
		if got, err := tokenizer.Render(nil, false); err != nil || got != want {
			t.Errorf("%s gave %q, %v; want %q", source, got, err, want)
		}
	}
}
