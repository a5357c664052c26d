package algebra

import (
	"math/big"
	"slices"
	"strings"
)

// nodeKind is the kind of a node of an expression.
type nodeKind int

const (
	number   nodeKind = iota
	symbol            // name
	function          // name: one of operations, or another; args
	tuple             // name: its brackets
	set
	matrix   // name; args: rows, each a tuple
	union    // name: the operator
	relation // name: the operators, separated by blanks; args: one more than operators
	measure  // name: the unit; args: the value
	words    // name
)

type node struct {
	kind nodeKind
	name string
	args []*node
	value
}

func (n *node) wholeNumber() bool { return n.kind == number && n.exact.IsInt() && n.exact.Sign() >= 0 }

// properFraction recognises \frac{1}{2} of whole numbers.
func (n *node) properFraction() bool {
	return n.kind == function && n.name == "frac" && n.args[0].wholeNumber() && n.args[1].wholeNumber() &&
		n.args[0].exact.Cmp(n.args[1].exact) < 0
}

// key writes a node so that equal texts mean equal trees; the order of summands and factors does not matter.
func (n *node) key() string {
	var parts []string
	for _, a := range n.args {
		parts = append(parts, a.key())
	}
	switch {
	case n.kind == number:
		return n.exact.RatString()
	case n.kind == symbol:
		return n.name
	case n.kind == set, n.kind == function && (n.name == "+" || n.name == "*"):
		slices.Sort(parts)
	}
	kinds := [...]string{tuple: "tuple", set: "set", measure: "unit", words: "words"}
	return kinds[n.kind] + n.name + "(" + strings.Join(parts, ",") + ")"
}

// reader parses tokens by recursive descent.
type reader struct {
	tokens []token
	lower  bool // of ± and ∓ the lower sign counts
	at     int
	depth  int
}

// read parses an answer into the elements of a list, as a rule one. An element with ± is two.
func read(s string, commas bool) (list []*node, ok bool) {
	defer readable(&ok)
	tokens := lex(s, commas)
	if len(tokens) == 1 && tokens[0].kind == tokenText { // \text{(C)}
		if inner := Trim(tokens[0].text); inner != s {
			return read(inner, commas)
		}
	}
	upper, lower := elements(tokens, false), elements(tokens, true)
	for i, n := range upper {
		if list = append(list, n); n.key() != lower[i].key() {
			list = append(list, lower[i])
		}
	}
	return list, true
}

func elements(tokens []token, lower bool) []*node {
	r := &reader{tokens: slices.Clone(tokens), lower: lower}
	list := r.list()
	require(r.peek().kind == tokenEnd)
	return list
}

func (r *reader) peek() token {
	if r.at < len(r.tokens) {
		return r.tokens[r.at]
	}
	return token{}
}

// take takes the next token when it is one of the given marks and commands; "" = it is none of them.
func (r *reader) take(options ...string) string {
	t := r.peek()
	if (t.kind != tokenMark && t.kind != tokenCommand) || !slices.Contains(options, t.text) {
		return ""
	}
	r.at++
	return t.text
}

// expect takes a token that must be one of the options.
func (r *reader) expect(options ...string) string {
	taken := r.take(options...)
	require(taken != "")
	return taken
}

// nest bounds how deep readers call each other; what it returns is to be deferred.
func (r *reader) nest() (leave func()) {
	r.depth++
	require(r.depth <= maxDepth)
	return func() { r.depth-- }
}

// conjunction says whether the next token is an "and" or "or" between elements of a list.
func (r *reader) conjunction() bool {
	t := r.peek()
	return t.kind == tokenText && slices.Contains([]string{"and", "or", ", and", ", or"}, t.text)
}

// list is elements separated by commas, semicolons, "and" or "or", of which several may follow each other.
func (r *reader) list() []*node {
	list := []*node{r.relation()}
	for {
		before := r.at
		for r.take(",", ";") != "" || r.conjunction() {
			if r.conjunction() {
				r.at++
			}
		}
		if r.at == before {
			return list
		}
		list = append(list, r.relation())
	}
}

func (r *reader) relation() *node {
	sides, operators := []*node{r.union()}, []string(nil)
	for {
		operator := r.take("=", "<", ">", ":", `\leq`, `\geq`, `\neq`, `\in`)
		if operator == "" {
			break
		}
		sides, operators = append(sides, r.union()), append(operators, operator)
	}
	if operators == nil {
		return sides[0]
	}
	return &node{kind: relation, name: strings.Join(operators, " "), args: sides}
}

func (r *reader) union() *node {
	u := &node{kind: union, args: []*node{r.measured()}}
	u.name = r.take(`\cup`, `\cap`, `\setminus`)
	if u.name == "" {
		return u.args[0]
	}
	for more := u.name; more != ""; more = r.take(u.name) {
		u.args = append(u.args, r.measured())
	}
	return u
}

// measured is an expression that may be followed by its unit.
func (r *reader) measured() *node {
	value := r.sum()
	var unit []string
	for r.peek().kind == tokenText && !r.conjunction() {
		unit = append(unit, strings.ToLower(r.peek().text))
		r.at++
		if r.take("^") != "" {
			unit = append(unit, "^"+r.group().key())
		}
	}
	if unit == nil {
		return value
	}
	require(value.kind != words)
	return &node{kind: measure, name: strings.Join(unit, " "), args: []*node{value}}
}

func (r *reader) sum() *node {
	defer r.nest()()
	if t := r.peek(); t.kind == tokenText {
		r.at++
		return &node{kind: words, name: fold(t.text)}
	}
	minus := []string{"-", `\mp`}
	if r.lower {
		minus[1] = `\pm`
	}
	var total *node
	for {
		operator := r.take("+", "-", `\pm`, `\mp`)
		if operator == "" && total != nil {
			return total
		}
		term := r.product()
		if slices.Contains(minus, operator) {
			term = times(whole(-1), term)
		}
		if total != nil {
			term = call("+", total, term)
		}
		total = term
	}
}

// product is factors, with or without an operator between them. A whole number before a proper fraction of whole
// numbers is a mixed number.
func (r *reader) product() *node {
	operators := []string{"*", "/", `\cdot`, `\times`, `\div`}
	require(r.take(operators...) == "")
	result := r.factor()
	for {
		operator := r.take(operators...)
		if operator != "" {
			factor := r.signed(r.factor)
			if operator == "/" || operator == `\div` {
				factor = call("^", factor, whole(-1))
			}
			result = times(result, factor)
			continue
		}
		if !r.startsFactor() {
			return result
		}
		first := r.peek()
		factor := r.factor()
		switch {
		case result.wholeNumber() && factor.properFraction():
			result = call("+", result, factor)
		case first.kind == tokenNumber:
			result = r.mixed(result, factor)
		default:
			result = times(result, factor)
		}
	}
}

// mixed reads the rest of "1 1/2"; other numerals side by side are no expression.
func (r *reader) mixed(integer, numerator *node) *node {
	r.expect("/")
	require(integer.wholeNumber() && numerator.wholeNumber() && r.peek().kind == tokenNumber)
	denominator := r.factor()
	require(denominator.wholeNumber() && denominator.exact.Sign() != 0)
	part := new(big.Rat).Quo(numerator.exact, denominator.exact)
	return rational(part.Add(part, integer.exact))
}

// signed is what may have a sign where no sum begins: 2 \cdot -3, x^-1.
func (r *reader) signed(read func() *node) *node {
	operator := r.take("+", "-")
	n := read()
	if operator == "-" {
		n = times(whole(-1), n)
	}
	return n
}

// separators are the commands that end a product.
var separators = names(`\pm \mp \cup \cap \setminus \leq \geq \neq \in \rfloor \rceil`)

func (r *reader) startsFactor() bool {
	switch t := r.peek(); t.kind {
	case tokenNumber, tokenLetter:
		return true
	case tokenMark:
		return slices.Contains([]string{"(", "[", "{", `\{`}, t.text)
	case tokenCommand:
		return !separators[t.text] && !strings.HasPrefix(t.text, `\end `)
	}
	return false
}

// factor is an atom with its subscript, factorials and power.
func (r *reader) factor() *node {
	base := r.atom()
	for {
		switch r.take("!", "_", "'", "^") {
		case "!":
			base = call("factorial", base)
		case "_":
			require(base.kind == symbol || base.kind == number)
			base = named(base.key() + "_" + r.group().key())
		case "'":
			if base.kind == symbol {
				base = named(base.name + "'")
			}
		case "^":
			return call("^", base, r.group())
		default:
			return base
		}
	}
}

// group is {…}, one character of a numeral, or one atom: the argument of ^, _ and \frac.
func (r *reader) group() *node {
	if t := r.peek(); t.kind == tokenNumber && len(t.text) > 1 && !strings.Contains(t.text, ".") {
		r.tokens[r.at].text = t.text[1:]
		return literal(t.text[:1])
	}
	if t := r.peek(); t.kind == tokenMark && (t.text == "+" || t.text == "-") {
		return r.signed(r.group)
	}
	return r.atom()
}

// fold makes words comparable.
func fold(s string) string {
	return strings.ToLower(strings.Join(strings.Fields(strings.Trim(s, " .,;:!")), " "))
}
