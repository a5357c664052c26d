package chat

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nikolalohinski/gonja/v2/exec"
)

type renderedChat struct {
	Template string
	Messages []Message
	Prompt   bool
	Text     *string // nil: the template raises Error
	Error    string
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
		got, err := withTemplate(t, r.Template).Render(r.Messages, r.Prompt)
		switch {
		case r.Text == nil:
			if err == nil || !strings.HasSuffix(err.Error(), ": "+r.Error) || !strings.Contains(err.Error(), "chat_template.jinja: ") {
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
		"jinja":   {"chat_template.jinja": "jinja", "chat_template.json": `{"chat_template": "json"}`, "tokenizer_config.json": `{"chat_template": "config"}`},
		"json":    {"chat_template.json": `{"chat_template": "json"}`, "tokenizer_config.json": `{"chat_template": "config"}`},
		"config":  {"tokenizer_config.json": `{"chat_template": "config"}`},
		"default": {"tokenizer_config.json": `{"chat_template": [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "default"}]}`},
	} {
		if got, err := open(t, files).Render(user, false); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	tok := open(t, map[string]string{})
	if _, err := tok.Render(user, false); tok.HasTemplate() || err == nil || !strings.Contains(err.Error(), "has no chat template") {
		t.Errorf("without a template: %v", err)
	}
	if err := tok.SetTemplate(ChatML); err != nil || !tok.HasTemplate() {
		t.Fatal(err)
	}
	if got, err := tok.Render(user, true); err != nil || got != "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n" {
		t.Errorf("ChatML: %q, %v", got, err)
	}
}

// A template is not trusted with time, memory, the stack or files.
func TestTemplateBounds(t *testing.T) {
	tok := open(t, map[string]string{})
	for source, want := range map[string]string{
		"{% for i in range(65536) %}{% for j in range(65536) %}{{ messages[0].content }}{% endfor %}{% endfor %}": "writes more than",
		"{% for i in range(10000000000) %}{% endfor %}":                                                           "range: more than",
		"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}":                                                      "calls itself more than",
		"{% include '/etc/passwd' %}":                                                                             "cannot include",
		"{% import 'other' as o %}{{ o }}":                                                                        "cannot include",
		"{{ raise_exception('no such role') }}":                                                                   "the template refuses the messages: no such role",
		"{{ [1, 2] | tojson(indent=1000000000) }}":                                                                "indent",
		"{{ messages[0]['content'].nothing_like_this(1)['x'](2) }}":                                               "",
		"{{ range(1, 5, 0) }}":                                                                                    "the step is 0",
		strings.Repeat("x", maxSource+1):                                                                          "at most",
		strings.Repeat("{% if true %}", 50):                                                                       "not a chat template",
		countDown + "{{ f(64) }}":                                                                                 "calls itself more than 64",
	} {
		err := tok.SetTemplate(source)
		if err == nil {
			_, err = tok.Render([]Message{{Role: "user", Content: strings.Repeat("long ", 1000)}}, true)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want an error with %q", source, err, want)
		}
	}
	if err := tok.SetTemplate(strings.Repeat("x", maxSource)); err != nil {
		t.Errorf("a template of %d bytes: %v", maxSource, err)
	}
	if err := tok.SetTemplate("{% for %}" + strings.Repeat("long text ", 1000)); err == nil || len(err.Error()) > 1000 {
		t.Errorf("%.2000v: want an error that does not repeat the template", err)
	}
	var out boundedOutput
	half := strings.Repeat("x", maxRendered/2)
	for i, want := range []bool{true, true, false} {
		if i == 2 {
			half = "x"
		}
		if _, err := out.WriteString(half); (err == nil) != want {
			t.Errorf("write %d, with %d bytes before it: %v", i, out.Len(), err)
		}
	}
}

// countDown is a macro that calls itself so many times.
const countDown = `{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{% endif %}x{% endmacro %}`

// What a rendering is charged is what it makes, or more: each text once where it goes into an operator or a filter, and once where it is
// written or comes out of a filter that may lengthen it.
func TestWhatTextCosts(t *testing.T) {
	tok := open(t, map[string]string{})
	const c = "aaaaaaaaaa" // 10 bytes, the message
	for source, want := range map[string]int{
		`{{ "literal" }}and text`:                            0,
		`{{ m }}`:                                            10,
		`{{ m if m else "other" }}`:                          10,
		`{{ "other" if not m else m }}`:                      10,
		`{{ m ~ m }}`:                                        20, // the operands; what is written is not made again
		`{{ m ~ m ~ m }}{{ m + m }}`:                         50,
		`{{ (m or m) ~ (m and m) }}`:                         20,
		`{{ m ~ m * 2 }}`:                                    30,
		`{{ m * 3 }}`:                                        30,
		`{{ m * 0 }}{{ 2 * 3 }}{{ 2 * 3 * 4 }}`:              0,
		`{{ "ab" * 3 * 2 }}`:                                 6 + 12,
		`{{ 3 * (2 * 3) }}{{ m * (1 * 2) }}`:                 20,
		`{{ m | upper }}`:                                    20,
		`{{ m | length }}`:                                   16, // a number
		`{{ m | default("x") }}`:                             10,
		`{{ m | urlencode }}`:                                30,
		`{{ [m, m] }}`:                                       2 * 18, // eight bytes beside each element
		`{{ {"key": m, "k": m} }}`:                           3 + 8 + 10 + 1 + 8 + 10,
		`{{ [m, m] | first }}`:                               10,
		`{{ m | replace("a", "bcd") }}`:                      10 + 10*3 + 30,
		`{{ m | replace("a", "b") }}`:                        10 + 10,
		`{{ m.replace("a", "bcd") }}`:                        10 + 10*3 + 30,
		`{{ [m, m] | join(", ") }}`:                          2*18 + 2*2 + 22,
		`{{ ", ".join([m, m]) }}`:                            2*18 + 2*2 + 22,
		`{{ m | center(20) }}`:                               10 + 4*20 + 20,
		`{{ m.center(20, " ") }}`:                            10 + 4*20 + 20,
		`{{ m.ljust(20, " ") }}{{ m.rjust(20, " ") }}`:       2 * (10 + 4*20 + 20),
		`{{ m.zfill(20) }}`:                                  10 + 4*20 + 20,
		`{{ m | truncate(20) }}`:                             10 + 4*20 + 10,
		`{{ m | indent(20) }}`:                               10 + 10*20 + 10,
		`{% set y %}abc{{ m }}{% endset %}{{ y }}`:           3 + 10 + 13,
		`{% set y %}abc{% endset %}abc{{ y }}`:               3 + 3,
		`{% set y %}{{ m }}{% endset %}`:                     10,
		`{% set y %}{% set z %}ab{% endset %}c{% endset %}`:  2 + 1,
		`{% generation %}{{ m ~ m }}{% endgeneration %}`:     20,
		`{% if m %}abc{% endif %}`:                           0,
		`{% macro f() %}abc{% endmacro %}{{ f() }}{{ f() }}`: 2 * (3 + 3),
	} {
		if err := tok.SetTemplate(`{% set m = messages[0].content %}` + source); err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		charged := sort.Search(1000, func(most int) bool {
			tok.template.made = most
			_, err := tok.Render([]Message{{Role: "user", Content: c}}, true)
			return err == nil
		})
		if charged != want {
			tok.template.made = 1000
			text, err := tok.Render([]Message{{Role: "user", Content: c}}, true)
			t.Errorf("%s is charged %d bytes, want %d: %q, %v", source, charged, want, text, err)
		}
	}
	for source, refused := range map[string]bool{
		`{{ "x" | center(65536) }}`: false, `{{ "x" | center(65537) }}`: true, `{{ "%65536d" | format(1) }}`: false, `{{ "%65537d" | format(1) }}`: true,
		`{{ "%70000d" | format(1) }}`: true, `{{ "%99999d" | format(1) }}`: true,
		`{{ "%9s %65537d" | format(1, 2) }}`: true, `{{ "x" | replace("x", "%65537d") }}`: false,
	} {
		if err := tok.SetTemplate(source); err != nil {
			t.Fatal(err)
		}
		if _, err := tok.Render(nil, false); (err != nil) != refused {
			t.Errorf("%s: %v", source, err)
		}
	}
	for elements, want := range map[int]int{3: 18, 2: maxMade + 1} { // the list and what is in it
		if got := sizeOf(exec.AsValue([]string{"a", "b"}), &elements); got < want || want < maxMade && got != want {
			t.Errorf("%d elements left: size %d, want %d", elements, got, want)
		}
	}
}

// What was compiled is used again.
func TestTemplatesAreCompiledOnce(t *testing.T) {
	tok := withTemplate(t, "default_system.jinja")
	for range 5 {
		if _, err := tok.Render([]Message{{Role: "user", Content: "x"}}, true); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(tok.template.idle); n != 1 {
		t.Errorf("%d compiled templates after renderings one after the other, want 1", n)
	}
}

// A template that makes giant strings fails before it has them, whether it writes them or not.
func TestTemplateMakesNoGiantStrings(t *testing.T) {
	tok := open(t, map[string]string{})
	double := func(step string) string {
		return "{% set n = namespace(x='0123456789', l=[1, 2]) %}{% for i in range(60) %}" + step + "{% endfor %}{{ n.x | length }}"
	}
	for i, source := range []string{
		double("{% set n.x = n.x ~ n.x %}"), // with the bound of every template, the others with one that costs less to reach
		`{{ "x" * 99999999999 }}`,
		`{% if "x" * 99999999999 %}{% endif %}`,
		`{% set x = ("ab" * 70000) * 70000 %}`,
		double("{% set n.x = n.x ~ n.x %}"),
		double("{% set n.x = n.x + n.x %}"),
		double("{% set n.x = (n.x or '') ~ (n.x or '') %}"),
		double("{% set n.x = n.x * 2 %}"),
		double("{% set n.l = n.l + n.l %}"),
		double("{% set n.l = [n.l, n.l] %}{% set n.x = n.l | string %}"),
		double("{% set n.x = n.x | replace('0', n.x) %}"),
		double("{% set n.x = n.x.replace('0', n.x) %}"),
		double("{% set n.x = [n.x, n.x] | join(n.x) %}"),
		double("{% set n.x = n.x.join([n.x, n.x, n.x]) %}"),
		double("{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}"),
		double("{% macro twice(y) %}{{ y }}{{ y }}{% endmacro %}{% set n.x = twice(n.x) %}"),
		double("{% set y %}{% filter replace('0', n.x) %}{{ n.x }}{% endfilter %}{% endset %}{% set n.x = y %}"),
		`{% set x %}{% for i in range(60000) %}` + strings.Repeat("long ", 20000) + `{% endfor %}{% endset %}`,
		`{% set x %}{% for i in range(60000) %}{% for j in range(60000) %}{{ messages[0].content }}{% endfor %}{% endfor %}{% endset %}`,
		`{{ "x" | center(9999999999) }}`, `{{ "x".center(9999999999) }}`, `{{ "x".ljust(width=9999999999) }}`,
		`{{ "%9999999999d" | format(1) }}`, `{{ "a\nb" | indent(9999999999) }}`, `{{ ("%" ~ "9999999999d") | format(1) }}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := tok.SetTemplate(source)
		if err == nil {
			if i > 0 {
				tok.template.made = 4 << 20
			}
			_, err = tok.Render([]Message{{Role: "user", Content: strings.Repeat("long ", 1000)}}, true)
		}
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "bytes of text") && !strings.Contains(err.Error(), "more than 65536") {
			t.Errorf("%.80s: error %v, want one about its size", source, err)
		}
		if made := int(after.TotalAlloc - before.TotalAlloc); made > 6*tok.template.made+128<<20 { // what is parsed, and loops, take the rest
			t.Errorf("%.80s: %d MiB were allocated", source, made>>20)
		}
	}
}

// The bounds change nothing that a template writes.
func TestBoundedTemplatesWriteTheSame(t *testing.T) {
	tok := open(t, map[string]string{})
	for source, want := range map[string]string{
		`{{ "ab" * 3 }}{{ 2 * 3 }}{{ 1.5 * 2 }}{{ 5 * 10000000000 }}`:                  "ababab63.050000000000",
		`{{ 1 + 2 }}|{{ "a" + "b" }}|{{ ([1] + [2, 3]) | length }}|{{ 1 ~ "x" }}`:      "3|ab|3|1x",
		`{{ "a-b" | replace("-", "+") }}{{ "a,b".replace(",", ";") }}`:                 "a+ba;b",
		`{{ ["x", "y"] | join(", ") }}{{ "-".join(["p", "q"]) }}`:                      "x, yp-q",
		`{{ "x" | center(5) }}|{{ "%03d" | format(7) }}|{{ "a".ljust(3, " ") }}|`:      "  x  |007|a  |",
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
		return "{% set n = namespace(l=1) %}{% for i in range(" + strconv.Itoa(levels) + ") %}{% set n.l = KIND %}{% endfor %}{{ n.l | tojson | length }}"
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

func TestTemplateTime(t *testing.T) {
	tok := open(t, map[string]string{"chat_template.jinja": "{{ strftime_now('%d %b %Y|%H:%M:%S|%j|%-d|%y%%|%Q') }}"})
	tok.SetTime(time.Date(2024, 7, 6, 9, 5, 3, 0, time.UTC))
	if got, err := tok.Render(nil, false); err != nil || got != "06 Jul 2024|09:05:03|188|6|24%|%Q" {
		t.Errorf("got %q, %v", got, err)
	}
}

// A format may end in the middle of a directive.
func TestUnfinishedDirectives(t *testing.T) {
	for _, format := range []string{"%", "100%", "%-", "%Q", "%%%-"} {
		if got, want := strftime(time.Time{}, format), strings.Replace(format, "%%", "%", 1); got != want {
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
		`{{ {"a": [1, 2]}|tojson(separators=[",", ":"]) }}`: `{"a":[1,2]}`,
		`{{ {"a": [1, 2]}|tojson(separators=[","]) }}`:      `{"a": [1, 2]}`,
		`{{ {"a": [1, 2]}|tojson(separators=none) }}`:       `{"a": [1, 2]}`,
		`{{ {"a": [1, 2]}|tojson }}`:                        `{"a": [1, 2]}`,
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
