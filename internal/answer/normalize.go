package answer

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// rule is one step of the MATH benchmark's normalisation.
type rule struct {
	name  string
	apply func(string) (string, error)
}

// rules in the order in which they are applied: each sees what those before it have left.
var rules = []rule{
	{"newlines", without("\n")},
	{"negative_spaces", without(`\!`)},
	{"double_backslashes", replaced(`\\`, `\`)},
	{"frac_variants", inTurn(replaced("tfrac", "frac"), replaced("dfrac", "frac"))},
	{"left_right", inTurn(without(`\left`), without(`\right`))},
	{"degrees", inTurn(without(`^{\circ}`), without(`^\circ`))},
	{"dollars", without(`\$`)},
	{"percents", without(`\%`)},
	{"right_units", func(s string) (string, error) { s, _, _ = strings.Cut(s, `\text{ `); return s, nil }},
	{"leading_dots", inTurn(replaced(" .", " 0."), replaced("{.", "{0."), zeroFirst)},
	{"short_prefix", cutShortPrefix},
	{"sqrt_braces", braceRoots},
	{"spaces", without(" ")},
	{"frac_braces", braceFractions},
	{"half", func(s string) (string, error) {
		if s == "0.5" {
			s = `\frac{1}{2}`
		}
		return s, nil
	}},
	{"slash", fractionOfSlash},
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

func without(part string) func(string) (string, error) { return replaced(part, "") }

func replaced(old, with string) func(string) (string, error) {
	return func(s string) (string, error) { return strings.ReplaceAll(s, old, with), nil }
}

func inTurn(steps ...func(string) (string, error)) func(string) (string, error) {
	return func(s string) (string, error) {
		for _, step := range steps {
			var err error
			if s, err = step(s); err != nil {
				return "", err
			}
		}
		return s, nil
	}
}

func zeroFirst(s string) (string, error) {
	if strings.HasPrefix(s, ".") {
		s = "0" + s
	}
	return s, nil
}

// cutShortPrefix drops "x =" and the like: at most two characters before the only equals sign.
func cutShortPrefix(s string) (string, error) {
	before, after, found := strings.Cut(s, "=")
	if found && !strings.Contains(after, "=") && utf8.RuneCountInString(before) <= 2 {
		return after, nil
	}
	return s, nil
}

// braceRoots turns \sqrt5 into \sqrt{5}.
func braceRoots(s string) (string, error) {
	const root = `\sqrt`
	var out strings.Builder
	for {
		i := strings.Index(s, root)
		if i < 0 {
			out.WriteString(s)
			return out.String(), nil
		}
		i += len(root)
		out.WriteString(s[:i])
		if s = s[i:]; s != "" && alphanumeric(s[0]) {
			out.WriteString("{" + s[:1] + "}")
			s = s[1:]
		}
	}
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// errDangling is what makes a comparison fall back to raw strings.
var errDangling = errors.New(`a \frac is followed by nothing`)

// braceFractions turns \frac12 into \frac{1}{2} and \frac1{72} into \frac{1}{72}. It counts characters, not bytes.
func braceFractions(s string) (string, error) {
	const frac = `\frac`
	pieces := strings.Split(s, frac)
	var out strings.Builder
	out.WriteString(pieces[0])
	for _, p := range pieces[1:] {
		out.WriteString(frac)
		if p == "" {
			return "", errDangling
		}
		if p[0] == '{' {
			out.WriteString(p)
			continue
		}
		a, n := utf8.DecodeRuneInString(p)
		if n == len(p) {
			return s, nil
		}
		b, m := utf8.DecodeRuneInString(p[n:])
		out.WriteString("{" + string(a) + "}")
		if b == '{' {
			out.WriteString(p[n:])
		} else {
			out.WriteString("{" + string(b) + "}" + p[n+m:])
		}
	}
	return out.String(), nil
}

// fractionOfSlash turns a/b into \frac{a}{b} when both are whole numbers in their usual form.
func fractionOfSlash(s string) (string, error) {
	a, b, found := strings.Cut(s, "/")
	if found && plainInteger(a) && plainInteger(b) {
		return `\frac{` + a + "}{" + b + "}", nil
	}
	return s, nil
}

// plainInteger accepts what printing an integer gives: no plus, no leading zeros, no minus zero.
func plainInteger(s string) bool {
	if s == "0" {
		return true
	}
	s = strings.TrimPrefix(s, "-")
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != "" && s[0] != '0'
}
