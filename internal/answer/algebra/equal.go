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
	x, y := wordsOf(a), wordsOf(b)
	if x != "" || y != "" {
		return "same_words", x == y
	}
	for _, commas := range []bool{true, false} {
		listA, errA := read(a, commas)
		listB, errB := read(b, commas)
		if errA != nil || errB != nil {
			continue
		}
		if listA, listB = expandAll(listA), expandAll(listB); len(listA) == 1 && len(listB) == 1 {
			if what, equal := equalNodes(listA[0], listB[0]); equal {
				return "same_" + what, true
			}
		} else if equalUnordered(listA, listB) {
			return "same_list", true
		}
	}
	return "", false
}

var letterRun = regexp.MustCompile(`\pL{3,}`)
var wordy = regexp.MustCompile(`^[\pL\s.,;:!'-]+$`)
var unwrapped = regexp.MustCompile(`^\\(?:text|textrm|textbf|textit|mathrm|mathbf|mbox)\{([^{}\\]*)\}$`)

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

// expandAll writes every ± as two elements.
func expandAll(list []*node) []*node {
	var out []*node
	for _, n := range list {
		if n.signed() && len(out) < 64 {
			out = append(out, n.expand(false), n.expand(true))
		} else {
			out = append(out, n)
		}
	}
	return out
}

func (n *node) signed() bool { return n.kind == sign || slices.ContainsFunc(n.args, (*node).signed) }

// expand chooses the upper signs, or the lower ones.
func (n *node) expand(lower bool) *node {
	out := &node{kind: n.kind, name: n.name, value: n.value}
	for _, a := range n.args {
		out.args = append(out.args, a.expand(lower))
	}
	if n.kind == sign {
		out.kind, out.name = sum, ""
		if lower == (n.name == "pm") {
			out.args[1] = times(whole(-1), out.args[1])
		}
	}
	return out
}

func equalUnordered(a, b []*node) bool {
	if len(a) != len(b) || len(a) > 64 {
		return false
	}
	left := slices.Clone(b)
	for _, x := range a {
		i := slices.IndexFunc(left, func(y *node) bool { _, equal := equalNodes(x, y); return equal })
		if i < 0 {
			return false
		}
		left = slices.Delete(left, i, i+1)
	}
	return true
}

func equalOrdered(a, b []*node) bool {
	return slices.EqualFunc(a, b, func(x, y *node) bool { _, equal := equalNodes(x, y); return equal })
}

func (n *node) scalar() bool {
	switch n.kind {
	case number, symbol:
		return true
	case sum, product, power, function:
		return !slices.ContainsFunc(n.args, func(a *node) bool { return !a.scalar() })
	}
	return false
}

func equalNodes(a, b *node) (what string, equal bool) {
	if a.kind == measure || b.kind == measure { // a unit may be left out
		value := func(n *node) (*node, string) {
			if n.kind == measure {
				return n.args[0], n.name
			}
			return n, ""
		}
		x, unitX := value(a)
		y, unitY := value(b)
		if unitX != "" && unitY != "" && unitX != unitY {
			return "", false
		}
		return equalNodes(x, y)
	}
	if a.kind == relation || b.kind == relation {
		return equalRelations(a, b)
	}
	if a.scalar() && b.scalar() {
		return equalScalars(a, b)
	}
	if a.kind != b.kind || a.name != b.name {
		return "", false
	}
	switch a.kind {
	case words:
		return "words", true
	case tuple:
		return "tuple", equalOrdered(a.args, b.args)
	case matrix:
		return "matrix", equalOrdered(a.args, b.args)
	case set:
		return "set", equalUnordered(a.args, b.args)
	case union:
		if a.name == "setminus" {
			return "set", equalOrdered(a.args, b.args)
		}
		return "set", equalUnordered(a.args, b.args)
	}
	return "expression", a.key() == b.key()
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
	x, rationalX := a.exact()
	y, rationalY := b.exact()
	if rationalX && rationalY {
		return "number", x.Cmp(y) == 0
	}
	if a.key() == b.key() {
		return "expression", true
	}
	for _, r := range []*big.Rat{x, y} {
		if r != nil && r.Denom().Cmp(maxDenominator) > 0 {
			return "", false
		}
	}
	all := points(a, b)
	limit, compared := closeAtPoints, 0
	if len(all) == 1 {
		limit = closeConstant
	}
	for _, p := range all {
		u, v := a.at(p), b.at(p)
		if !finite(u) || !finite(v) {
			if finite(u) != finite(v) {
				return "", false
			}
			continue
		}
		if cmplx.Abs(u-v) > limit*max(cmplx.Abs(u), cmplx.Abs(v)) {
			return "", false
		}
		compared++
	}
	return "expression", compared > len(all)/3
}

func finite(x complex128) bool {
	return !cmplx.IsNaN(x) && !cmplx.IsInf(x) && cmplx.Abs(x) < math.MaxFloat64
}

// variable is the left side of "y = …" and "f(x) = …", which an answer may leave out.
func variable(n *node) bool {
	if n.kind == product && len(n.args) == 2 {
		return n.args[0].kind == symbol && n.args[1].kind == symbol
	}
	return n.kind == symbol
}

func equalRelations(a, b *node) (string, bool) {
	if a.kind != relation {
		a, b = b, a
	}
	if b.kind != relation { // "x = 5" and "5", "x \in [0, 1]" and "[0, 1]"
		if (a.name == "=" || a.name == "in") && variable(a.args[0]) {
			return equalNodes(a.args[1], b)
		}
		return "", false
	}
	x, y := upward(a), upward(b)
	if x.name != y.name {
		return "", false
	}
	if equalOrdered(x.args, y.args) || x.name == "=" && equalOrdered(x.args, []*node{y.args[1], y.args[0]}) {
		return "relation", true
	}
	if len(x.args) != 2 || x.name == "in" || x.name == ":" ||
		slices.ContainsFunc(slices.Concat(x.args, y.args), func(n *node) bool { return !n.scalar() }) {
		return "", false
	}
	return "relation", proportional(difference(x), difference(y), x.name == "<" || x.name == "leq")
}

// upward writes a > b as b < a.
func upward(n *node) *node {
	flipped := map[string]string{">": "<", "geq": "leq"}
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

func difference(n *node) *node {
	return &node{kind: sum, args: []*node{n.args[0], times(whole(-1), n.args[1])}}
}

// proportional says whether one expression is a constant multiple of the other, a positive one where that matters.
func proportional(f, g *node, positive bool) bool {
	all := points(f, g)
	if len(all) == 1 {
		return false
	}
	var ratio complex128
	compared := 0
	for _, p := range all {
		u, v := f.at(p), g.at(p)
		if !finite(u) || !finite(v) {
			continue
		}
		if u == 0 || v == 0 {
			if u != v {
				return false
			}
			continue
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
	return compared > len(all)/3 && math.Abs(imag(ratio)) <= closeAtPoints*cmplx.Abs(ratio) &&
		(!positive || real(ratio) > 0)
}
