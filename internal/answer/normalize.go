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
	"unicode/utf8"

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
// "same_list", … What package algebra cannot read is equal only to itself.
func EqualLenient(a, b string) (how string, equal bool) {
	a, b = algebra.Trim(a), algebra.Trim(b)
	switch {
	case a == "" || b == "":
		return "", false
	case a == b || equalStrict(a, b):
		return "same_text", true
	}
	return algebra.Equal(a, b)
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
