package jinja

import (
	"bufio"
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestTemplates renders what the files below testdata hold, on a morning of July 2024.
func TestTemplates(t *testing.T) {
	now := time.Date(2024, 7, 6, 9, 5, 3, 0, time.UTC)
	for _, file := range []string{"testdata/language", "testdata/refused"} {
		variables := map[string]Value{}
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "messages" {
				var err error
				if variables["messages"], err = FromJSON([]byte(d.Input)); err != nil {
					t.Fatal(err)
				}
				return "ok"
			}
			template, err := Compile(d.Input)
			var text string
			if err == nil {
				text, err = template.Render(variables, now)
			}
			if err != nil {
				return "refused: " + err.Error()
			}
			return text
		})
	}
}

// Templates that are all brackets, signs or blocks neither overflow the stack nor run long.
func TestDeepTemplates(t *testing.T) {
	for _, source := range []string{"{{ " + strings.Repeat("(", 1000000), "{{ " + strings.Repeat("-", 1000000) + "1 }}",
		strings.Repeat("{% if true %}", 50)} {
		if _, err := Compile(source); err == nil || !strings.Contains(err.Error(), "not a chat template") {
			t.Errorf("%.20s…: %v", source, err)
		}
	}
}

// Each expression comes to what it comes to in transformers' Jinja, or is an error as there
// (scripts/fixtures_tokenizer.py).
func TestExpressionsMatchJinja(t *testing.T) {
	f, err := os.Open("testdata/expressions.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	var seen struct{ Messages, Tools json.RawMessage }
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &seen) != nil {
		t.Fatal("no messages")
	}
	count := 0
	for ; lines.Scan(); count++ {
		var row struct {
			Template string
			Text     *string
			Error    string
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		messages, err := FromJSON(seen.Messages)
		if err != nil {
			t.Fatal(err)
		}
		tools, err := FromJSON(seen.Tools)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		compiled, err := Compile(row.Template)
		if err == nil {
			got, err = compiled.Render(map[string]Value{"messages": messages, "tools": tools}, time.Now())
		}
		if row.Text == nil && err == nil || row.Text != nil && (err != nil || got != *row.Text) {
			t.Errorf("%s: got %q, %v; want %s", row.Template, got, err, lines.Bytes())
		}
	}
	if count < 80 {
		t.Errorf("only %d expressions", count)
	}
}

// No template takes long or much memory, whatever it multiplies.
func TestTemplatesThatExhaust(t *testing.T) {
	const long, wide = "{% set x = 'x' * 100000 %}", "{% set l = [x] * 60000 %}"
	laughs := "{% set a = ('ha', 'ha') %}" + strings.Repeat("{% set a = (a, a) %}", 60)
	for _, source := range []string{
		long + "{{ x | replace('x', x) | length }}", long + "{{ x.replace('x', x) | length }}",
		long + "{{ x.replace('', x) | length }}", long + wide + "{{ l | join(x) | length }}",
		long + wide + "{{ x.join(l) | length }}", long + "{{ ('%s' * 10000 % ([x] * 10000)) | length }}",
		long + "{{ ('{0}' * 30000).format(x) | length }}", long + "{{ ('%s' * 30000) | format(x, x) | length }}",
		"{{ ('x\\n' * 1000000) | indent(60000) | length }}", "{{ 100000000 * 'x' * 9 }}", "{{ ([1] * 60000000) | length }}",
		"{{ ('a' * 60000000).split('a') | length }}", "{{ ('\\n' * 30000000).splitlines() | length }}",
		laughs + "{{ a }}", laughs + "{{ a | tojson }}", laughs + "{{ a ~ '' }}", laughs + "{{ {a: 1} }}",
		laughs + "{{ [a] | join }}", laughs + "{{ a in {} }}", laughs + "{{ {}[a] }}", laughs + "{{ a | string | length }}",
		"{% set l = [[[[0] * 60] * 60] * 60] * 60 %}{% set m = [[[[0] * 60] * 60] * 60] * 60 %}" +
			strings.Repeat("{{ l == m }}", 60),
		long + "{% for i in range(65536) %}{% set y = x ~ i %}{% endfor %}", long + "{{ " + strings.Repeat("x ~ ", 8000) + "x }}",
		"{% for i in range(65536) %}{% for j in range(65536) %}{% endfor %}{% endfor %}",
		"{% for i in range(65536) if range(65536) | sort | length == 0 %}{% endfor %}",
		"{{ range(65536) | unique | length }}", long + wide + "{{ l | sort | length }}", long + wide + "{{ l | unique | length }}",
		"{% set n = namespace(v=10) %}{% for i in range(64) %}{% set n.v = n.v * n.v %}{% endfor %}{{ n.v }}",
		"{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
		"{% set n = namespace(l=[]) %}{% for i in range(65536) %}{% set n.l = n.l + [i] %}{% endfor %}",
		long + "{% set n = namespace(l=[]) %}{% for i in range(65536) %}{% set n.l = [x ~ i, n.l] %}{% endfor %}",
		strings.Repeat("{# a #}\n", 131072), strings.Repeat("{% if true %}x{% endif %}", 41000) + "{{ raise_exception('') }}",
		"{% if 0 %}" + strings.Repeat("{% elif 0 %}x", 80000) + "{% endif %}{{ raise_exception('') }}",
		"{{ " + strings.Repeat("'a' ", 260000) + "}}{{ raise_exception('') }}",
		strings.Repeat("{% if true ", 90000), "{{ 1 " + strings.Repeat("if 1 ", 200000) + "}}{{ raise_exception('') }}",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begun := time.Now()
		template, err := Compile(source)
		if err == nil {
			_, err = template.Render(map[string]Value{}, time.Now())
		}
		runtime.ReadMemStats(&after)
		took, made := time.Since(begun), (after.TotalAlloc-before.TotalAlloc)>>20
		if err == nil && len(source) <= MaxSource-100 || took > 5*time.Second || made > 2048 {
			t.Errorf("%.70s…: %v after %v and %d MiB", source, err, took, made)
		}
	}
}
