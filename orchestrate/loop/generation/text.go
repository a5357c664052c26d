package generation

import (
	"slices"
	"strings"
	"unicode/utf8"

	"gyre/orchestrate/model/chat/bpe"
)

// Text turns a growing list of tokens into text.
type Text struct {
	stream  bpe.Stream
	stops   []string
	held    []byte // not handed out yet: an incomplete character, or what may begin a stop string
	stopped bool   // a stop string was found: nothing follows
}

// NewText starts an empty text that ends before the first of the stop strings.
func NewText(tokenizer Tokenizer, stops []string) *Text {
	return &Text{stream: tokenizer.Stream(true), stops: stops}
}

// Add gives what is certain by now of the text that tokens add.
func (t *Text) Add(tokens []int32) string {
	for _, id := range tokens {
		t.held = append(t.held, t.stream.Add(id)...)
	}
	return t.release(func() int { return max(incomplete(t.held), t.beginning()) })
}

// Finish gives the rest of the text.
func (t *Text) Finish() string {
	t.held = append(t.held, t.stream.Finish()...)
	return t.release(func() int { return 0 })
}

// release gives what is held, up to a stop string, but for what waits for more.
func (t *Text) release(waits func() int) string {
	if t.stopped {
		return ""
	}
	if at := t.stop(); at >= 0 {
		t.stopped = true
		return bpe.ToValidUTF8(string(t.held[:at]))
	}
	certain := len(t.held) - waits()
	text := bpe.ToValidUTF8(string(t.held[:certain]))
	t.held = slices.Delete(t.held, 0, certain)
	return text
}

// stop is where the first stop string begins, -1 if there is none.
func (t *Text) stop() int {
	first := -1
	for _, s := range t.stops {
		if at := strings.Index(string(t.held), s); at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	return first
}

// beginning is the length of the longest end of what is held that a stop string begins with.
func (t *Text) beginning() int {
	longest := 0
	for _, s := range t.stops {
		for n := min(len(s)-1, len(t.held)); n > longest; n-- {
			if strings.HasPrefix(s, string(t.held[len(t.held)-n:])) {
				longest = n
			}
		}
	}
	return longest
}

// incomplete is the number of bytes at the end that begin a character and wait for the rest of it.
func incomplete(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		tail := b[len(b)-n:]
		if utf8.RuneStart(tail[0]) {
			if tail[0] >= utf8.RuneSelf && !utf8.FullRune(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}
