package chat

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
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

func (r renderedChat) offered() (o Offer) {
	for _, tool := range r.Tools {
		o.Tools = append(o.Tools, Tool{Name: tool.Name, Description: tool.Description, Parameters: tool.Parameters})
	}
	return o
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
		got, err := tok.Render(r.Messages, r.Prompt, r.offered())
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

func TestSetTemplate(t *testing.T) {
	user := []Message{{Role: "user", Content: "x"}}
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

// A template that never writes tools is told from one that does, and so is none.
func TestShowsTools(t *testing.T) {
	tok := open(t, map[string]string{})
	if tok.ShowsTools() {
		t.Error("without a template")
	}
	for source, want := range map[string]bool{
		ChatML: false,
		"{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{{ messages[0].content }}": true,
		"{% if tools %}{{ raise_exception('none') }}{% endif %}{{ messages[0].content }}":       true, // refuses aloud
	} {
		if err := tok.SetTemplate(source); err != nil {
			t.Fatal(err)
		}
		if got := tok.ShowsTools(); got != want {
			t.Errorf("%s: %v", source, got)
		}
	}
}

// What is wrong with a template says where it stands, and does not repeat it.
func TestTemplateErrors(t *testing.T) {
	tok := open(t, map[string]string{})
	if err := tok.SetTemplate("{% for %}" + strings.Repeat("long text ", 1000)); err == nil || len(err.Error()) > 1000 {
		t.Errorf("%.2000v: want an error that does not repeat the template", err)
	}
}

// Render is what the template makes of messages.
func (t *Tokenizer) Render(messages []Message, addGenerationPrompt bool, offered ...Offer) (string, error) {
	if t.template == nil {
		return "", t.noTemplate()
	}
	f := frame{prompt: addGenerationPrompt, now: t.now()}
	for _, o := range offered {
		if err := t.offer(&f, o); err != nil {
			return "", err
		}
	}
	lists := make([]bool, len(messages))
	for i, m := range messages {
		lists[i] = m.Parts != nil
	}
	values, err := t.values(messages, lists, func(_ int, text string, _ bool) string { return text })
	if err != nil {
		return "", err
	}
	return t.render(values, f)
}

func TestTemplateTime(t *testing.T) {
	tok := open(t, map[string]string{"chat_template.jinja": "{{ strftime_now('%d %b %Y|%H:%M:%S|%j|%-d|%y%%|%J') }}"})
	tok.now = func() time.Time { return time.Date(2024, 7, 6, 9, 5, 3, 0, time.UTC) }
	if got, err := tok.Render(nil, false); err != nil || got != "06 Jul 2024|09:05:03|188|6|24%|%J" {
		t.Errorf("got %q, %v", got, err)
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
