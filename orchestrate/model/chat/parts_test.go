package chat

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// Contents in parts, what the assistant thought, and a template's own fields and variables are written as transformers
// writes them (scripts/fixtures_tokenizer.py). What the template cannot write as it was given is given in the form that
// it can, and nothing is lost without an error.
func TestPartsAndThoughtsMatchTransformers(t *testing.T) {
	f, err := os.Open("testdata/parts.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows := 0
	for lines := bufio.NewScanner(f); lines.Scan(); rows++ {
		var r struct {
			Template  string
			Messages  json.RawMessage
			Variables map[string]json.RawMessage
			Text      *string // nil: transformers fails, or loses text
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		messages, err := ReadMessages(r.Messages)
		if err != nil {
			t.Fatal(err)
		}
		tok := withTemplate(t, r.Template)
		ids, err := tok.EncodeMessages(messages, true, Offer{Variables: r.Variables})
		got := tok.Decode(ids, false)
		if r.Text != nil && (err != nil || got != *r.Text) {
			t.Errorf("%s of %s: %v\n got %q\nwant %q", r.Template, r.Messages, err, got, *r.Text)
		}
		for _, m := range messages {
			for _, word := range strings.Fields(m.Content) {
				if err == nil && len(m.ToolCalls) == 0 && !strings.Contains(got, word) {
					t.Errorf("%s of %s loses %q: %q", r.Template, r.Messages, word, got)
				}
			}
		}
	}
	if rows < 50 {
		t.Errorf("only %d chats", rows)
	}
}

const (
	partsOnly = `{% for m in messages %}<|im_start|>{{ m.role }}|{% for p in m.content %}{{ p.text }};{% endfor %}<|im_end|>{% endfor %}`
	textOnly  = `{% for m in messages %}{{ '<|im_start|>' + m.role + '|' + m.content + '<|im_end|>' }}{% endfor %}`
	printed   = `{% for m in messages %}<|im_start|>{{ m.role }}|{{ m.content }}<|im_end|>{% endfor %}`
	strict    = `{% for m in messages %}{% if m.content is string %}{{ raise_exception('parts, please') }}{% endif %}` +
		`{{ m.content[0].text }}{% endfor %}`
	dropping = `{% for m in messages if m.role == 'user' %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}`
	mixed    = `{{ messages[0].content | trim }}{% for m in messages[1:] %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}`
)

// A content reaches the template in a form that it writes.
func TestFormsOfContents(t *testing.T) {
	two := `[{"type": "text", "text": "a<|im_end|>"}, {"type": "input_text", "text": "b"}]`
	for _, c := range []struct{ template, messages, want string }{
		{partsOnly, `[{"role": "user", "content": "a"}]`, "<|im_start|>user|a;<|im_end|>"},
		{partsOnly, `[{"role": "user", "content": ` + two + `}]`, "<|im_start|>user|a<|im_end|>;b;<|im_end|>"},
		{textOnly, `[{"role": "user", "content": ` + two + `}]`, "<|im_start|>user|a<|im_end|>b<|im_end|>"},
		{printed, `[{"role": "user", "content": ` + two + `}]`, "<|im_start|>user|a<|im_end|>b<|im_end|>"},
		{strict, `[{"role": "user", "content": "a"}]`, "a"},
		{mixed, `[{"role": "system", "content": ` + two + `}, {"role": "user", "content": ` + two + `}]`,
			"a<|im_end|>b[a<|im_end|>][b]"},
		{mixed, `[{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]`, "s[u]"},
		{dropping, `[{"role": "system", "content": " "}, {"role": "user", "content": "u"}]`, "<|im_start|>u<|im_end|>"},
		{dropping, `[{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]`, "!leaves out the content of message 0"},
		{strict, `[{"role": "user", "content": ` + two + `}]`, "!leaves out the content of message 0"},
	} {
		tok := open(t, map[string]string{"chat_template.jinja": c.template})
		messages, err := ReadMessages([]byte(c.messages))
		if err != nil {
			t.Fatal(err)
		}
		ids, err := tok.EncodeMessages(messages, false)
		if refused, ok := strings.CutPrefix(c.want, "!"); ok {
			if err == nil || !strings.Contains(err.Error(), refused) {
				t.Errorf("%s of %s: %q, %v; want an error with %q", c.template, c.messages, tok.Decode(ids, false), err,
					refused)
			}
		} else if got := tok.Decode(ids, false); err != nil || got != c.want {
			t.Errorf("%s of %s: %q, %v; want %q", c.template, c.messages, got, err, c.want)
		} else if n := strings.Count(c.want, "<|im_start|>"); count(ids, imEnd) != n {
			t.Errorf("%s of %s: %d ends of turns, want %d", c.template, c.messages, count(ids, imEnd), n)
		}
	}
}

// Templates that go over parts continue conversations as others do.
func TestConversationInParts(t *testing.T) {
	tok := open(t, map[string]string{"chat_template.jinja": partsOnly + `{% if add_generation_prompt %}<|im_start|>A{% endif %}`})
	c := tok.NewConversation()
	first, err := c.Open([]Message{{Role: "user", Content: "go"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	next, err := c.Continue([]int32{imEnd}, []Message{{Role: "user", Content: "on", Parts: []string{"o", "n"}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	ids, said := join(tok, append(first, next...))
	if got := tok.Decode(ids, false); got != "<|im_start|>user|go;<|im_end|><|im_start|>A<|im_start|>user|o;n;<|im_end|><|im_start|>A" ||
		said[ByEnvironment] != "goon" {
		t.Errorf("%q, of the environment %q", got, said[ByEnvironment])
	}
}

// A key that neither OpenAI's API nor the template knows is refused by name, and so is what would forge markup.
func TestUnknownKeysAreRefused(t *testing.T) {
	const template = textOnly + `{% for m in messages %}{{ m.plan }}{% for d in m['documents'] %}{{ d.text }}{% endfor %}{% endfor %}{{ mode }}`
	tok := open(t, map[string]string{"chat_template.jinja": template})
	for message, want := range map[string]string{
		`"plan": "p", "documents": [{"text": "d"}]`:      "",
		`"reasoning_content": "r", "reasoning": null`:    "",
		`"name": null, "refusal": null, "unknown": null`: "",
		`"contnet": "y"`:                        `message 0: there is no key "contnet" (did you mean content?)`,
		`"reasonig": "y"`:                       `there is no key "reasonig" (did you mean reasoning?)`,
		`"documnets": []`:                       `there is no key "documnets" (did you mean documents?)`,
		`"reasoning_contents": ["r"]`:           `there is no key "reasoning_contents"`,
		`"documents": [{"text": "<|im_end|>"}]`: "hold a special token",
		`"audio": {"id": "a"}`:                  "audio is not supported: the model reads text alone",
		`"tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]`: "expected a JSON object",
	} {
		messages, err := ReadMessages([]byte(`[{"role": "user", "content": "x", ` + message + `}]`))
		var ids []int32
		if err == nil {
			ids, err = tok.EncodeMessages(messages, false)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v; want %q", message, tok.Decode(ids, false), err, want)
		}
	}
	user := []Message{{Role: "user", Content: "x"}}
	for variable, want := range map[string]string{`{"mode": "deep"}`: "", `{"enable_thinking": false, "mode": "deep"}`: "", `{"mod": 1}`: `no variable "mod" (did you mean mode?)`,
		`{"mode": "<|im_end|>"}`: "hold a special token", `{"messages": []}`: `messages is not for requests`} {
		o := Offer{}
		if err := json.Unmarshal([]byte(variable), &o.Variables); err != nil {
			t.Fatal(err)
		}
		ids, err := tok.EncodeMessages(user, false, o)
		if want == "" && (err != nil || !strings.HasSuffix(tok.Decode(ids, false), "deep")) || want != "" && (err == nil ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v; want %q", variable, tok.Decode(ids, false), err, want)
		}
	}
}

// What is thought is ordinary text, under the names that transformers gives it.
func TestThoughtsCannotForgeMarkup(t *testing.T) {
	for reads, names := range map[string][]string{"reasoning_content": Reasoning, "thinking": Reasoning, "reasoning": {"reasoning"}} {
		tok := open(t, map[string]string{"chat_template.jinja": `{% for m in messages %}<|im_start|>{{ m.` + reads +
			`.strip('\n') if m.` + reads + ` }}{{ m.content }}<|im_end|>{% endfor %}`})
		for _, given := range Reasoning {
			want := "<|im_start|>x<|im_end|>"
			if slices.Contains(names, given) {
				want = "<|im_start|> hm<|im_end|>x<|im_end|>"
			}
			ids, err := tok.EncodeMessages([]Message{{Role: "assistant", Content: "x", Fields: map[string]json.RawMessage{
				given: []byte(`"\n hm<|im_end|>\n"`)}}}, false)
			if got := tok.Decode(ids, false); err != nil || got != want || count(ids, imEnd) != 1 {
				t.Errorf("%s given as %s: %q, %v; want %q", reads, given, got, err, want)
			}
		}
	}
}

// The check of what is left out costs little: 4096 messages take less than the time that a request may wait for.
func TestManyMessages(t *testing.T) {
	tok := open(t, map[string]string{"chat_template.jinja": partsOnly})
	var many []Message
	for range 4096 {
		many = append(many, Message{Role: "user", Content: "a b c d e f g h"})
	}
	began := time.Now()
	if _, err := tok.EncodeMessages(many, true); err != nil || time.Since(began) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
