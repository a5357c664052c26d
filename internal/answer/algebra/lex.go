package algebra

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind is the kind of a lexical token.
type tokenKind int

const (
	tokenEnd     tokenKind = iota
	tokenNumber            // digits, at most one dot, no separators of thousands
	tokenLetter            // one letter
	tokenCommand           // a name: \frac is "frac", written-out sin is "sin"
	tokenMark              // one character, or one of the names in marks
	tokenText              // the content of \text{…}
)

type token struct {
	kind tokenKind
	text string
}

// Limits: what is longer or deeper than any answer is not compared beyond the textual rules.
const (
	maxTokens = 400
	maxDepth  = 40
)

var errUnreadable = errors.New("not an expression that can be compared")

// ignored commands have no meaning for equality.
var ignored = names(`left right big Big bigg Bigg bigl bigr Bigl Bigr displaystyle textstyle limits quad qquad , ; : ! dots $ % ~`)

// textual commands have words as their argument.
var textual = names(`text textrm textbf textit textnormal mathrm mathbf mathit mathsf mbox hbox operatorname rm`)

// synonyms of commands.
var synonyms = map[string]string{
	"dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom", "le": "leq", "ge": "geq",
	"ne":       "neq",
	"leqslant": "leq", "geqslant": "geq", "lt": "<", "gt": ">", "lbrace": "{", "rbrace": "}", "colon": ":", "ast": "*",
	"lvert": "|",
	"rvert": "|", "vert": "|", "varnothing": "emptyset", "land": "text and", "lor": "text or", "arcsin": "asin",
	"arccos": "acos",
	"arctan": "atan", "lbrack": "[", "rbrack": "]", "bmod": "mod", "Re": "unknown", "Im": "unknown",
}

// characters that stand for commands.
var characters = map[rune]string{
	'π': "pi", '∞': "infty", '×': "times", '·': "cdot", '⋅': "cdot", '÷': "div", '≤': "leq", '≥': "geq", '≠': "neq",
	'∪': "cup", '∩': "cap",
	'∈': "in", '±': "pm", '∓': "mp", '∅': "emptyset", '√': "sqrt",
}

// written are the names that count as commands without their backslash.
var written = names(`sin cos tan cot sec csc log ln exp sqrt pi infty`)

func names(list string) map[string]bool {
	set := map[string]bool{}
	for _, name := range strings.Fields(list) {
		set[name] = true
	}
	return set
}

// wrappers around a whole answer.
var wrappers = [][2]string{{"$$", "$$"}, {"$", "$"}, {`\(`, `\)`}, {`\[`, `\]`}}

// Trim takes off what stands around an answer.
func Trim(s string) string {
	s = strings.TrimSpace(strings.ReplaceAll(s, "−", "-"))
	for _, w := range wrappers {
		if len(s) >= len(w[0])+len(w[1]) && strings.HasPrefix(s, w[0]) && strings.HasSuffix(s, w[1]) {
			s = s[len(w[0]) : len(s)-len(w[1])]
		}
	}
	s = strings.TrimSpace(s)
	if cut, is := strings.CutSuffix(s, "."); is && !strings.HasSuffix(cut, ".") {
		s = cut
	}
	return strings.TrimSpace(s)
}

// thousands matches a number with separators at the start of a text.
var thousands = regexp.MustCompile(`^[0-9]{1,3}(?:(?:,\\!|\{,\}|\\,|,)[0-9]{3})+`)

// separated matches one with separators that cannot be those of a list.
var separated = regexp.MustCompile(`^[0-9]{1,3}(?:(?:,\\!|\{,\}|\\,)[0-9]{3})+`)

// A point may be followed by the bar over a period.
var plainNumber = regexp.MustCompile(`^(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)`)

var periodic = regexp.MustCompile(`^[0-9]+\.\s*\\overline\s*\{`)

// lex splits an answer. commas says that 1,000 outside of brackets is one number and not a list of two.
func lex(s string, commas bool) ([]token, error) {
	l := lexer{rest: s, commas: commas}
	for l.rest != "" {
		if len(l.tokens) > maxTokens {
			return nil, errUnreadable
		}
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	return l.tokens, nil
}

type lexer struct {
	rest   string
	commas bool
	depth  int // of brackets, in which a comma always separates
	matrix int // of environments, in which \\ ends a row
	tokens []token
}

func (l *lexer) add(kind tokenKind, text string) { l.tokens = append(l.tokens, token{kind, text}) }

func (l *lexer) next() error {
	if number := l.number(); number != "" {
		l.rest = l.rest[len(number):]
		l.add(tokenNumber, strings.Map(func(r rune) rune {
			if r == '.' || r >= '0' && r <= '9' {
				return r
			}
			return -1
		}, number))
		return nil
	}
	r, n := utf8.DecodeRuneInString(l.rest)
	switch {
	case r == '\\':
		return l.command()
	case unicode.IsSpace(r) || r == '~' || r == '$' || r == '%' || r == '°':
		l.rest = l.rest[n:]
	case unicode.IsLetter(r):
		if name, is := characters[r]; is {
			l.rest = l.rest[n:]
			l.named(name)
			return nil
		}
		run := l.rest[:runLength(l.rest)]
		if written[run] {
			l.rest = l.rest[len(run):]
			l.named(run)
			return nil
		}
		l.rest = l.rest[n:]
		l.add(tokenLetter, string(r))
	case strings.ContainsRune("+-*/^_=<>!|()[]{},;:&'", r):
		l.rest = l.rest[n:]
		switch r {
		case '(', '[':
			l.depth++
		case ')', ']':
			l.depth--
		}
		l.add(tokenMark, string(r))
	default:
		name, is := characters[r]
		if !is {
			return errUnreadable
		}
		l.rest = l.rest[n:]
		l.named(name)
	}
	return nil
}

// maxNumeral is the longest numeral with what follows it, in bytes; a longer one is taken for two, which no
// expression can be.
const maxNumeral = 400

// number is the numeral at the start of the rest, as it is written.
func (l *lexer) number() string {
	// Regular expressions cost by the length of what they are given, even where they stop early.
	rest := l.rest[:min(len(l.rest), maxNumeral)]
	if rest[0] != '.' && (rest[0] < '0' || rest[0] > '9') {
		return ""
	}
	for _, form := range []*regexp.Regexp{thousands, separated} {
		if form == thousands && (!l.commas || l.depth > 0) {
			continue
		}
		whole := form.FindString(rest)
		if whole == "" {
			continue
		}
		after := rest[len(whole):]
		if after != "" && after[0] >= '0' && after[0] <= '9' {
			continue // 1,0000 is no numeral
		}
		if decimals := plainNumber.FindString(after); strings.HasPrefix(decimals, ".") {
			whole += decimals
		}
		return whole
	}
	number := plainNumber.FindString(rest)
	if periodic.MatchString(rest) {
		number += "."
	}
	return number
}

// runLength is the length of the letters at the start of a text.
func runLength(s string) int {
	if i := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsLetter(r) }); i >= 0 {
		return i
	}
	return len(s)
}

// command reads what a backslash begins.
func (l *lexer) command() error {
	body := l.rest[1:]
	if strings.HasPrefix(body, `\`) {
		if l.matrix > 0 {
			l.rest = body[1:]
			l.add(tokenMark, `\\`)
			return nil
		}
		l.rest = body // a doubled backslash
		return nil
	}
	n := 0
	for n < len(body) && (body[n] >= 'a' && body[n] <= 'z' || body[n] >= 'A' && body[n] <= 'Z') {
		n++
	}
	if n == 0 {
		_, n = utf8.DecodeRuneInString(body)
	}
	name := body[:n]
	l.rest = body[n:]
	if synonym, is := synonyms[name]; is {
		name = synonym
	}
	switch {
	case name == "" || strings.TrimSpace(name) == "" || ignored[name]:
	case name == "circ": // degrees
		if k := len(l.tokens); k > 0 && l.tokens[k-1] == (token{tokenMark, "^"}) {
			l.tokens = l.tokens[:k-1]
		} else if k > 1 && l.tokens[k-1] == (token{tokenMark, "{"}) && l.tokens[k-2] == (token{tokenMark, "^"}) {
			closing := strings.Index(l.rest, "}")
			if closing < 0 || strings.TrimSpace(l.rest[:closing]) != "" {
				return errUnreadable
			}
			l.tokens, l.rest = l.tokens[:k-2], l.rest[closing+1:]
		}
	case textual[name]:
		return l.words()
	case name == "begin" || name == "end":
		rest := strings.TrimLeft(l.rest, " ")
		closing := strings.Index(rest, "}")
		if !strings.HasPrefix(rest, "{") || closing < 0 {
			return errUnreadable
		}
		kind := rest[1:closing]
		l.rest = rest[closing+1:]
		if !slices.Contains([]string{"pmatrix", "bmatrix", "matrix", "vmatrix"}, kind) {
			return errUnreadable
		}
		if name == "begin" {
			l.matrix++
		} else {
			l.matrix--
		}
		l.add(tokenCommand, name+" "+kind)
	case name == "{" || name == "}":
		l.add(tokenMark, `\`+name)
	default:
		l.named(name)
	}
	return nil
}

// named adds a command, or the mark that it is a name of.
func (l *lexer) named(name string) {
	if word, is := strings.CutPrefix(name, "text "); is {
		l.add(tokenText, word)
	} else if len(name) == 1 && strings.Contains("<>:*|[]", name) {
		l.add(tokenMark, name)
	} else {
		l.add(tokenCommand, name)
	}
}

// words reads the argument of \text.
func (l *lexer) words() error {
	rest := strings.TrimLeft(l.rest, " ")
	if !strings.HasPrefix(rest, "{") {
		return errUnreadable
	}
	depth := 0
	for i, r := range rest {
		switch r {
		case '{':
			depth++
		case '}':
			depth--
		}
		if depth == 0 {
			l.rest = rest[i+1:]
			if content := strings.TrimSpace(rest[1:i]); content != "" {
				l.add(tokenText, content)
			}
			return nil
		}
	}
	return errUnreadable
}
