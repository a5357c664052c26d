package bpe

import (
	"strings"
	"unicode"
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

var splitters = map[string]splitter{patternGPT2: gpt2, patternQwen2: qwen2, patternLlama3: scanner{true, 3}}

var gpt2, qwen2 = scanner{}, scanner{true, 1}

// A splitter cuts a text into pieces: next returns the length in bytes of the first piece of a non-empty s.
type splitter interface{ next(s string) int }

// scanner scans patternGPT2 (the zero value), patternQwen2 (modern, 1 digit) and patternLlama3 (modern, 3 digits).
type scanner struct {
	modern bool
	digits int // in a piece; 0: any number
}

func (p scanner) next(s string) int {
	if n := contraction(s, p.modern); n > 0 {
		return n
	}
	r, n := utf8.DecodeRuneInString(s)
	c := classify(r)
	if n < len(s) && (c == space || c == other) { // a character that goes with the word after it
		r2, n2 := utf8.DecodeRuneInString(s[n:])
		c2 := classify(r2)
		joins := r == ' ' && c2 != space
		if p.modern {
			joins = r == ' ' && c2 == other || c2 == letter && r != '\r' && r != '\n'
		}
		if joins {
			n, c = n+n2, c2
		}
	}
	switch c {
	case letter:
		return n + run(s[n:], letter, -1)
	case number:
		return n + run(s[n:], number, p.digits-1)
	case other:
		n += run(s[n:], other, -1)
		if p.modern {
			n += len(s[n:]) - len(strings.TrimLeft(s[n:], "\r\n"))
		}
		return n
	}
	n = run(s, space, -1)
	if last := strings.LastIndexAny(s[:n], "\r\n"); last >= 0 && p.modern {
		return last + 1
	}
	// \s+(?!\S)|\s+: the last space goes with the word that follows.
	if _, last := utf8.DecodeLastRuneInString(s[:n]); n < len(s) && n > last {
		n -= last
	}
	return n
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

var contractions = []string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}

// contraction gives the length of a contraction at the start of s. Without case, the long s (U+017F) is an s too, as
// case folding has it.
func contraction(s string, fold bool) int {
	if s[0] != '\'' {
		return 0
	}
	for _, c := range contractions {
		if head := s[:min(len(c), len(s))]; head == c || fold && strings.EqualFold(head, c) {
			return len(c)
		}
	}
	if fold && strings.HasPrefix(s, "'\u017f") {
		return len("'\u017f")
	}
	return 0
}

// digits is the pre-tokenizer Digits: numbers apart from the rest, each alone when individual is set.
type digits struct{ individual bool }

func (d digits) next(s string) int {
	first, n := utf8.DecodeRuneInString(s)
	if classify(first) == number && d.individual {
		return n
	}
	for i, r := range s {
		if (classify(r) == number) != (classify(first) == number) {
			return i
		}
	}
	return len(s)
}

// class is what the patterns tell apart: \p{L}, \p{N}, \s and the rest, in the Unicode version of Go.
type class uint8

const (
	other class = iota
	letter
	number
	space
)

func classify(r rune) class {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// isWord is the class \w of Rust's regex crate.
func isWord(r rune) bool {
	return classify(r) == letter ||
		unicode.In(r, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}
