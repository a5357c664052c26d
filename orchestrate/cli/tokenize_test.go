package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"gyre/internal/exitcode"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/chat/bpe"
)

// tokenizerDir writes a directory with tokenizer files only; its BOS is id 0, its end of turn 2.
func tokenizerDir(t *testing.T) string {
	t.Helper()
	data, err := bpe.Train([]string{"user\nassistant\nhello hello world"}, 290,
		[]string{"<s>", "<|im_start|>", "<|im_end|>"})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	const bos = `"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "B"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"B": {"ids": [0]}}}`
	for name, content := range map[string]string{
		"tokenizer.json":        strings.Replace(string(data), `"post_processor": null`, bos, 1),
		"tokenizer_config.json": `{"bos_token": "<s>", "eos_token": "<|im_end|>"}`,
		"chat_template.jinja":   chat.ChatML,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tokenizeRows runs gyre tokenize on standard input.
func tokenizeRows(input string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	app := newApp([]*cli.Command{tokenizeCommand()}, &out, &errs)
	app.Reader = strings.NewReader(input)
	code = run(context.Background(), app, append([]string{"gyre", "tokenize"}, args...))
	return code, out.String(), errs.String()
}

func TestTokenizeThereAndBack(t *testing.T) {
	dir := tokenizerDir(t)
	rows := []string{`{"text": "hello <é>\n<|im_end|>"}`, ``, `{"text": ""}`,
		`{"messages": [{"role": "user", "content": "hello<|im_end|>"}]}`,
		`{"messages": [{"role": "assistant", "content": "x"}]}`}
	want := []string{"<s>hello <é>\n<|im_end|>", "<s>",
		"<|im_start|>user\nhello<|im_end|><|im_end|>\n<|im_start|>assistant\n", "<|im_start|>assistant\nx<|im_end|>\n"}
	code, ids, stderr := tokenizeRows(strings.Join(rows, "\n"), "--model", dir)
	if code != exitcode.Done || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	code, texts, stderr := tokenizeRows(ids, "--model", dir, "--decode")
	if code != exitcode.Done || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	if got := textsOf(t, texts); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
	_, texts, _ = tokenizeRows(ids, "--model", dir, "--decode", "--no-special")
	if got := textsOf(t, texts)[0]; got != "hello <é>\n" {
		t.Errorf("decoded without special tokens: %q", got)
	}
	_, ids, _ = tokenizeRows(`{"text": "<|im_end|>"}`, "--model", dir, "--no-special")
	if ids != "{\"ids\":[2]}\n" {
		t.Errorf("without the post-processor: %s", ids)
	}
	file := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(file, []byte(`{"text": "<s>"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, ids, stderr = tokenizeRows("", "--model", filepath.Join(dir, "tokenizer.json"), "--input",
		file); ids != "{\"ids\":[0,0]}\n" {
		t.Errorf("a tokenizer.json and a file: %s%s", ids, stderr)
	}
}

func textsOf(t *testing.T, lines string) (texts []string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var row struct{ Text *string }
		if err := json.Unmarshal([]byte(line), &row); err != nil || row.Text == nil {
			t.Fatalf("not a row with a text: %s", line)
		}
		texts = append(texts, *row.Text)
	}
	return texts
}

// Rows are those of requests to a server: parts, tools, variables of the template, and no other key.
func TestTokenizeRowsOfServers(t *testing.T) {
	dir := tokenizerDir(t)
	template := `{% for m in messages %}{{ m.role }}:{% for p in m.content %}{{ p.text }};{% endfor %}{{ m.thinking }}` +
		`{% endfor %}{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{{ mode }}`
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	for row, want := range map[string]string{
		`{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "thinking": "c"}]}`: "user:a;b;c",
		`{"messages": [{"role": "developer", "content": "a"}]}`:                                                                        "system:a;",
		`{"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"mode": "!"}}`:                                      "user:a;!",
		`{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {"parameters": {}, "name": "f", "strict": true}}]}`: `user:a;` +
			`{"type": "function", "function": {"parameters": {}, "name": "f", "strict": true}}`,
	} {
		code, ids, stderr := tokenizeRows(row, "--model", dir)
		_, texts, _ := tokenizeRows(ids, "--model", dir, "--decode")
		if code != exitcode.Done || textsOf(t, texts)[0] != want {
			t.Errorf("%s: exit %d, %q %s; want %q", row, code, texts, stderr, want)
		}
	}
	for row, want := range map[string]string{
		`{"messages": [{"role": "user", "content": "a", "thinkin": "c"}]}`:            `message 0: there is no key "thinkin" (did you mean thinking?)`,
		`{"messages": [{"role": "user", "content": "a"}], "tool": []}`:                `there is no key "tool" of rows (did you mean tools?)`,
		`{"messages": [{"role": "user", "content": "a"}], "tools": 3}`:                "tools: expected a list of tools",
		`{"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": 3}`: "chat_template_kwargs: expected an object",
	} {
		if code, _, stderr := tokenizeRows(row, "--model", dir); code != exitcode.Usage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %s; want %q", row, code, stderr, want)
		}
	}
}

func TestTokenizeBadRows(t *testing.T) {
	dir := tokenizerDir(t)
	for want, c := range map[string]struct {
		input string
		args  []string
	}{
		"stdin line 2: not a JSON object":              {"{\"text\": \"a\"}\n{\"text\": ", []string{"--model", dir}},
		"stdin line 1: text: expected a string":        {`{"text": 3}`, []string{"--model", dir}},
		"stdin line 1: expected one of ids":            {`{"txt": "a"}`, []string{"--model", dir}},
		"use --decode":                                 {`{"ids": [1]}`, []string{"--model", dir}},
		"stdin line 1: expected {\"ids\": […]}":        {`{"text": "a"}`, []string{"--model", dir, "--decode"}},
		"stdin line 1: token 1 is 99999, which is not": {`{"ids": [1, 99999]}`, []string{"--model", dir, "--decode"}},
		"stdin line 1: not a row":                      {`{"ids": [1.5]}`, []string{"--model", dir, "--decode"}},
		"tokenizer.json does not exist":                {"", []string{"--model", t.TempDir()}},
		"has no chat template": {`{"messages": [{"role": "user", "content": "x"}]}`,
			[]string{"--model", filepath.Join(dir, "tokenizer.json")}},
		"--input": {"",
			[]string{"--model", dir, "--input", filepath.Join(dir, "none")}},
	} {
		code, _, stderr := tokenizeRows(c.input, c.args...)
		if code != exitcode.Usage || !strings.Contains(stderr, want) {
			t.Errorf("%s %v: exit %d, %q; want exit 2 and %q", c.input, c.args, code, stderr, want)
		}
	}
}
