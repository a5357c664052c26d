package chat

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/starlark"

	"gyre/orchestrate/model/chat/bpe"
	"gyre/orchestrate/model/chat/jinja"
)

// part is a piece of a rendered chat: what the template wrote, or a text of the chat.
type part struct {
	text string
	slot int // -1: the template's
}

// The template is rendered with a sentinel in place of each text, and what it wrote is what lies between the
// sentinels. Sentinels are private-use characters around numbers: no template trims, splits or tests for them.
const sentinelOpen, sentinelClose = "\uf8f0", "\uf8f1"

// separate returns the parts of an arrangement that follow the last past message (all parts, if there is none), with
// the texts of messages in place. The true rendering proves that the template copies them as they are or without the
// white space around them; one that changes them otherwise is refused.
func (t *Tokenizer) separate(a arrangement) ([]part, error) {
	if a.mangled != nil {
		return nil, a.mangled
	}
	pattern, text := a.pattern, a.text
	if a.past > 0 {
		last := sentinel(a.nonce, a.past-1)
		if strings.Count(pattern, last) != 1 || strings.Count(text, last) != 1 {
			return nil, fmt.Errorf("%s does not write the content of an earlier %q message exactly once, so what "+
				"follows it cannot be told", t.template.path, a.messages[a.past-1].Role)
		}
		_, pattern, _ = strings.Cut(pattern, last)
		_, text, _ = strings.Cut(text, last)
	}
	parts, err := cut(pattern, a.nonce)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.template.path, err)
	}
	return t.fill(parts, text, a)
}

// fill replaces the sentinels in parts by texts, following the true rendering.
func (t *Tokenizer) fill(parts []part, text string, a arrangement) ([]part, error) {
	filled := make([]part, len(parts))
	written := make([]bool, len(a.slots))
	for i, p := range parts {
		if p.slot < 0 {
			if !strings.HasPrefix(text, p.text) {
				return nil, fmt.Errorf("%s writes something else when the contents change, so markup and contents "+
					"cannot be told apart near %.40q", t.template.path, text)
			}
			filled[i], text = p, text[len(p.text):]
			continue
		}
		if p.slot < a.past || p.slot >= len(a.slots) {
			return nil, fmt.Errorf("%s writes an earlier message again after a later one", t.template.path)
		}
		following := ""
		if i+1 < len(parts) && parts[i+1].slot < 0 {
			following = parts[i+1].text
		}
		s := a.slots[p.slot]
		rest, ok := "", false
		for _, p.text = range trims(s.text) {
			if rest, ok = strings.CutPrefix(text, p.text+following); ok {
				rest = following + rest
				break
			}
		}
		if !ok {
			return nil, fmt.Errorf("%s changes the content of the %q message %d (%.40q): it must copy contents as "+
				"they are, or trimmed", t.template.path, a.messages[s.message].Role, s.message-a.past, s.text)
		}
		filled[i], text, written[p.slot] = p, rest, true
	}
	if text != "" {
		return nil, fmt.Errorf("%s writes more when the contents change: %.40q", t.template.path, text)
	}
	for n, s := range a.slots { // what is written before the past does not follow it
		if m := a.messages[s.message]; n >= a.past && !written[n] && a.must(s) && len(m.ToolCalls) == 0 {
			return nil, t.leavesOut(s.message-a.past, m.Role)
		}
	}
	return filled, nil
}

// trims are the forms in which a template may copy a text: without white space or newlines at its ends, or as a JSON
// string without its quotes.
func trims(text string) []string {
	left, line := strings.TrimLeftFunc(text, jinja.IsSpace), strings.TrimLeft(text, "\n")
	quoted, _ := jinja.JSON(starlark.String(text)) // a string always encodes
	return []string{text, left, strings.TrimRightFunc(text, jinja.IsSpace), strings.TrimRightFunc(left, jinja.IsSpace),
		line, strings.TrimRight(text, "\n"), strings.TrimRight(line, "\n"), quoted[1 : len(quoted)-1]}
}

func sentinel(nonce, i int) string { return sentinelStart(nonce) + strconv.Itoa(i) + sentinelClose }

func sentinelStart(nonce int) string { return sentinelOpen + strconv.Itoa(nonce) + "." }

// freshNonce returns a number whose sentinels occur in no content.
func freshNonce(messages []Message) int {
	nonce := 0
	for slices.ContainsFunc(messages, func(m Message) bool {
		return strings.Contains(strings.Join(m.texts(), "\n"), sentinelStart(nonce))
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
		parts = append(parts, part{slot: i})
		pattern = rest
	}
}

// segments are the parts as the tokenizer takes them: contents are ordinary text.
func segments(parts []part) []bpe.Segment {
	all := make([]bpe.Segment, len(parts))
	for i, p := range parts {
		all[i] = bpe.Segment{Text: p.text, Ordinary: p.slot >= 0}
	}
	return all
}
