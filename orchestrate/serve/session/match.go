package session

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"gyre/orchestrate/model/chat"
)

// way is how far messages follow what was said.
type way struct {
	at    *Turn // the last reply that they repeat; nil = none
	taken int   // messages up to it
	exact int   // replies that they repeat with all their thinking
}

// follow finds the longest way from some turns on; of several the one whose replies are repeated most exactly, then the
// newest. A reply counts only where something follows it.
func follow(turns []*Turn, messages []chat.Message) (best way) {
	for _, t := range turns {
		n := len(t.messages)
		if len(messages) < n+2 || !sameMessages(t.messages, messages[:n]) {
			continue
		}
		fits, exact := t.said.is(messages[n])
		if !fits {
			continue
		}
		w := follow(t.children, messages[n+1:])
		if w.at == nil {
			w.at = t
		}
		w.taken += n + 1
		if exact {
			w.exact++
		}
		if best.at == nil || cmp.Or(cmp.Compare(w.taken, best.taken), cmp.Compare(w.exact, best.exact)) >= 0 {
			best = w
		}
	}
	return best
}

// sameMessages compares what was said between two replies: white space at the ends and the order of the results of
// tools do not matter.
func sameMessages(a, b []chat.Message) bool {
	return slices.EqualFunc(inOrder(a), inOrder(b), func(a, b chat.Message) bool {
		return a.Role == b.Role && a.Name == b.Name && a.ToolCallID == b.ToolCallID &&
			strings.TrimSpace(a.Content) == strings.TrimSpace(b.Content) && sameCalls(a.ToolCalls, b.ToolCalls) &&
			maps.EqualFunc(a.Fields, b.Fields, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
	})
}

// inOrder sorts the results of tools that stand side by side.
func inOrder(messages []chat.Message) []chat.Message {
	sorted := slices.Clone(messages)
	for from := 0; from < len(sorted); from++ {
		to := from
		for to < len(sorted) && sorted[to].Role == "tool" {
			to++
		}
		slices.SortStableFunc(sorted[from:to], func(a, b chat.Message) int {
			return cmp.Or(strings.Compare(a.ToolCallID, b.ToolCallID), strings.Compare(a.Name, b.Name),
				strings.Compare(strings.TrimSpace(a.Content), strings.TrimSpace(b.Content)))
		})
		from = max(from, to)
	}
	return sorted
}

// reply is what the model said in the forms in which a client may repeat it.
type reply struct {
	text    string
	whole   [][]string // the reply as text, calls included: first as it is, then without thinking
	content []string   // what was given beside the calls, likewise
	calls   []chat.ToolCall
	thought string // what was given as thought beside the content
}

func newReply(text string, given chat.Message) reply {
	r := reply{text: text, content: forms(given.Content), calls: given.ToolCalls}
	r.thought, _ = reasoning(given)
	r.whole = [][]string{forms(text)}
	if len(given.ToolCalls) == 0 {
		r.whole = append(r.whole, r.content) // what a stop string cut off is not given
	}
	return r
}

// is tells whether a message repeats the reply, and whether with all of its thinking.
func (r reply) is(m chat.Message) (fits, exact bool) {
	thought, has := reasoning(m)
	if m.Role != "assistant" || thought != r.thought && !strings.Contains(r.text, thought) {
		return false, false
	}
	content := strings.TrimSpace(m.Content)
	if len(m.ToolCalls) > 0 {
		at := slices.Index(r.content, content)
		return at >= 0 && sameCalls(m.ToolCalls, r.calls), at == 0 && r.thought == "" || has
	}
	for i, list := range r.whole {
		if at := slices.Index(list, content); at >= 0 {
			return true, at == 0 && (i == 0 || r.thought == "") || has
		}
	}
	return false, false
}

// reasoning is what a message says that the assistant thought, if it says so.
func reasoning(m chat.Message) (thought string, has bool) {
	for _, name := range chat.Reasoning {
		if raw, ok := m.Fields[name]; ok && json.Unmarshal(raw, &thought) == nil && thought != "" {
			return strings.TrimSpace(thought), true
		}
	}
	return "", false
}

const (
	thoughtOpen  = "<think>"
	thoughtClose = "</think>"
)

var (
	thought      = regexp.MustCompile(`(?s)<think>.*?</think>`)
	thoughtSpace = regexp.MustCompile(`(?s)<think>.*?</think>\s*`)
)

// forms are a text and what it may be once somebody has taken the thinking out, without white space at the ends.
func forms(text string) []string {
	list := []string{text}
	if strings.Contains(text, thoughtOpen) {
		list = append(list, thought.ReplaceAllString(text, ""), thoughtSpace.ReplaceAllString(text, ""))
	}
	if at := strings.Index(text, thoughtClose); at >= 0 {
		last := strings.LastIndex(text, thoughtClose)
		list = append(list, text[at+len(thoughtClose):], text[last+len(thoughtClose):])
	}
	if at := strings.LastIndex(text, thoughtOpen); at >= 0 && !strings.Contains(text[at:], thoughtClose) {
		list = append(list, text[:at], thought.ReplaceAllString(text[:at], ""))
	}
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// withoutThoughts are messages in which the assistant speaks without thinking; nil where it does so already.
func withoutThoughts(messages []chat.Message) (bare []chat.Message) {
	for i, m := range messages {
		at := strings.LastIndex(m.Content, thoughtClose)
		if m.Role != "assistant" || at < 0 {
			continue
		}
		if bare == nil {
			bare = slices.Clone(messages)
		}
		bare[i].Parts, bare[i].Content = nil, strings.TrimSpace(m.Content[at+len(thoughtClose):])
	}
	return bare
}

// sameCalls compares calls by what they ask for.
func sameCalls(a, b []chat.ToolCall) bool {
	return slices.EqualFunc(a, b, func(a, b chat.ToolCall) bool {
		return a.Function.Name == b.Function.Name && plain(a.Function.Arguments) == plain(b.Function.Arguments)
	})
}

// plain is JSON, or JSON in a string, in one layout; what is no JSON stays as it is.
func plain(text json.RawMessage) string {
	var inner string
	if json.Unmarshal(text, &inner) == nil {
		text = json.RawMessage(inner)
	}
	var value any
	if trimmed := strings.TrimSpace(string(text)); trimmed == "" || trimmed == "null" {
		return "{}" // as the template gets it
	}
	if json.Unmarshal(text, &value) == nil {
		if again, err := json.Marshal(value); err == nil {
			return string(again)
		}
	}
	return strings.TrimSpace(string(text))
}

// nameTools tells lists of tools apart.
func nameTools(tools []chat.Tool) (string, error) {
	text, err := json.Marshal(tools)
	return string(text), err
}
