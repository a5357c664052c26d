package jinja

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// segment is a stretch of a template.
type segment struct {
	kind   byte // 't' text, '{' an expression, '%' a tag
	text   string
	tokens []token
	line   int
}

// token is a word of an expression: kind is 'n' (name), 's' (string), 'i', 'f' (numbers), 'o' (operator) or 0 at the
// end.
type token struct {
	kind byte
	text string
}

var (
	tokens = regexp.MustCompile(`^(?:(?P<space>\s+)|(?P<f>(?:\d+_)*\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+))|` +
		`(?P<i>(?:\d+_)*\d+)|(?P<n>[\pL_][\pL\pN_]*)|(?P<s>'(?:[^'\\]|\\(?s:.))*'|"(?:[^"\\]|\\(?s:.))*")|` +
		`(?P<o>//|==|!=|>=|<=|[-+*/%~\[\](){}.:|,;=<>]))`)
	opening = regexp.MustCompile(`\{[{%#]`)
	endraw  = regexp.MustCompile(`\{%(-|\+|)\s*endraw\s*(-%\}\s*|\+%\}|%\}\n?)`)
	raw     = regexp.MustCompile(`^\{%[-+]?\s*raw\s*(-%\}\s*|%\})`)
)

// scan cuts a template into segments. A newline after a tag or a comment is part of it, and so is the white space
// between the start of a line and a tag or comment.
func scan(source string) (out []segment) {
	source = strings.TrimSuffix(strings.ReplaceAll(source, "\r\n", "\n"), "\n")
	starts := true // a line starts here
	for at, line := 0, 1; at < len(source); {
		open := len(source)
		if i := opening.FindStringIndex(source[at:]); i != nil {
			open = at + i[0]
		}
		text := source[at:open]
		line += strings.Count(text, "\n")
		if open < len(source) {
			text = before(text, source[open:], starts)
		}
		if text != "" {
			out = append(out, segment{kind: 't', text: text, line: line})
		}
		if at = open; at == len(source) {
			break
		}
		found := segment{kind: source[at+1], line: line}
		rest := source[at:]
		n := 0
		if m := raw.FindString(rest); m != "" {
			end := endraw.FindStringSubmatchIndex(rest)
			if end == nil {
				fail("line %d: raw lacks its endraw", line)
			}
			found.kind, found.text, n = 't', before(rest[len(m):end[0]], rest[end[0]:], false), end[1]
		} else if found.kind == '#' {
			if n = strings.Index(rest, "#}") + 2; n < 2 {
				fail("line %d: comment lacks its #}", line)
			}
			n += after(rest[n-3] == '-', rest[n-3] == '+', true, rest[n:])
		} else {
			found.tokens, n = expression(rest, line)
		}
		if found.kind != '#' {
			out = append(out, found)
		}
		starts, at, line = strings.HasSuffix(rest[:n], "\n"), at+n, line+strings.Count(rest[:n], "\n")
	}
	return out
}

// before is the text that stays before the tag that rest starts with.
func before(text, rest string, starts bool) string {
	if len(rest) > 2 && rest[2] == '-' {
		return strings.TrimRightFunc(text, unicode.IsSpace)
	}
	line := strings.LastIndexByte(text, '\n') + 1
	if rest[1] != '{' && !(len(rest) > 2 && rest[2] == '+') && (line > 0 || starts) &&
		strings.TrimFunc(text[line:], unicode.IsSpace) == "" {
		return text[:line]
	}
	return text
}

// after is the length of the white space that belongs to a tag that ends here.
func after(strips, keeps, block bool, rest string) int {
	switch {
	case strips:
		return len(rest) - len(strings.TrimLeftFunc(rest, unicode.IsSpace))
	case block && !keeps && strings.HasPrefix(rest, "\n"):
		return 1
	}
	return 0
}

// expression reads the tokens between {{ and }} or {% and %}, and gives the length of all.
func expression(source string, line int) (out []token, length int) {
	end, depth := map[byte]string{'{': "}}", '%': "%}"}[source[1]], 0
	at := 2
	if strings.HasPrefix(source[at:], "-") || strings.HasPrefix(source[at:], "+") {
		at++
	}
	for at < len(source) {
		rest := source[at:]
		strips := rest[0] == '-' && strings.HasPrefix(rest[1:], end)
		keeps := rest[0] == '+' && end == "%}" && strings.HasPrefix(rest[1:], end)
		if depth == 0 && (strips || keeps || strings.HasPrefix(rest, end)) {
			at += len(end)
			if strips || keeps {
				at++
			}
			return out, at + after(strips, keeps, end == "%}", source[at:])
		}
		m := tokens.FindStringSubmatchIndex(rest)
		if m == nil {
			fail("line %d: %.20q is no expression", line, rest)
		}
		at += m[1]
		for group, kind := range map[int]byte{2: 'f', 3: 'i', 4: 'n', 5: 's', 6: 'o'} {
			if m[2*group] < 0 {
				continue
			}
			t := token{kind, rest[:m[1]]}
			if kind == 's' {
				t.text = unquote(t.text[1 : len(t.text)-1])
			}
			if kind == 'o' {
				depth += strings.Count("([{", t.text) - strings.Count(")]}", t.text)
			}
			out = append(out, t)
		}
	}
	fail("line %d: %.20q lacks its %s", line, source, end)
	return nil, 0
}

var escape = regexp.MustCompile(`\\(?s:u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|[0-7]{1,3}|.)`)

// unquote resolves the escapes of a Python string.
func unquote(s string) string {
	return escape.ReplaceAllStringFunc(s, func(e string) string {
		switch c := e[1]; {
		case c == '\n':
			return ""
		case c == '\'' || c == '"' || c == '\\':
			return e[1:]
		case strings.IndexByte("abfnrtv", c) >= 0:
			r, _, _, _ := strconv.UnquoteChar(e, 0)
			return string(r)
		case len(e) > 2:
			base := map[bool]int{true: 8, false: 16}[c >= '0' && c <= '7']
			n, _ := strconv.ParseUint(strings.TrimLeft(e[1:], "uUx"), base, 32)
			return string(rune(n))
		case c >= '0' && c <= '7':
			return string(rune(c - '0'))
		}
		return e // Python leaves what it does not know
	})
}
