package algebra

import (
	"math/big"
	"slices"
	"strings"
)

// nodeKind is the kind of a node of an expression.
type nodeKind int

const (
	number   nodeKind = iota // value
	symbol                   // name
	sum                      // args
	product                  // args
	power                    // args: base, exponent
	function                 // name, args
	sign                     // name pm or mp, args: left, right
	tuple                    // name: its brackets
	set
	matrix   // name; args: rows, each a tuple
	union    // name: the operator
	relation // name: the operators, separated by blanks; args: one more than operators
	measure  // name: the unit; args: the value
	words    // name
)

type node struct {
	kind  nodeKind
	name  string
	value *big.Rat
	args  []*node
}

// reader parses tokens by recursive descent.
type reader struct {
	tokens []token
	at     int
	depth  int
}

// read parses an answer into the elements of a list, as a rule one.
func read(s string, commas bool) ([]*node, error) {
	tokens, err := lex(s, commas)
	if err != nil {
		return nil, err
	}
	if len(tokens) == 1 && tokens[0].kind == tokenText { // \text{(C)}
		if inner := Trim(tokens[0].text); inner != s {
			return read(inner, commas)
		}
	}
	r := &reader{tokens: tokens}
	list, err := r.list()
	if err == nil && r.peek().kind != tokenEnd {
		err = errUnreadable
	}
	return list, err
}

func (r *reader) peek() token {
	if r.at < len(r.tokens) {
		return r.tokens[r.at]
	}
	return token{}
}

// mark takes the next token when it is one of the given marks.
func (r *reader) mark(options ...string) (string, bool) {
	return r.take(tokenMark, options)
}

func (r *reader) commandOf(options ...string) (string, bool) {
	return r.take(tokenCommand, options)
}

func (r *reader) take(kind tokenKind, options []string) (string, bool) {
	if t := r.peek(); t.kind == kind && slices.Contains(options, t.text) {
		r.at++
		return t.text, true
	}
	return "", false
}

// list is elements separated by commas, semicolons, "and" or "or".
func (r *reader) list() ([]*node, error) {
	var list []*node
	for {
		element, err := r.relation()
		if err != nil {
			return nil, err
		}
		list = append(list, element)
		separated := false
		for { // a comma and an "and" are one separator
			if _, is := r.mark(",", ";"); is {
				separated = true
			} else if _, is := r.take(tokenText, []string{"and", "or", ", and", ", or"}); is {
				separated = true
			} else {
				break
			}
		}
		if !separated {
			return list, nil
		}
	}
}

var relations = []string{"=", "<", ">", ":"}
var namedRelations = []string{"leq", "geq", "neq", "in"}

func (r *reader) relation() (*node, error) {
	first, err := r.union()
	if err != nil {
		return nil, err
	}
	sides, operators := []*node{first}, []string{}
	for {
		operator, is := r.mark(relations...)
		if !is {
			operator, is = r.commandOf(namedRelations...)
		}
		if !is {
			break
		}
		side, err := r.union()
		if err != nil {
			return nil, err
		}
		sides, operators = append(sides, side), append(operators, operator)
	}
	if len(operators) == 0 {
		return first, nil
	}
	return &node{kind: relation, name: strings.Join(operators, " "), args: sides}, nil
}

func (r *reader) union() (*node, error) {
	first, err := r.measured()
	if err != nil {
		return nil, err
	}
	operator, is := r.commandOf("cup", "cap", "setminus")
	if !is {
		return first, nil
	}
	u := &node{kind: union, name: operator, args: []*node{first}}
	for {
		next, err := r.measured()
		if err != nil {
			return nil, err
		}
		u.args = append(u.args, next)
		if _, more := r.commandOf(operator); !more {
			return u, nil
		}
	}
}

// measured is an expression that may be followed by its unit.
func (r *reader) measured() (*node, error) {
	value, err := r.sum()
	if err != nil {
		return nil, err
	}
	var unit []string
	for r.peek().kind == tokenText && !slices.Contains([]string{"and", "or", ", and", ", or"}, r.peek().text) {
		unit = append(unit, strings.ToLower(r.peek().text))
		r.at++
		if _, is := r.mark("^"); is {
			exponent, err := r.group()
			if err != nil {
				return nil, err
			}
			unit = append(unit, "^"+exponent.key())
		}
	}
	if unit == nil {
		return value, nil
	}
	if value.kind == words {
		return nil, errUnreadable
	}
	return &node{kind: measure, name: strings.Join(unit, " "), args: []*node{value}}, nil
}

func (r *reader) sum() (*node, error) {
	if r.depth++; r.depth > maxDepth {
		return nil, errUnreadable
	}
	defer func() { r.depth-- }()
	if r.peek().kind == tokenText {
		t := r.peek().text
		r.at++
		return &node{kind: words, name: fold(t)}, nil
	}
	var total *node
	join := func(operator string, term *node) {
		switch {
		case operator == "pm" || operator == "mp":
			if total == nil {
				total = whole(0)
			}
			total = &node{kind: sign, name: operator, args: []*node{total, term}}
			return
		case operator == "-":
			term = times(whole(-1), term)
		}
		if total == nil {
			total = term
		} else {
			total = &node{kind: sum, args: []*node{total, term}}
		}
	}
	for {
		operator, is := r.mark("+", "-")
		if !is {
			operator, is = r.commandOf("pm", "mp")
		}
		if !is && total != nil {
			return total, nil
		}
		term, err := r.product()
		if err != nil {
			return nil, err
		}
		join(operator, term)
	}
}

// product is factors, with or without a sign between them. A whole number before a proper fraction of whole numbers
// is a mixed number.
func (r *reader) product() (*node, error) {
	var result *node
	for {
		operator, is := r.mark("*", "/")
		if !is {
			operator, is = r.commandOf("cdot", "times", "div")
		}
		if is && result == nil || !is && result != nil && !r.startsFactor() {
			if result == nil {
				return nil, errUnreadable
			}
			return result, nil
		}
		before := r.at
		var factor *node
		var err error
		if is {
			factor, err = r.signed()
		} else {
			factor, err = r.factor()
		}
		if err != nil {
			return nil, err
		}
		switch {
		case result == nil:
			result = factor
		case operator == "/" || operator == "div":
			result = times(result, &node{kind: power, args: []*node{factor, whole(-1)}})
		case !is && wholeNumber(result) && properFraction(factor):
			result = &node{kind: sum, args: []*node{result, factor}}
		case !is && r.tokens[before].kind == tokenNumber:
			fraction, mixed := r.mixed(result, factor)
			if !mixed {
				return nil, errUnreadable // two numerals side by side
			}
			result = fraction
		default:
			result = times(result, factor)
		}
	}
}

// mixed reads the rest of "1 1/2".
func (r *reader) mixed(integer, numerator *node) (*node, bool) {
	if !wholeNumber(integer) || !wholeNumber(numerator) {
		return nil, false
	}
	if _, is := r.mark("/"); !is || r.peek().kind != tokenNumber {
		return nil, false
	}
	denominator, err := r.factor()
	if err != nil || !wholeNumber(denominator) || denominator.value.Sign() == 0 {
		return nil, false
	}
	part := new(big.Rat).Quo(numerator.value, denominator.value)
	return &node{kind: number, value: part.Add(part, integer.value)}, true
}

// signed is a factor after an operator: 2 \cdot -3.
func (r *reader) signed() (*node, error) {
	operator, is := r.mark("+", "-")
	factor, err := r.factor()
	if is && operator == "-" && err == nil {
		factor = times(whole(-1), factor)
	}
	return factor, err
}

func (r *reader) startsFactor() bool {
	switch t := r.peek(); t.kind {
	case tokenNumber, tokenLetter:
		return true
	case tokenMark:
		return slices.Contains([]string{"(", "[", "{", `\{`}, t.text)
	case tokenCommand:
		return !slices.Contains([]string{"pm", "mp", "cup", "cap", "setminus", "leq", "geq", "neq", "in", "rfloor",
			"rceil"}, t.text) &&
			!strings.HasPrefix(t.text, "end ")
	}
	return false
}

// factor is an atom with its subscript, factorials and power.
func (r *reader) factor() (*node, error) {
	base, err := r.atom()
	if err != nil {
		return nil, err
	}
	for {
		switch _, is := r.mark("!"); {
		case is:
			base = &node{kind: function, name: "factorial", args: []*node{base}}
			continue
		}
		if _, is := r.mark("_"); is {
			index, err := r.group()
			if err != nil || base.kind != symbol && base.kind != number {
				return nil, errUnreadable
			}
			base = &node{kind: symbol, name: base.key() + "_" + index.key()}
			continue
		}
		if _, is := r.mark("'"); is && base.kind == symbol {
			base = &node{kind: symbol, name: base.name + "'"}
			continue
		}
		if _, is := r.mark("^"); is {
			exponent, err := r.group()
			if err != nil {
				return nil, err
			}
			return &node{kind: power, args: []*node{base, exponent}}, nil
		}
		return base, nil
	}
}

// group is {…}, one character of a numeral, or one atom: the argument of ^, _ and \frac.
func (r *reader) group() (*node, error) {
	t := r.peek()
	if t.kind == tokenNumber && len(t.text) > 1 && t.text[0] != '.' && !strings.Contains(t.text, ".") {
		r.tokens[r.at].text = t.text[1:]
		return literal(t.text[:1])
	}
	if operator, is := r.mark("+", "-"); is && r.peek().kind != tokenEnd { // x^-1
		inner, err := r.group()
		if operator == "-" && err == nil {
			inner = times(whole(-1), inner)
		}
		return inner, err
	}
	return r.atom()
}

func whole(n int64) *node { return &node{kind: number, value: big.NewRat(n, 1)} }

func times(a, b *node) *node {
	if a.kind == number && b.kind == number {
		return &node{kind: number, value: new(big.Rat).Mul(a.value, b.value)}
	}
	return &node{kind: product, args: []*node{a, b}}
}

func literal(text string) (*node, error) {
	value, ok := new(big.Rat).SetString(text)
	if !ok || len(text) > 200 {
		return nil, errUnreadable
	}
	return &node{kind: number, value: value}, nil
}

func wholeNumber(n *node) bool { return n.kind == number && n.value.IsInt() && n.value.Sign() >= 0 }

// properFraction recognises \frac{1}{2} as frac builds it.
func properFraction(n *node) bool {
	if n.kind != function || n.name != "frac" {
		return false
	}
	return wholeNumber(n.args[0]) && wholeNumber(n.args[1]) && n.args[0].value.Cmp(n.args[1].value) < 0
}

// fold makes words comparable.
func fold(s string) string {
	return strings.ToLower(strings.Join(strings.Fields(strings.Trim(s, " .,;:!")), " "))
}
