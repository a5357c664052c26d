package algebra

import (
	"cmp"
	"regexp"
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
	tokenCommand           // a name behind a backslash; written-out sin is \sin
	tokenMark              // one character, \{, \} or \\
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

// unreadable is what the reading of an answer panics with that is no expression; readable recovers from it.
type unreadable struct{}

func require(ok bool) {
	if !ok {
		panic(unreadable{})
	}
}

// readable is to be deferred: it turns a panic of require into false.
func readable(ok *bool) {
	switch p := recover(); p {
	case nil:
	case unreadable{}:
		*ok = false
	default:
		panic(p)
	}
}

var (
	// ignored commands have no meaning for equality.
	ignored = names(`left right big Big bigg Bigg bigl bigr Bigl Bigr displaystyle textstyle limits
		quad qquad circ , ; : ! dots $ % ~`)
	// textual commands have words as their argument.
	textual = names(`text textrm textbf textit textnormal mathrm mathbf mathit mathsf mbox hbox operatorname rm`)
	// written are the names that count as commands without their backslash.
	written = names(`sin cos tan cot sec csc log ln exp sqrt pi infty`)
)

func names(list string) map[string]bool {
	set := map[string]bool{}
	for _, name := range strings.Fields(list) {
		set[name] = true
	}
	return set
}

// synonyms of commands.
var synonyms = map[string]string{
	"dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom", "le": "leq", "ge": "geq",
	"ne": "neq", "leqslant": "leq", "geqslant": "geq", "lt": "<", "gt": ">", "lbrace": "{", "rbrace": "}",
	"colon": ":", "ast": "*", "lvert": "|", "rvert": "|", "vert": "|", "varnothing": "emptyset", "land": "text and",
	"lor": "text or", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "lbrack": "[", "rbrack": "]",
	"bmod": "mod", "Re": "unknown", "Im": "unknown",
}

// characters that stand for commands.
var characters = map[rune]string{
	'π': "pi", '∞': "infty", '×': "times", '·': "cdot", '⋅': "cdot", '÷': "div", '≤': "leq", '≥': "geq", '≠': "neq",
	'∪': "cup", '∩': "cap", '∈': "in", '±': "pm", '∓': "mp", '∅': "emptyset", '√': "sqrt",
}

// wrappers around a whole answer.
var wrappers = [][2]string{{"$$", "$$"}, {"$", "$"}, {`\(`, `\)`}, {`\[`, `\]`}}

// minus are the dashes that people and programs write for one.
var minus = strings.NewReplacer("−", "-", "–", "-", "‒", "-", "‐", "-", "‑", "-", "﹣", "-", "－", "-")

// Trim takes off what stands around an answer, and writes a minus in one way.
func Trim(s string) string {
	s = strings.TrimSpace(minus.Replace(s))
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

var (
	degrees = regexp.MustCompile(`\^\s*(?:\{\s*\\+circ\s*\}|\\+circ([^a-zA-Z]|$))`)
	// thousands matches a number with separators, separated one whose separators cannot be those of a list.
	thousands = regexp.MustCompile(`^[0-9]{1,3}(?:(?:` + separator + `|,)[0-9]{3})+`)
	separated = regexp.MustCompile(`^[0-9]{1,3}(?:` + separator + `[0-9]{3})+`)
	decimals  = regexp.MustCompile(`^\.[0-9]+`)
	// A point may be followed by the bar over a period.
	plainNumber = regexp.MustCompile(`^(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)`)
	periodic    = regexp.MustCompile(`^[0-9]+\.\s*\\overline\s*\{`)
	unseparated = strings.NewReplacer(",", "", `\`, "", "!", "", "{", "", "}", "", "\u00a0", "", "\u2009", "",
		"\u202f", "")
	matrices = regexp.MustCompile(`^ *\{([pbv]?matrix)\}`)
)

// separator stands between thousands and in no list.
const separator = `(?:(?:\\!)+,(?:\\!)*|,(?:\\!)+|(?:\\!)*\{,\}(?:\\!)*|\\,|[\x{a0}\x{2009}\x{202f}])`

// lexer splits an answer.
type lexer struct {
	rest   string
	commas bool // 1,000 outside of brackets is one number and not a list of two
	depth  int  // of brackets, in which a comma always separates
	matrix int  // of environments, in which \\ ends a row
	tokens []token
}

func lex(s string, commas bool) []token {
	l := lexer{rest: degrees.ReplaceAllString(s, " $1"), commas: commas}
	for l.rest != "" {
		require(len(l.tokens) <= maxTokens)
		l.next()
	}
	return l.tokens
}

func (l *lexer) add(kind tokenKind, text string) { l.tokens = append(l.tokens, token{kind, text}) }

func (l *lexer) next() {
	if number := l.number(); number != "" {
		l.rest = l.rest[len(number):]
		l.add(tokenNumber, unseparated.Replace(number))
		return
	}
	r, n := utf8.DecodeRuneInString(l.rest)
	run := l.rest[:len(l.rest)-len(strings.TrimLeftFunc(l.rest, unicode.IsLetter))]
	name, named := characters[r]
	switch {
	case r == '\\':
		l.command(l.rest[1:])
		return
	case unicode.IsSpace(r) || strings.ContainsRune("~$%°", r):
	case named:
		l.named(name)
	case written[run]:
		n = len(run)
		l.named(run)
	case unicode.IsLetter(r):
		l.add(tokenLetter, string(r))
	default:
		require(strings.ContainsRune("+-*/^_=<>!|()[]{},;:&'", r))
		switch r {
		case '(', '[':
			l.depth++
		case ')', ']':
			l.depth--
		}
		l.add(tokenMark, string(r))
	}
	l.rest = l.rest[n:]
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
	forms := []*regexp.Regexp{thousands, separated}
	if !l.commas || l.depth > 0 {
		forms = forms[1:]
	}
	for _, form := range forms {
		whole := form.FindString(rest)
		after := rest[len(whole):]
		if whole != "" && (after == "" || after[0] < '0' || after[0] > '9') { // 1,0000 is no numeral
			return whole + decimals.FindString(after)
		}
	}
	number := plainNumber.FindString(rest)
	if periodic.MatchString(rest) {
		number += "."
	}
	return number
}

// command reads what a backslash begins.
func (l *lexer) command(body string) {
	if strings.HasPrefix(body, `\`) {
		l.rest = body // a doubled backslash
		if l.matrix > 0 {
			l.rest = body[1:]
			l.add(tokenMark, `\\`)
		}
		return
	}
	n := 0
	for n < len(body) && (body[n] >= 'a' && body[n] <= 'z' || body[n] >= 'A' && body[n] <= 'Z') {
		n++
	}
	if n == 0 {
		_, n = utf8.DecodeRuneInString(body)
	}
	l.rest = body[n:]
	switch name := cmp.Or(synonyms[body[:n]], body[:n]); {
	case strings.TrimSpace(name) == "" || ignored[name]:
	case textual[name]:
		l.words()
	case name == "begin" || name == "end":
		match := matrices.FindStringSubmatch(l.rest)
		require(match != nil)
		l.rest = l.rest[len(match[0]):]
		l.matrix += map[string]int{"begin": 1, "end": -1}[name]
		l.add(tokenCommand, `\`+name+" "+match[1])
	case name == "{" || name == "}":
		l.add(tokenMark, `\`+name)
	default:
		l.named(name)
	}
}

// named adds a command, or the mark that it is a name of.
func (l *lexer) named(name string) {
	if word, is := strings.CutPrefix(name, "text "); is {
		l.add(tokenText, word)
	} else if len(name) == 1 && strings.Contains("<>:*|[]", name) {
		l.add(tokenMark, name)
	} else {
		l.add(tokenCommand, `\`+name)
	}
}

// words reads the argument of \text.
func (l *lexer) words() {
	rest := strings.TrimLeft(l.rest, " ")
	require(strings.HasPrefix(rest, "{"))
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
			return
		}
	}
	require(false)
}
