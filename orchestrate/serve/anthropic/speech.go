package anthropic

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
)

// signed is what signatures of Gyre's begin with.
const signed = "gyre1-"

// signatureOf tells whether what was thought comes back as it was. It is no secret: who talks with the model may say
// anything in its name.
func signatureOf(thinking string) string {
	sum := sha256.Sum256([]byte(thinking))
	return signed + base64.RawURLEncoding.EncodeToString(sum[:])
}

// speech is a message as it grows: its blocks, and the events that tell of them.
type speech struct {
	events  serve.Events
	on      bool     // events are asked for
	content []object // blocks, the last of which is open where its text is
	kind    string   // of the block that is open: text, thinking, or "" for none
	text    strings.Builder
}

// send sends an event, if events are asked for.
func (s *speech) send(kind string, fields object) {
	if s.on {
		fields["type"] = kind
		s.events.Send(kind, fields)
	}
}

// block sends an event of the last block.
func (s *speech) block(kind string, fields object) {
	fields["index"] = len(s.content) - 1
	s.send(kind, fields)
}

func (s *speech) delta(kind, field, value string) {
	s.block("content_block_delta", object{"delta": object{"type": kind, field: value}})
}

// say adds what was thought, and then what is said.
func (s *speech) say(thought, said string) {
	s.grow("thinking", thought)
	s.grow("text", said)
}

// grow adds to the block of a kind, which its first words begin.
func (s *speech) grow(kind, words string) {
	if words == "" {
		return
	}
	if s.kind != kind {
		s.stop()
		begun := object{"type": kind, kind: ""}
		if kind == "thinking" {
			begun["signature"] = ""
		}
		s.kind, s.content = kind, append(s.content, begun)
		s.block("content_block_start", object{"content_block": begun})
	}
	s.text.WriteString(words)
	s.delta(kind+"_delta", kind, words)
}

// stop ends the block that is open.
func (s *speech) stop() {
	if s.kind == "" {
		return
	}
	last := s.content[len(s.content)-1]
	last[s.kind] = s.text.String()
	if s.kind == "thinking" {
		signature := signatureOf(s.text.String())
		last["signature"] = signature
		s.delta("signature_delta", "signature", signature)
	}
	s.block("content_block_stop", object{})
	s.kind = ""
	s.text.Reset()
}

// call adds the block of a call.
func (s *speech) call(call chat.ToolCall) {
	s.stop()
	var input string
	_ = json.Unmarshal(call.Function.Arguments, &input) // the reader of calls gives a string
	use := func(input string) object {
		return object{"type": "tool_use", "id": call.ID, "name": call.Function.Name, "input": json.RawMessage(input)}
	}
	s.content = append(s.content, use(input))
	s.block("content_block_start", object{"content_block": use("{}")})
	s.delta("input_json_delta", "partial_json", input)
	s.block("content_block_stop", object{})
}
