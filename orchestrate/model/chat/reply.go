package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"gyre/internal/regular"
	"gyre/orchestrate/model/chat/replies"
)

// replyFile is what a user puts beside a model to say how its replies are written.
const replyFile = "response_template.json"

// replyReading says how replies are taken apart.
type replyReading struct {
	own     *replies.Template // that the model directory gives; nil: it gives none
	problem error             // why it cannot be used
}

// findReplyTemplate looks for the response_template of a model directory: in a file of its own, then in
// tokenizer_config.json.
func (t *Tokenizer) findReplyTemplate(dir string, inConfig json.RawMessage) error {
	path := filepath.Join(dir, replyFile)
	source, err := regular.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		path, source, err = filepath.Join(dir, "tokenizer_config.json")+": response_template", inConfig, nil
	}
	if err != nil || len(source) == 0 || string(source) == "null" {
		return err
	}
	if t.replies.own, err = replies.Parse(source); err != nil {
		t.replies.problem = fmt.Errorf("%s: %w: write one that can be used to %s", path, err,
			filepath.Join(dir, replyFile))
	}
	return nil
}

// CheckReplies says why the response_template of the model directory cannot be used, where it cannot. Replies are then
// read as those of the family that the chat template belongs to.
func (t *Tokenizer) CheckReplies() error { return t.replies.problem }

// replyTemplate is the model's own, or that of the family that the chat template belongs to.
func (t *Tokenizer) replyTemplate() *replies.Template {
	switch {
	case t.replies.own != nil:
		return t.replies.own
	case t.template == nil:
		return replies.Of("")
	}
	return t.template.replies
}

// mostOpening bounds the tokens at the end of a prompt in which a reply may be begun.
const mostOpening = 1024

// Reader takes the reply to a prompt apart while it grows. Without tools, calls are text.
func (t *Tokenizer) Reader(prompt []int32, tools []Tool) *replies.Reader {
	var offered []replies.Tool
	for _, tool := range tools {
		parameters, _ := json.Marshal(tool.Parameters) // the template has written them
		offered = append(offered, replies.Tool{Name: tool.Name, Parameters: parameters})
	}
	return t.replyTemplate().New(t.Decode(prompt[max(0, len(prompt)-mostOpening):], false), offered)
}

// Ending is the text of the token that ended a reply, if one did: what a Reader's Finish is given.
func (t *Tokenizer) Ending(reply []int32) string {
	if n := len(reply); n > 0 && slices.Contains(t.stop, reply[n-1]) {
		return string(t.TokenBytes(reply[n-1]))
	}
	return ""
}

// ReadReply takes a whole reply apart.
func (t *Tokenizer) ReadReply(prompt, reply []int32, tools []Tool) []replies.Part {
	r := t.Reader(prompt, tools)
	return append(r.Add(t.Said(reply)), r.Finish(t.Ending(reply))...)
}

// Said is a reply as the assistant's message, without the ids of calls.
func Said(r replies.Reply) Message {
	m := Message{Role: "assistant", Content: r.Content}
	for _, call := range r.Calls {
		m.ToolCalls = append(m.ToolCalls, ToolCall{Type: "function", Function: call})
	}
	if r.Thinking != "" {
		thought, _ := json.Marshal(r.Thinking) // a text always encodes
		m.Fields = map[string]json.RawMessage{Reasoning[0]: thought}
	}
	return m
}
