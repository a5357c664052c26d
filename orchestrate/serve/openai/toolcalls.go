package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"gyre/orchestrate/model/chat"
)

// The two forms in which models write calls: Hermes's and Qwen's, <tool_call>{"name": …, "arguments": {…}}</tool_call>
// anywhere in a reply, and Llama 3's, a reply that is {"name": …, "parameters": {…}} and nothing else, several of them
// parted by semicolons.
const callOpen, callClose, pythonTag = "<tool_call>", "</tool_call>", "<|python_tag|>"

// callReader takes the calls out of a reply as it grows.
type callReader struct {
	on   bool // the request offers tools: otherwise all is text
	held string
	said bool // something other than white space has been passed on
}

// add gives what is certain to be text of what was said so far.
func (c *callReader) add(text string) string {
	if !c.on {
		return text
	}
	c.held += text
	if start := strings.TrimSpace(c.held); !c.said && (start == "" || start[0] == '{' ||
		strings.HasPrefix(pythonTag, start) || strings.HasPrefix(start, pythonTag)) {
		return "" // it may be Llama's form
	}
	at := strings.Index(c.held, callOpen)
	if at < 0 {
		at = len(c.held)
		for n := min(len(callOpen)-1, at); n > 0; n-- {
			if strings.HasSuffix(c.held, callOpen[:n]) {
				at -= n
				break
			}
		}
	}
	at = len(strings.TrimRight(c.held[:at], " \t\r\n")) // before a call it means nothing
	sure := c.held[:at]
	c.held, c.said = c.held[at:], c.said || sure != ""
	return sure
}

// finish gives the rest of the text, and the calls. What looks like a call and is none stays text.
func (c *callReader) finish() (rest string, calls []chat.ToolCall) {
	rest = c.held
	if !c.on {
		return rest, nil
	}
	if !strings.Contains(rest, callOpen) {
		if calls = bareCalls(rest); calls != nil {
			rest = ""
		}
		return rest, calls
	}
	var text strings.Builder
	for {
		before, after, found := strings.Cut(rest, callOpen)
		if !found {
			text.WriteString(rest)
			break
		}
		body, behind, closed := strings.Cut(after, callClose) // without its end, a reply that was cut off
		call, ok := callOf([]byte(body))
		if !ok {
			text.WriteString(before + callOpen)
			rest = after
			continue
		}
		text.WriteString(strings.TrimRight(before, " \t\r\n"))
		calls = append(calls, call)
		if rest = behind; !closed {
			break
		}
	}
	rest = text.String()
	if len(calls) > 0 && strings.TrimSpace(rest) == "" {
		rest = ""
	}
	return rest, calls
}

// bareCalls are the calls of a reply in Llama's form, nil if it is not.
func bareCalls(text string) (calls []chat.ToolCall) {
	text = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), pythonTag))
	for text != "" {
		var one json.RawMessage
		d := json.NewDecoder(strings.NewReader(text))
		if d.Decode(&one) != nil {
			return nil
		}
		call, ok := callOf(one)
		if !ok {
			return nil
		}
		calls = append(calls, call)
		text = strings.TrimLeft(text[d.InputOffset():], "; \t\r\n")
	}
	return calls
}

// callOf reads {"name": …, "arguments" or "parameters": {…}}.
func callOf(data []byte) (call chat.ToolCall, ok bool) {
	var written struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal(data, &written) != nil || written.Name == "" {
		return call, false
	}
	arguments := written.Arguments
	if arguments == nil {
		arguments = written.Parameters
	}
	var inner string
	if json.Unmarshal(arguments, &inner) == nil && inner != "" {
		arguments = json.RawMessage(inner) // some write the object as a string
	}
	if arguments = bytes.TrimSpace(arguments); len(arguments) == 0 || arguments[0] != '{' || !json.Valid(arguments) {
		return call, false
	}
	text, err := json.Marshal(string(arguments)) // OpenAI's clients want a string
	call.Type, call.Function = "function", chat.Call{Name: written.Name, Arguments: text}
	return call, err == nil
}
