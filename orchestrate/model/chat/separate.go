package chat

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.starlark.net/starlark"

	"gyre/orchestrate/model/chat/bpe"
	"gyre/orchestrate/model/chat/jinja"
)

// part is a piece of a rendered chat: what the template wrote, or the content of message number message.
type part struct {
	text    string
	message int // -1: the template's
}

// The template is rendered with a sentinel in place of each content, and what it wrote is what lies between the
// sentinels. Sentinels are private-use characters around numbers: no template trims, splits or tests for them.
const sentinelOpen, sentinelClose = "\uf8f0", "\uf8f1"

// separate renders past and messages and returns the parts that follow the last past message (all parts, if there is
// none), with the contents of messages in place. Rendering a second time with the true contents proves that the
// template copies them as they are or without the white space around them; one that changes them otherwise is refused.
//
// past messages are sentinels in both renderings: what a template makes of the turns that lie behind is of no interest,
// as their tokens stand.
func (t *Tokenizer) separate(past []string, messages []Message, tools []jinja.Value, addGenerationPrompt bool,
	now time.Time) ([]part, error) {
	if err := CheckNames(messages); err != nil {
		return nil, err
	}
	nonce := freshNonce(messages)
	marked, actual := make([]Message, 0, len(past)+len(messages)), make([]Message, 0, len(past)+len(messages))
	for i, role := range past {
		m := Message{Role: role, Content: sentinel(nonce, i)}
		marked, actual = append(marked, m), append(actual, m)
	}
	for i, m := range messages {
		actual = append(actual, m)
		if m.Content != "" || len(m.ToolCalls) == 0 { // templates write nothing for the empty content beside calls
			m.Content = sentinel(nonce, len(past)+i)
		}
		marked = append(marked, m)
	}
	pattern, err := t.render(marked, tools, addGenerationPrompt, now)
	if err != nil {
		return nil, err
	}
	text, err := t.render(actual, tools, addGenerationPrompt, now)
	if err != nil {
		return nil, err
	}
	if len(past) > 0 {
		last := sentinel(nonce, len(past)-1)
		if strings.Count(pattern, last) != 1 || strings.Count(text, last) != 1 {
			return nil, fmt.Errorf("%s does not write the content of an earlier %q message exactly once, so what "+
				"follows it cannot be told", t.template.path, past[len(past)-1])
		}
		_, pattern, _ = strings.Cut(pattern, last)
		_, text, _ = strings.Cut(text, last)
	}
	parts, err := cut(pattern, nonce)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.template.path, err)
	}
	return t.fill(parts, text, len(past), messages)
}

// fill replaces the sentinels in parts by contents, following the true rendering.
func (t *Tokenizer) fill(parts []part, text string, past int, messages []Message) ([]part, error) {
	filled := make([]part, len(parts))
	written := make([]bool, len(messages))
	for i, p := range parts {
		if p.message < 0 {
			if !strings.HasPrefix(text, p.text) {
				return nil, fmt.Errorf("%s writes something else when the contents change, so markup and contents "+
					"cannot be told apart near %.40q", t.template.path, text)
			}
			filled[i], text = p, text[len(p.text):]
			continue
		}
		p.message -= past
		if p.message < 0 || p.message >= len(messages) {
			return nil, fmt.Errorf("%s writes an earlier message again after a later one", t.template.path)
		}
		following := ""
		if i+1 < len(parts) && parts[i+1].message < 0 {
			following = parts[i+1].text
		}
		m := messages[p.message]
		rest, ok := "", false
		for _, p.text = range trims(m.Content) {
			if rest, ok = strings.CutPrefix(text, p.text+following); ok {
				rest = following + rest
				break
			}
		}
		if !ok {
			return nil, fmt.Errorf("%s changes the content of the %q message %d (%.40q): it must copy contents as "+
				"they are, or trimmed", t.template.path, m.Role, p.message, m.Content)
		}
		filled[i], text, written[p.message] = p, rest, true
	}
	if text != "" {
		return nil, fmt.Errorf("%s writes more when the contents change: %.40q", t.template.path, text)
	}
	for i, ok := range written { // some templates write nothing beside calls
		if !ok && strings.TrimSpace(messages[i].Content) != "" && len(messages[i].ToolCalls) == 0 {
			return nil, fmt.Errorf("%s leaves out the content of message %d (role %q)", t.template.path, i,
				messages[i].Role)
		}
	}
	return filled, nil
}

// trims are the forms in which a template may copy a content; the last is that of a JSON string, without its quotes.
func trims(content string) []string {
	left := strings.TrimLeftFunc(content, jinja.IsSpace)
	text, _ := jinja.JSON(starlark.String(content)) // a string always encodes
	return []string{content, left, strings.TrimRightFunc(content, jinja.IsSpace), strings.TrimRightFunc(left,
		jinja.IsSpace), text[1 : len(text)-1]}
}

func sentinel(nonce, i int) string { return sentinelStart(nonce) + strconv.Itoa(i) + sentinelClose }

func sentinelStart(nonce int) string { return sentinelOpen + strconv.Itoa(nonce) + "." }

// freshNonce returns a number whose sentinels occur in no content.
func freshNonce(messages []Message) int {
	nonce := 0
	for slices.ContainsFunc(messages, func(m Message) bool {
		return strings.Contains(m.Content, sentinelStart(nonce))
	}) {
		nonce++
	}
	return nonce
}

// cut splits a rendering at its sentinels.
func cut(pattern string, nonce int) ([]part, error) {
	var parts []part
	for {
		before, after, found := strings.Cut(pattern, sentinelStart(nonce))
		if before != "" {
			parts = append(parts, part{before, -1})
		}
		if !found {
			return parts, nil
		}
		number, rest, _ := strings.Cut(after, sentinelClose)
		i, err := strconv.Atoi(number)
		if err != nil {
			return nil, errors.New("the template changes the contents of messages, so markup and contents cannot be " +
				"told apart")
		}
		parts = append(parts, part{message: i})
		pattern = rest
	}
}

// segments are the parts as the tokenizer takes them: contents are ordinary text.
func segments(parts []part) []bpe.Segment {
	all := make([]bpe.Segment, len(parts))
	for i, p := range parts {
		all[i] = bpe.Segment{Text: p.text, Ordinary: p.message >= 0}
	}
	return all
}
