package chat

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestDirectories loads the model directories of testdata/directories.
func TestDirectories(t *testing.T) {
	datadriven.RunTest(t, "testdata/directories", func(t *testing.T, d *datadriven.TestData) string {
		files := map[string]string{}
		for name, content := range pairs(t, d) {
			files[name] = content
		}
		dir := directory(t, files)
		tok, err := Load(dir)
		if err != nil {
			return strings.ReplaceAll(err.Error(), dir, "DIR")
		}
		out := fmt.Sprintf("stops %v", tok.StopIDs())
		if tok.HasTemplate() {
			text, err := tok.Render([]Message{{Role: "user", Content: "x"}}, false)
			out += fmt.Sprintf(", renders %q", text)
			if err != nil {
				t.Error(err)
			}
		}
		for _, arg := range d.CmdArgs {
			for _, content := range arg.Vals {
				ids, _ := tok.EncodeMarkup("x" + content)
				last := ids[len(ids)-1]
				out += fmt.Sprintf("\n%s: token %v, special %v", content, string(tok.TokenBytes(last)) == content,
					tok.Special(last))
			}
		}
		return out
	})
}

// TestConversations holds the conversations of testdata/conversations.
func TestConversations(t *testing.T) {
	var tok *Tokenizer
	datadriven.RunTest(t, "testdata/conversations", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "template" {
			tok = templated(t, d)
			return "ok"
		}
		start := ""
		d.MaybeScanArgs(t, "start", &start)
		return converse(t, tok, d, start)
	})
}

// templated makes the tokenizer of a template directive.
func templated(t *testing.T, d *datadriven.TestData) *Tokenizer {
	files, file := map[string]string{"chat_template.jinja": d.Input}, ""
	d.MaybeScanArgs(t, "file", &file)
	switch file {
	case "":
	case "none":
		files = map[string]string{}
	case "chatml":
		files["chat_template.jinja"] = ChatML
	default:
		return withTemplate(t, file)
	}
	if stop, has := d.Arg("stop"); has {
		plain, ids := open(t, map[string]string{}), []int32{}
		for _, text := range stop.Vals {
			one, _ := plain.EncodeMarkup(text)
			ids = append(ids, one...)
		}
		files["generation_config.json"] = fmt.Sprintf(`{"eos_token_id": %s}`, asJSON(t, ids))
	}
	return open(t, files)
}

// converse opens a conversation and continues it after each reply.
func converse(t *testing.T, tok *Tokenizer, d *datadriven.TestData, start string) string {
	var out strings.Builder
	var messages []Message
	var reply []int32
	c, replied := tok.NewConversation(), false
	say := func() (err error) {
		var spans []Span
		if replied {
			spans, err = c.Continue(reply, messages, start)
		} else {
			spans, err = c.Open(messages, start)
		}
		for _, s := range spans {
			owner := map[Owner]string{ByTemplate: "template", ByEnvironment: "environment"}[s.Owner]
			fmt.Fprintf(&out, "%s %q\n", owner, tok.Decode(s.IDs, false))
		}
		messages, reply, replied = nil, nil, true
		return err
	}
	for role, content := range pairs(t, d) {
		if role != "reply" {
			messages = append(messages, Message{Role: role, Content: content})
			continue
		}
		if len(messages) > 0 {
			if err := say(); err != nil {
				return err.Error()
			}
		}
		ids, err := tok.EncodeMarkup(content)
		if err != nil {
			t.Fatal(err)
		}
		reply = append(reply, ids...)
		fmt.Fprintf(&out, "reply %q\n", content)
	}
	if err := say(); err != nil {
		return strings.ReplaceAll(err.Error(), filepath.Dir(tok.Path), "DIR")
	}
	return out.String()
}

// pairs yields the lines of a case, NAME: TEXT, where "…" is a text with escapes.
func pairs(t *testing.T, d *datadriven.TestData) func(yield func(name, text string) bool) {
	return func(yield func(name, text string) bool) {
		for line := range strings.Lines(d.Input) {
			name, text, found := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			if text = strings.TrimPrefix(text, " "); strings.HasPrefix(text, `"`) {
				var err error
				if text, err = strconv.Unquote(text); err != nil {
					d.Fatalf(t, "%s: %v", line, err)
				}
			}
			if !found {
				d.Fatalf(t, "%q: expected NAME: TEXT", line)
			}
			if !yield(name, text) {
				return
			}
		}
	}
}

func asJSON(t *testing.T, v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
