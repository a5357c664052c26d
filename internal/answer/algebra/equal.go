// Package algebra decides whether two answers in LaTeX have the same value: numbers, expressions, lists, intervals,
// sets, matrices, relations. It is a small computer algebra system for package answer and for verifying arithmetic.
//
// Trim takes off what stands around an answer, Equal compares two, Arithmetic evaluates one of whole numbers. An
// answer goes through these files:
//
//	lex.go       text → tokens; commands that mean the same get one name
//	parse.go     tokens → tree: lists, relations, sums, products, powers
//	atom.go      the leaves: numerals, functions, brackets, matrices
//	evaluate.go  tree → exact rational number, or complex values at fixed points
//	equal.go     when two trees are the same
//
// Tokens, depth and the size of numbers are bounded. What cannot be read within them is an error, never a wrong value.
package algebra

import (
	"math"
	"math/big"
	"math/cmplx"
	"regexp"
	"slices"
	"strings"
)

// Equal says whether two trimmed answers are provably the same, and what they are: "same_number",
// "same_expression", "same_list", … Numbers are compared exactly, never within a tolerance; expressions that are
// not rational numbers by their values at fixed points. What cannot be read is equal to nothing.
func Equal(a, b string) (what string, equal bool) {
	x, y, readings := wordsOf(a), wordsOf(b), []bool{true, false}
	if x != "" || y != "" {
		return "same_words", x == y
	}
	if grouped(a) != grouped(b) { // "1,234" is a number where the other side has none of its form, and no list
		readings = readings[:1]
	}
	for _, commas := range readings {
		listA, okA := read(a, commas)
		listB, okB := read(b, commas)
		if !okA || !okB {
			continue
		}
		if len(listA) == 1 && len(listB) == 1 {
			if what, equal := equalNodes(listA[0], listB[0]); equal {
				return "same_" + what, true
			}
		} else if equalUnordered(listA, listB) {
			return "same_list", true
		}
	}
	return "", false
}

// grouped says whether an answer has a number whose commas might also be those of a list.
func grouped(s string) (is bool) {
	defer readable(&is)
	return len(lex(s, true)) < len(lex(s, false))
}

var (
	letterRun = regexp.MustCompile(`\pL{3,}`)
	wordy     = regexp.MustCompile(`^[\pL\s.,;:!'-]+$`)
	unwrapped = regexp.MustCompile(`^\\(?:text|textrm|textbf|textit|mathrm|mathbf|mbox)\{([^{}\\]*)\}$`)
)

// wordsOf gives the words of an answer that consists of words ("even", "Evelyn"), which are not products of letters.
func wordsOf(s string) string {
	if m := unwrapped.FindStringSubmatch(s); m != nil {
		s = m[1]
	}
	if wordy.MatchString(s) && letterRun.MatchString(s) && !written[strings.TrimSpace(s)] {
		return fold(s)
	}
	return ""
}

func sameNode(x, y *node) bool {
	_, equal := equalNodes(x, y)
	return equal
}

func equalUnordered(a, b []*node) bool {
	if len(a) != len(b) || len(a) > 64 {
		return false
	}
	left := slices.Clone(b)
	for _, x := range a {
		i := slices.IndexFunc(left, func(y *node) bool { return sameNode(x, y) })
		if i < 0 {
			return false
		}
		left = slices.Delete(left, i, i+1)
	}
	return true
}

func equalOrdered(a, b []*node) bool { return slices.EqualFunc(a, b, sameNode) }

func allScalar(list []*node) bool {
	return !slices.ContainsFunc(list, func(n *node) bool { return !n.scalar })
}

func equalNodes(a, b *node) (what string, equal bool) {
	switch {
	case a.kind == measure || b.kind == measure: // a unit may be left out
		x, unitX := a.measured()
		y, unitY := b.measured()
		if unitX != "" && unitY != "" && unitX != unitY {
			return "", false
		}
		return equalNodes(x, y)
	case a.kind == relation || b.kind == relation:
		return equalRelations(a, b)
	case a.scalar && b.scalar:
		return equalScalars(a, b)
	case a.kind != b.kind || a.name != b.name:
		return "", false
	}
	switch a.kind {
	case words:
		return "words", true
	case tuple:
		return "tuple", equalOrdered(a.args, b.args)
	case matrix:
		return "matrix", equalOrdered(a.args, b.args)
	case set, union:
		if a.name == `\setminus` {
			return "set", equalOrdered(a.args, b.args)
		}
		return "set", equalUnordered(a.args, b.args)
	}
	return "expression", a.key() == b.key()
}

// measured is a value and its unit, "" where there is none.
func (n *node) measured() (value *node, unit string) {
	if n.kind == measure {
		return n.args[0], n.name
	}
	return n, ""
}

// Relative differences below which two values count as one: rounding leaves 1e-15 or so, a coincidence of two different
// answers is not to be expected.
const (
	closeConstant = 1e-12
	closeAtPoints = 1e-9
)

// maxDenominator is the largest denominator of a rational number that an expression like \sqrt{2}\sqrt{2} can be found
// equal to by value: a decimal of many digits is an approximation, and approximations are not equal.
var maxDenominator = big.NewInt(1_000_000)

func equalScalars(a, b *node) (string, bool) {
	if a.exact != nil && b.exact != nil {
		return "number", a.exact.Cmp(b.exact) == 0
	}
	if a.key() == b.key() {
		return "expression", true
	}
	for _, r := range []*big.Rat{a.exact, b.exact} {
		if r != nil && r.Denom().Cmp(maxDenominator) > 0 {
			return "", false
		}
	}
	limit, compared := closeAtPoints, 0
	if !a.free && !b.free {
		limit = closeConstant
	}
	for k, u := range a.at {
		v := b.at[k]
		switch {
		case finite(u) != finite(v), cmplx.Abs(u-v) > limit*max(cmplx.Abs(u), cmplx.Abs(v)):
			return "", false
		case finite(u):
			compared++
		}
	}
	return "expression", compared > samples/3
}

func finite(x complex128) bool {
	return !cmplx.IsNaN(x) && !cmplx.IsInf(x) && cmplx.Abs(x) < math.MaxFloat64
}

// variable is the left side of "y = …" and "f(x) = …", which an answer may leave out.
func (n *node) variable() bool {
	return n.kind == symbol ||
		n.kind == function && n.name == "*" && n.args[0].kind == symbol && n.args[1].kind == symbol
}

func equalRelations(a, b *node) (what string, equal bool) {
	if a.kind != relation {
		a, b = b, a
	}
	if b.kind != relation { // "x = 5" and "5", "x \in [0, 1]" and "[0, 1]"
		if a.name != "=" && a.name != `\in` || !a.args[0].variable() {
			return "", false
		}
		return equalNodes(a.args[1], b)
	}
	x, y := a.upward(), b.upward()
	switch {
	case x.name != y.name:
		return "", false
	case equalOrdered(x.args, y.args) || x.name == "=" && equalOrdered(x.args, []*node{y.args[1], y.args[0]}):
		return "relation", true
	case len(x.args) != 2 || x.name == `\in` || x.name == ":" || !allScalar(x.args) || !allScalar(y.args):
		return "", false
	}
	return "relation", proportional(x.difference(), y.difference(), x.name == "<" || x.name == `\leq`)
}

// upward writes a > b as b < a.
func (n *node) upward() *node {
	flipped := map[string]string{">": "<", `\geq`: `\leq`}
	operators := strings.Fields(n.name)
	for i, o := range operators {
		to, downward := flipped[o]
		if !downward {
			return n
		}
		operators[i] = to
	}
	slices.Reverse(operators)
	args := slices.Clone(n.args)
	slices.Reverse(args)
	return &node{kind: relation, name: strings.Join(operators, " "), args: args}
}

func (n *node) difference() *node { return call("+", n.args[0], times(whole(-1), n.args[1])) }

// proportional says whether one expression is a constant multiple of the other, a positive one where that matters.
func proportional(f, g *node, positive bool) bool {
	if !f.free && !g.free {
		return false
	}
	var ratio complex128
	compared := 0
	for k, u := range f.at {
		v := g.at[k]
		if !finite(u) || !finite(v) || u == 0 && v == 0 {
			continue
		}
		if u == 0 || v == 0 {
			return false
		}
		r := u / v
		if compared == 0 {
			ratio = r
		}
		if cmplx.Abs(r-ratio) > closeAtPoints*cmplx.Abs(ratio) {
			return false
		}
		compared++
	}
	return compared > samples/3 && math.Abs(imag(ratio)) <= closeAtPoints*cmplx.Abs(ratio) &&
		(!positive || real(ratio) > 0)
}
