package algebra

import (
	"math/big"
	"strings"
)

// applicable functions are known by value.
var applicable = names(`sin cos tan cot sec csc asin acos atan sinh cosh tanh ln exp abs floor ceil log`)

// accents are commands whose argument is a name more than a value.
var accents = names(`overline overrightarrow vec hat bar underline widehat`)

// unsupported commands begin what cannot be compared by value.
var unsupported = names(`int sum prod lim mid unknown to mapsto rightarrow Rightarrow cdots ldots dots
	not forall exists mod pmod leq geq neq in`)

func (r *reader) atom() *node {
	defer r.nest()()
	t := r.peek()
	r.at++
	switch {
	case t.kind == tokenNumber:
		return r.repeating(t.text)
	case t.kind == tokenLetter:
		return named(t.text)
	case t.kind == tokenCommand:
		return r.command(strings.TrimPrefix(t.text, `\`))
	case t.text == "{":
		return r.until("}")
	case t.text == "(" || t.text == "[":
		return r.brackets(t.text)
	case t.text == `\{`:
		elements := &node{kind: set}
		if r.take(`\}`) == "" {
			elements.args = r.list()
			r.expect(`\}`)
		}
		return elements
	}
	require(t.text == "|")
	return call("abs", r.until("|"))
}

// until is an expression and what closes it.
func (r *reader) until(closing string) *node {
	inner := r.sum()
	r.expect(closing)
	return inner
}

// repeating reads 0.1\overline{6}, the digits before the bar having been read.
func (r *reader) repeating(digits string) *node {
	head := literal(digits)
	_, decimals, isDecimal := strings.Cut(digits, ".")
	if rest := r.tokens[r.at:]; isDecimal && len(rest) > 3 && rest[0].text == `\overline` && rest[1].text == "{" &&
		rest[2].kind == tokenNumber && rest[3].text == "}" {
		period := rest[2].text
		require(!strings.Contains(period, "."))
		r.at += 4
		// period / ((10^length of period - 1) 10^decimals)
		cycle := literal(strings.Repeat("9", len(period)) + strings.Repeat("0", len(decimals)))
		tail := new(big.Rat).Quo(literal(period).exact, cycle.exact)
		return rational(tail.Add(tail, head.exact))
	}
	return head
}

func (r *reader) command(name string) *node {
	switch {
	case name == "frac" || name == "binom":
		return call(name, r.group(), r.group())
	case accents[name]:
		return call(name, r.group())
	case name == "sqrt":
		index := whole(2)
		if r.take("[") != "" {
			index = r.until("]")
		}
		return call("root", r.group(), index)
	case name == "emptyset":
		return &node{kind: set}
	case name == "lfloor" || name == "lceil":
		return call(name[1:], r.until(`\r`+name[1:]))
	case applicable[name]:
		return r.applied(name)
	case strings.HasPrefix(name, "begin "):
		return r.matrix(strings.TrimPrefix(name, "begin "))
	}
	require(!unsupported[name] && !strings.HasPrefix(name, "end "))
	return named(`\` + name)
}

// applied is a function with its argument: \sin x, \sin(x), \sin^2 2x, \log_2 8.
func (r *reader) applied(name string) *node {
	var base, exponent *node
	if name == "log" && r.take("_") != "" {
		base = r.group()
	}
	if r.take("^") != "" {
		exponent = r.group()
		require(exponent.kind == number && exponent.exact.Sign() >= 0) // \sin^{-1} is not a power
	}
	f := call(name, r.argument())
	if base != nil {
		f = times(call("ln", f.args[0]), call("^", call("ln", base), whole(-1)))
	}
	if exponent != nil {
		f = call("^", f, exponent)
	}
	return f
}

// argument is what follows a function's name: a bracket alone, or factors up to the next operator or function.
func (r *reader) argument() *node {
	bracket := r.peek() == token{tokenMark, "("} || r.peek() == token{tokenMark, "{"}
	negative := r.take("-") != ""
	argument := r.factor()
	for !bracket && r.startsFactor() {
		if t := r.peek(); t.kind == tokenCommand && applicable[t.text[1:]] || t.kind == tokenNumber {
			break
		}
		argument = times(argument, r.factor())
	}
	if negative {
		argument = times(whole(-1), argument)
	}
	return argument
}

// brackets is a parenthesised expression, or a tuple or interval of several elements.
func (r *reader) brackets(open string) *node {
	elements := r.list()
	closing := r.expect(")", "]")
	if len(elements) > 1 {
		return &node{kind: tuple, name: open + closing, args: elements}
	}
	require((open == "(") == (closing == ")") && elements[0].kind != relation)
	return elements[0]
}

func (r *reader) matrix(kind string) *node {
	m := &node{kind: matrix, name: "matrix"}
	if kind == "vmatrix" {
		m.name = kind
	}
	end := `\end ` + kind
	for r.take(end) == "" {
		row := &node{kind: tuple, name: "row"}
		for more := "&"; more == "&"; more = r.take("&") {
			row.args = append(row.args, r.sum())
		}
		m.args = append(m.args, row)
		require(r.take(`\\`) != "" || r.peek() == token{tokenCommand, end})
	}
	require(len(m.args) > 0)
	return m
}
