package bpe

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pattern is what a Split or a Replace looks for: matches gives where it is found, from left to right.
type pattern interface{ matches(s string) [][2]int }

// literal is a pattern that is a plain text.
type literal string

func (l literal) matches(s string) (found [][2]int) {
	for at := 0; l != ""; {
		i := strings.Index(s[at:], string(l))
		if i < 0 {
			break
		}
		found = append(found, [2]int{at + i, at + i + len(l)})
		at += i + len(l)
	}
	return found
}

// runes is a pattern that matches single characters.
type runes func(rune) bool

func (is runes) matches(s string) (found [][2]int) {
	for i, r := range s {
		if is(r) {
			found = append(found, [2]int{i, i + utf8.RuneLen(r)})
		}
	}
	return found
}

// expression is a regular expression. Go's take time linear in the text, but know no lookahead: where an alternative
// ended with (?!\S), it is a group that white space or the end of the text follows.
type expression struct{ *regexp.Regexp }

func (e expression) matches(s string) (found [][2]int) {
	for at := 0; at <= len(s); {
		m := e.FindStringSubmatchIndex(s[at:])
		if m == nil {
			break
		}
		start, end := at+m[0], at+m[1]
		for group := 2; group < len(m); group += 2 {
			if m[group] >= 0 {
				end = at + m[group+1]
			}
		}
		found = append(found, [2]int{start, end})
		if at = end; start == end {
			_, n := utf8.DecodeRuneInString(s[at:])
			at += max(n, 1)
		}
	}
	return found
}

// What \s, \w and \d stand for in Hugging Face's patterns, inside a class. Go's are ASCII's.
var classes = map[byte]string{
	's': `\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`,
	'S': `\x00-\x08\x0e-\x1f\x21-\x84\x86-\x9f\xa1-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}` +
		`\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}`,
	'd': `\p{Nd}`, 'D': `\P{Nd}`,
	'w': `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}`,
}

const notBeforeText = `(?!\S)`

// pattern reads a pattern as the Rust crate takes it (Oniguruma's).
func (c component) pattern() (pattern, error) {
	switch {
	case c.Pattern.String != nil:
		return literal(*c.Pattern.String), nil
	case c.Pattern.Regex == nil:
		return nil, fmt.Errorf("%s lacks a pattern: expected {\"String\": …} or {\"Regex\": …}", c.Type)
	}
	translated, err := translate(*c.Pattern.Regex)
	if err == nil {
		var compiled *regexp.Regexp
		if compiled, err = regexp.Compile(translated); err == nil {
			return expression{compiled}, nil
		}
	}
	return nil, fmt.Errorf("%s has a pattern that is not supported: %q: %w", c.Type, *c.Pattern.Regex, err)
}

// translate writes a pattern in Go's syntax, without groups that capture.
func translate(source string) (string, error) {
	var alternatives []string
	var b strings.Builder
	depth, class := 0, false
	end := func(look bool) {
		text := b.String()
		b.Reset()
		if look {
			text = "(" + text + ")(?:[" + classes['s'] + `]|\z)`
		}
		alternatives = append(alternatives, text)
	}
	for i := 0; i < len(source); i++ {
		rest := source[i:]
		switch c := source[i]; {
		case c == '\\' && len(rest) > 1:
			i++
			text, err := escaped(rest[1], class)
			if err != nil {
				return "", err
			}
			b.WriteString(text)
		case class && c == '[' || class && strings.HasPrefix(rest, "&&"):
			return "", errors.New("classes in classes are not known")
		case class:
			class = c != ']'
			b.WriteByte(c)
		case strings.HasPrefix(rest, notBeforeText) && depth == 0 &&
			(len(rest) == len(notBeforeText) || rest[len(notBeforeText)] == '|'):
			end(true)
			if i += len(notBeforeText); i == len(source) {
				return strings.Join(alternatives, "|"), nil
			}
		case c == '|' && depth == 0:
			end(false)
		case c == '(' && !strings.HasPrefix(rest, "(?"):
			depth++
			b.WriteString("(?:")
		case c == '$' || c == '^':
			return "", fmt.Errorf("%c is not known", c)
		case strings.HasPrefix(rest, "(?<") || strings.HasPrefix(rest, "(?P"):
			return "", errors.New("named groups and lookbehind are not known")
		default:
			depth += strings.Count(rest[:1], "(") - strings.Count(rest[:1], ")")
			class = c == '['
			if class && strings.HasPrefix(rest, "[^]") || strings.HasPrefix(rest, "[]") {
				return "", errors.New("] at the start of a class is not known")
			}
			if strings.HasPrefix(rest, "[^") {
				i++
				b.WriteByte('[')
				c = '^'
			}
			b.WriteByte(c)
		}
	}
	end(false)
	return strings.Join(alternatives, "|"), nil
}

// escaped is what a character behind a backslash stands for, inside a class or outside.
func escaped(c byte, class bool) (string, error) {
	switch set, ok := classes[c]; {
	case ok && class:
		return set, nil
	case ok:
		return "[" + set + "]", nil
	case strings.IndexByte("hHWRXGKkgzZbB", c) >= 0:
		return "", fmt.Errorf("\\%c is not known", c)
	}
	return string([]byte{'\\', c}), nil
}

// runs is a pattern that matches runs of characters of one kind; kind 0 is never matched.
type runs func(rune) int

func (kind runs) matches(s string) (found [][2]int) {
	before := 0
	for i, r := range s {
		k := kind(r)
		switch n := len(found); {
		case k != 0 && k == before:
			found[n-1][1] = i + utf8.RuneLen(r)
		case k != 0:
			found = append(found, [2]int{i, i + utf8.RuneLen(r)})
		}
		before = k
	}
	return found
}

// wordsOrSymbols is the pattern of the pre-tokenizer Whitespace, \w+|[^\w\s]+.
func wordsOrSymbols(r rune) int {
	switch {
	case isWord(r):
		return 1
	case unicode.IsSpace(r):
		return 0
	}
	return 2
}
