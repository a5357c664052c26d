// Package answer finds and compares the final answers of mathematics problems, so that a reply can be graded.
//
// Boxed finds the answer of a reply. Under the strict rules, those of the MATH benchmark (Hendrycks et al. 2021),
// both sides go through Normalize and are compared as texts. EqualLenient adds what is provably the same value;
// package algebra below this one decides that.
//
// Nothing here panics or runs long, whatever the text: replies come from models.
package answer

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"gyre/internal/answer/algebra"
)

// rules are the steps of the MATH benchmark's normalisation in the order in which they are applied: each sees what
// those before it have left.
var rules = []struct {
	name  string
	apply func(string) (string, error)
}{
	{"newlines", replaced("\n", "")},
	{"negative_spaces", replaced(`\!`, "")},
	{"double_backslashes", replaced(`\\`, `\`)},
	{"frac_variants", replaced("tfrac", "frac", "dfrac", "frac")},
	{"left_right", replaced(`\left`, "", `\right`, "")},
	{"degrees", replaced(`^{\circ}`, "", `^\circ`, "")},
	{"dollars", replaced(`\$`, "")},
	{"percents", replaced(`\%`, "")},
	{"right_units", rewritten(`(?s)\\text\{ .*`, "")},
	{"leading_dots", func(s string) (string, error) {
		s, _ = replaced(" .", " 0.", "{.", "{0.")(s)
		if strings.HasPrefix(s, ".") {
			s = "0" + s
		}
		return s, nil
	}},
	// "x =" and the like: at most two characters before the only equals sign
	{"short_prefix", rewritten(`^[^=]{0,2}=([^=]*)$`, "$1")},
	{"sqrt_braces", rewritten(`\\sqrt([0-9a-zA-Z])`, `\sqrt{$1}`)},
	{"spaces", replaced(" ", "")},
	{"frac_braces", braceFractions},
	{"half", rewritten(`^0\.5$`, `\frac{1}{2}`)},
	// whole numbers in their usual form
	{"slash", rewritten(`^(0|-?[1-9][0-9]*)/(0|-?[1-9][0-9]*)$`, `\frac{$1}{$2}`)},
}

// Normalize applies the rules of the MATH benchmark and names those that changed something. The error says that the
// text cannot be normalised.
func Normalize(s string) (normal string, fired []string, err error) {
	for _, r := range rules {
		next, err := r.apply(s)
		if err != nil {
			return "", fired, fmt.Errorf("rule %s: %w", r.name, err)
		}
		if next != s {
			fired = append(fired, r.name)
		}
		s = next
	}
	return s, fired, nil
}

// replaced replaces texts, each everywhere before the next one.
func replaced(pairs ...string) func(string) (string, error) {
	return func(s string) (string, error) {
		for i := 0; i < len(pairs); i += 2 {
			s = strings.ReplaceAll(s, pairs[i], pairs[i+1])
		}
		return s, nil
	}
}

func rewritten(pattern, with string) func(string) (string, error) {
	compiled := regexp.MustCompile(pattern)
	return func(s string) (string, error) { return compiled.ReplaceAllString(s, with), nil }
}

// errDangling is what makes a comparison fall back to raw strings.
var errDangling = errors.New(`a \frac is followed by nothing`)

// braceFractions turns \frac12 into \frac{1}{2} and \frac1{72} into \frac{1}{72}. It counts characters, not bytes.
func braceFractions(s string) (string, error) {
	const frac = `\frac`
	pieces := strings.Split(s, frac)
	out := pieces[0]
	for _, p := range pieces[1:] {
		if p == "" {
			return "", errDangling
		}
		if p[0] == '{' {
			out += frac + p
			continue
		}
		_, n := utf8.DecodeRuneInString(p)
		if n == len(p) {
			return s, nil
		}
		b, m := utf8.DecodeRuneInString(p[n:])
		rest := p[n:]
		if b != '{' {
			rest = "{" + string(b) + "}" + p[n+m:]
		}
		out += frac + "{" + p[:n] + "}" + rest
	}
	return out, nil
}

// EqualLenient says whether two answers are the same, and how that is known: "same_text", "same_number",
// "same_list", … What package algebra cannot read is equal only to itself. One of them may leave its unit out; two
// units must be the same.
func EqualLenient(a, b string) (how string, equal bool) {
	a, b = algebra.Trim(ordinary(Visible(a))), algebra.Trim(ordinary(Visible(b)))
	switch {
	case a == "" || b == "":
		return "", false
	case a == b || SameText(a, b):
		return "same_text", true
	}
	if how, equal = algebra.Equal(a, b); equal {
		return how, true
	}
	x, unitX := priced(a)
	y, unitY := priced(b)
	if unitX == "" && unitY == "" || !SameUnit(unitX, unitY) {
		return "", false
	}
	return algebra.Equal(x, y)
}

// SameText says whether two answers are equal under the MATH benchmark's rules, with the same numbers and units.
func SameText(a, b string) bool { return equalStrict(apart(a), apart(b)) && sameTails(a, b) }

var (
	spacedDigits = regexp.MustCompile(`(\d)\s+([.\d])`)
	spacedCommas = regexp.MustCompile(`(\d)(?:\s+,\s*|,\s+)(\d{3})`)
)

// apart keeps the numbers of "1 1/2" and "1, 234" apart, whose spaces the rules of the MATH benchmark remove.
func apart(s string) string {
	for range 2 { // matches share a digit
		s = spacedCommas.ReplaceAllString(spacedDigits.ReplaceAllString(s, "${1}_$2"), "$1,_$2")
	}
	return s
}

// ordinary writes ½ and full-width characters as a keyboard does. Raised digits are powers, and stay.
func ordinary(s string) string {
	var out strings.Builder
	last := rune(0)
	for _, r := range s {
		plain := norm.NFKC.String(string(r))
		switch {
		case unicode.Is(unicode.Nd, r) || r >= '！' && r <= '～':
			out.WriteString(plain)
		case r == '⁄' || r == '∕':
			out.WriteByte('/')
		case strings.Contains(plain, "⁄"): // a fraction, perhaps of a mixed number
			if unicode.IsDigit(last) {
				out.WriteByte(' ')
			}
			out.WriteString(strings.Replace(plain, "⁄", "/", 1))
		default:
			out.WriteRune(r)
		}
		last = r
	}
	return out.String()
}

// equalStrict says whether two answers are equal under the MATH benchmark's rules, applied to both.
func equalStrict(a, b string) bool {
	x, _, errA := Normalize(a)
	y, _, errB := Normalize(b)
	if errA != nil || errB != nil {
		return a == b
	}
	return x == y
}

const (
	boxed       = `\boxed`
	boxedSpaced = `\boxed `
	fboxed      = `\fbox`
)

// LastBoxed returns the last box of a text with its command: `\boxed{…}`, `\boxed …` up to the next dollar, or,
// where no \boxed occurs at all, `\fbox{…}`. There is no way back to an earlier box when the last one is never
// closed. Braces that are escaped count as braces.
func LastBoxed(text string) (string, bool) {
	start := strings.LastIndex(text, boxed)
	if start < 0 {
		if start = strings.LastIndex(text, fboxed); start < 0 {
			return "", false
		}
	}
	if strings.HasPrefix(text[start:], boxedSpaced) {
		rest := text[start+len(boxedSpaced):]
		rest, _, _ = strings.Cut(rest, "$")
		return boxedSpaced + rest, true
	}
	depth := 0
	for i := start; i < len(text); i++ {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[start : i+1], true
			}
		}
	}
	return "", false
}

// unbox takes the command off what LastBoxed returns. ok is false when the text is not a box of a known form.
func unbox(box string) (content string, ok bool) {
	if rest, is := strings.CutPrefix(box, boxedSpaced); is {
		return rest, true
	}
	for _, command := range []string{boxed + "{", fboxed + "{"} {
		if rest, is := strings.CutPrefix(box, command); is && strings.HasSuffix(rest, "}") {
			return rest[:len(rest)-1], true
		}
	}
	return "", false
}

// Boxed returns the content of a text's last box, as it is written.
func Boxed(text string) (string, bool) {
	box, found := LastBoxed(text)
	if !found {
		return "", false
	}
	return unbox(box)
}

// AfterThought is a reply without what is thought before its first </think>.
func AfterThought(reply string) string {
	if _, after, found := strings.Cut(reply, "</think>"); found {
		return after
	}
	return reply
}

var block = regexp.MustCompile(`(?s)<answer>(.*?)</answer>`)

// Block returns the content of a text's first answer block, which the prompt may have opened.
func Block(text string) (string, bool) {
	if match := block.FindStringSubmatch(text); match != nil {
		return match[1], true
	}
	before, _, closed := strings.Cut(text, "</answer>")
	if !closed {
		return "", false
	}
	return before, true
}
