package chat

import (
	"fmt"
	"slices"
	"strings"
)

// slot is a text of a chat that the template is to write: the content of a message, a part of it, or a field.
type slot struct {
	message int // of all
	text    string
	content bool
}

// arrangement is a chat in its template: rendered with sentinels in place of the texts, and as it is.
type arrangement struct {
	past, nonce   int
	messages      []Message // those of the past have their sentinels for contents
	lists         []bool    // which contents the template gets as lists of parts
	slots         []slot    // the first are the contents of the past
	pattern, text string
	mangled       error // why there is no pattern
}

// arrange renders past and messages. past messages are sentinels in both renderings: what a template makes of the turns
// that lie behind is of no interest, as their tokens stand.
//
// Contents that are lists stay lists, strings stay strings, as transformers has them, unless the template then leaves a
// text out or fails: those that go over parts get a string as one part, those that want strings get the parts joined. A
// content that is in no rendering is an error.
func (t *Tokenizer) arrange(past []string, messages []Message, f frame) (best arrangement, err error) {
	if t.template == nil {
		return best, t.noTemplate()
	}
	if err := CheckNames(messages); err != nil {
		return best, err
	}
	a := arrangement{past: len(past), nonce: freshNonce(messages)}
	for i, role := range past {
		a.messages = append(a.messages, Message{Role: role, Content: sentinel(a.nonce, i)})
	}
	a.messages = append(a.messages, messages...)
	a.lists = make([]bool, len(a.messages))
	for i, m := range a.messages {
		a.lists[i] = m.Parts != nil
	}
	var lost []int
	const tries = 3
	for n := range tries {
		left := t.mark(&a, f)
		if n == 0 || a.mangled == nil && (best.mangled != nil || len(left) < len(lost)) {
			best, lost = a, left
		}
		if best.mangled == nil && len(lost) == 0 {
			break
		}
		a.lists = slices.Clone(a.lists)
		for i := range a.lists {
			if a.mangled != nil {
				a.lists[i] = n > 0 // all strings, then all lists
			} else if slices.Contains(left, i) {
				a.lists[i] = !a.lists[i]
			}
		}
	}
	for _, i := range lost {
		if m := best.messages[i]; i >= len(past) && len(m.ToolCalls) == 0 { // some write no content beside calls
			return best, t.leavesOut(i-len(past), m.Role)
		}
	}
	values, err := t.values(best.messages, best.lists, func(_ int, text string, _ bool) string { return text })
	if err == nil {
		best.text, err = t.render(values, f)
	}
	return best, err
}

func (t *Tokenizer) leavesOut(i int, role string) error {
	return fmt.Errorf("%s leaves out the content of message %d (role %q): what it says would be lost, say it in another "+
		"message or take another template", t.template.path, i, role)
}

func (t *Tokenizer) noTemplate() error {
	return fmt.Errorf("%s has no chat template beside it: add a chat_template.jinja, name one in the "+
		"configuration (model.chat_template), or use plain text prompts", t.Path)
}

// mark renders a with sentinels, and gives the messages whose contents, or parts of them, are not in it.
func (t *Tokenizer) mark(a *arrangement, f frame) (lost []int) {
	a.slots = nil
	values, err := t.values(a.messages, a.lists, func(i int, text string, content bool) string {
		if text == "" { // templates write nothing for it
			return ""
		}
		a.slots = append(a.slots, slot{i, text, content})
		return sentinel(a.nonce, len(a.slots)-1)
	})
	if a.mangled = err; err == nil {
		a.pattern, a.mangled = t.render(values, f)
	}
	if a.mangled != nil {
		return nil
	}
	written := make([]bool, len(a.slots))
	for rest, found := a.pattern, true; found; {
		var n int
		_, rest, found = strings.Cut(rest, sentinelStart(a.nonce))
		if _, err := fmt.Sscanf(rest, "%d"+sentinelClose, &n); found && err == nil && n < len(written) {
			written[n] = true
		}
	}
	for n, s := range a.slots {
		if !written[n] && a.must(s) && !slices.Contains(lost, s.message) {
			lost = append(lost, s.message)
		}
	}
	return lost
}

// must tells whether a text may not be left out.
func (a *arrangement) must(s slot) bool { return s.content && strings.TrimSpace(s.text) != "" }
