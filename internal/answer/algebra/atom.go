package algebra

import (
	"math/big"
	"slices"
	"strings"
)

// unary functions that are known by value.
var unary = names(`sin cos tan cot sec csc asin acos atan sinh cosh tanh ln exp abs floor ceil`)

// unsupported commands begin what cannot be compared by value.
var unsupported = names(`int sum prod lim mid unknown to mapsto rightarrow Rightarrow cdots ldots dots not forall exists mod pmod`)

func (r *reader) atom() (*node, error) {
	if r.depth++; r.depth > maxDepth {
		return nil, errUnreadable
	}
	defer func() { r.depth-- }()
	t := r.peek()
	r.at++
	switch t.kind {
	case tokenNumber:
		return r.repeating(t.text)
	case tokenLetter:
		return &node{kind: symbol, name: t.text}, nil
	case tokenCommand:
		return r.command(t.text)
	case tokenMark:
		switch t.text {
		case "{":
			inner, err := r.sum()
			if _, closed := r.mark("}"); !closed || err != nil {
				return nil, errUnreadable
			}
			return inner, nil
		case "(", "[":
			return r.brackets(t.text)
		case `\{`:
			if _, empty := r.mark(`\}`); empty {
				return &node{kind: set}, nil
			}
			elements, err := r.list()
			if _, closed := r.mark(`\}`); !closed || err != nil {
				return nil, errUnreadable
			}
			return &node{kind: set, args: elements}, nil
		case "|":
			inner, err := r.sum()
			if _, closed := r.mark("|"); !closed || err != nil {
				return nil, errUnreadable
			}
			return &node{kind: function, name: "abs", args: []*node{inner}}, nil
		}
	}
	return nil, errUnreadable
}

// repeating reads 0.1\overline{6}, the digits before the bar having been read.
func (r *reader) repeating(digits string) (*node, error) {
	head, err := literal(digits)
	if err != nil {
		return nil, err
	}
	_, decimals, isDecimal := strings.Cut(digits, ".")
	if isDecimal && r.at+3 < len(r.tokens) && r.tokens[r.at] == (token{tokenCommand, "overline"}) &&
		r.tokens[r.at+1] == (token{tokenMark, "{"}) &&
		r.tokens[r.at+2].kind == tokenNumber && r.tokens[r.at+3] == (token{tokenMark, "}"}) {
		period := r.tokens[r.at+2].text
		r.at += 4
		tail, err := literal(period)
		if err != nil || strings.Contains(period, ".") {
			return nil, errUnreadable
		}
		ten := big.NewInt(10)
		cycle := new(big.Int).Exp(ten, big.NewInt(int64(len(period))), nil)
		shift := new(big.Int).Exp(ten, big.NewInt(int64(len(decimals))), nil)
		cycle.Sub(cycle, big.NewInt(1)).Mul(cycle, shift)
		head.value.Add(head.value, tail.value.Quo(tail.value, new(big.Rat).SetInt(cycle)))
	}
	return head, nil
}

func (r *reader) command(name string) (*node, error) {
	arguments := func(n int) (*node, error) {
		f := &node{kind: function, name: name}
		for range n {
			a, err := r.group()
			if err != nil {
				return nil, err
			}
			f.args = append(f.args, a)
		}
		return f, nil
	}
	switch {
	case name == "frac" || name == "binom":
		return arguments(2)
	case name == "overline" || name == "overrightarrow" || name == "vec" || name == "hat" || name == "bar" ||
		name == "underline" || name == "widehat":
		return arguments(1)
	case name == "sqrt":
		index := whole(2)
		if _, is := r.mark("["); is {
			var err error
			index, err = r.sum()
			if _, closed := r.mark("]"); !closed || err != nil {
				return nil, errUnreadable
			}
		}
		radicand, err := r.group()
		return &node{kind: function, name: "root", args: []*node{radicand, index}}, err
	case name == "emptyset":
		return &node{kind: set}, nil
	case name == "lfloor" || name == "lceil":
		inner, err := r.sum()
		if _, closed := r.commandOf("r" + name[1:]); !closed || err != nil {
			return nil, errUnreadable
		}
		return &node{kind: function, name: strings.TrimPrefix(name, "l"), args: []*node{inner}}, nil
	case name == "log" || unary[name]:
		return r.applied(name)
	case strings.HasPrefix(name, "begin "):
		return r.matrix(strings.TrimPrefix(name, "begin "))
	case unsupported[name] || strings.HasPrefix(name, "end ") || slices.Contains(namedRelations, name):
		return nil, errUnreadable
	}
	return &node{kind: symbol, name: `\` + name}, nil
}

// applied is a function with its argument: \sin x, \sin(x), \sin^2 2x, \log_2 8.
func (r *reader) applied(name string) (*node, error) {
	f := &node{kind: function, name: name}
	var base, exponent *node
	var err error
	if _, is := r.mark("_"); is && name == "log" {
		if base, err = r.group(); err != nil {
			return nil, err
		}
	}
	if _, is := r.mark("^"); is {
		if exponent, err = r.group(); err != nil {
			return nil, err
		}
		if exponent.kind != number || exponent.value.Sign() < 0 { // \sin^{-1} is not a power
			return nil, errUnreadable
		}
	}
	argument, err := r.argument()
	if err != nil {
		return nil, err
	}
	f.args = []*node{argument}
	if base != nil {
		f = times(call("ln", argument), &node{kind: power, args: []*node{call("ln", base), whole(-1)}})
	} else if name == "log" { // of which base is not known: the same on both sides
		f.name = "log"
	}
	if exponent != nil {
		f = &node{kind: power, args: []*node{f, exponent}}
	}
	return f, nil
}

func call(name string, args ...*node) *node { return &node{kind: function, name: name, args: args} }

// argument is what follows a function's name: a bracket alone, or factors up to the next operator or function.
func (r *reader) argument() (*node, error) {
	bracket := r.peek() == token{tokenMark, "("} || r.peek() == token{tokenMark, "{"}
	operator, negative := r.mark("-")
	argument, err := r.factor()
	for err == nil && !bracket && r.startsFactor() {
		if t := r.peek(); t.kind == tokenCommand && (unary[t.text] || t.text == "log") || t.kind == tokenNumber {
			break
		}
		var next *node
		if next, err = r.factor(); err == nil {
			argument = times(argument, next)
		}
	}
	if negative && operator == "-" && err == nil {
		argument = times(whole(-1), argument)
	}
	return argument, err
}

// brackets is a parenthesised expression, or a tuple or interval of several elements.
func (r *reader) brackets(open string) (*node, error) {
	elements, err := r.list()
	if err != nil {
		return nil, err
	}
	closing, closed := r.mark(")", "]")
	if !closed {
		return nil, errUnreadable
	}
	if len(elements) == 1 {
		if (open == "(") != (closing == ")") || elements[0].kind == relation {
			return nil, errUnreadable
		}
		return elements[0], nil
	}
	return &node{kind: tuple, name: open + closing, args: elements}, nil
}

func (r *reader) matrix(kind string) (*node, error) {
	m := &node{kind: matrix, name: "matrix"}
	if kind == "vmatrix" {
		m.name = kind
	}
	row := &node{kind: tuple, name: "row"}
	for {
		if _, is := r.commandOf("end " + kind); is {
			if len(row.args) > 0 {
				m.args = append(m.args, row)
			}
			if len(m.args) == 0 {
				return nil, errUnreadable
			}
			return m, nil
		}
		cell, err := r.sum()
		if err != nil {
			return nil, err
		}
		row.args = append(row.args, cell)
		if _, is := r.mark("&"); is {
			continue
		}
		if _, is := r.mark(`\\`); is {
			m.args, row = append(m.args, row), &node{kind: tuple, name: "row"}
			continue
		}
		if r.peek() != (token{tokenCommand, "end " + kind}) {
			return nil, errUnreadable
		}
	}
}

// key writes a node so that equal texts mean equal trees; the order of summands and factors does not matter.
func (n *node) key() string {
	var parts []string
	for _, a := range n.args {
		parts = append(parts, a.key())
	}
	switch n.kind {
	case number:
		return n.value.RatString()
	case symbol:
		return n.name
	case sum, product, set:
		slices.Sort(parts)
	}
	return [...]string{"number", "symbol", "+", "*", "^", "", "sign", "tuple", "set", "", "", "", "unit",
		"words"}[n.kind] + n.name +
		"(" + strings.Join(parts, ",") + ")"
}
