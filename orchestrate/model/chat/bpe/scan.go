package bpe

import (
	"strings"
	"unicode/utf8"
)

// The patterns that pre-tokenizers are known to split by. They are scanned by hand: Go's regexp has no lookahead, and
// a backtracking engine would make hostile text expensive. Both patterns match every character, so that what "Isolated"
// and the inverted "Removed" keep is the same.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

var splitters = map[string]splitter{patternGPT2: gpt2{}, patternQwen2: modern{digits: 1},
	patternLlama3: modern{digits: 3}}

// A splitter cuts a text into pieces: next returns the length in bytes of the first piece of a non-empty s.
type splitter interface{ next(s string) int }

// gpt2 scans patternGPT2.
type gpt2 struct{}

func (gpt2) next(s string) int {
	if n := contraction(s, false); n > 0 {
		return n
	}
	r, n := utf8.DecodeRuneInString(s)
	c := classify(r)
	if r == ' ' && len(s) > 1 {
		if r2, n2 := utf8.DecodeRuneInString(s[1:]); classify(r2) != space {
			return 1 + n2 + run(s[1+n2:], classify(r2), -1)
		}
	}
	if c == space {
		return spaces(s)
	}
	return n + run(s[n:], c, -1)
}

// modern scans patternQwen2 (digits 1) and patternLlama3 (digits 3).
type modern struct{ digits int }

func (m modern) next(s string) int {
	if n := contraction(s, true); n > 0 {
		return n
	}
	r, n := utf8.DecodeRuneInString(s)
	c := classify(r)
	switch c {
	case letter:
		return n + run(s[n:], letter, -1)
	case number:
		return n + run(s[n:], number, m.digits-1)
	}
	r2, n2 := utf8.DecodeRuneInString(s[n:])
	following := n < len(s)
	if following && r != '\r' && r != '\n' && classify(r2) == letter {
		return n + n2 + run(s[n+n2:], letter, -1)
	}
	if c == other {
		n += run(s[n:], other, -1)
		return n + newlines(s[n:])
	}
	if r == ' ' && following && classify(r2) == other {
		n += n2 + run(s[n+n2:], other, -1)
		return n + newlines(s[n:])
	}
	all := run(s, space, -1)
	if last := strings.LastIndexAny(s[:all], "\r\n"); last >= 0 {
		return last + 1
	}
	return spaces(s)
}

// run returns the length of the longest start of s whose characters are of class c, of at most max characters when
// max >= 0.
func run(s string, c class, max int) int {
	for i, r := range s {
		if max == 0 || classify(r) != c {
			return i
		}
		max--
	}
	return len(s)
}

// spaces matches \s+(?!\S)|\s+ at a space: the whole run at the end of the text, else the run without its last
// character, which goes with the word that follows.
func spaces(s string) int {
	n := run(s, space, -1)
	if n == len(s) {
		return n
	}
	_, last := utf8.DecodeLastRuneInString(s[:n])
	if n > last {
		return n - last
	}
	return n
}

func newlines(s string) int {
	n := 0
	for n < len(s) && (s[n] == '\r' || s[n] == '\n') {
		n++
	}
	return n
}

// contraction matches 's|'t|'re|'ve|'m|'ll|'d. Without case, the long s (U+017F) is an s too, as case folding has it.
func contraction(s string, fold bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	lower := func(i int) byte {
		if i >= len(s) {
			return 0
		}
		if fold && 'A' <= s[i] && s[i] <= 'Z' {
			return s[i] + 'a' - 'A'
		}
		return s[i]
	}
	a, b := lower(1), lower(2)
	switch {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return 3
	case fold && strings.HasPrefix(s[1:], "\u017f"):
		return 3
	}
	return 0
}

// digits is the pre-tokenizer Digits: numbers apart from the rest, each alone when individual is set.
type digits struct{ individual bool }

func (d digits) next(s string) int {
	first, n := utf8.DecodeRuneInString(s)
	if isDigit(first) && d.individual {
		return n
	}
	for i, r := range s {
		if isDigit(r) != isDigit(first) {
			return i
		}
	}
	return len(s)
}
