package jinja

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// expr computes a value in a scope. The parser makes these functions; there is no other form of a template.
type expr func(*scope) (Value, error)

// parser reads the segments of a template, and the tokens of the one it is in.
type parser struct {
	segments []segment
	at       int // of the next segment
	tokens   []token
	ends     []string // the tags that end the blocks under way
	depth    int      // of the expression
}

func (p *parser) peek() token {
	if len(p.tokens) == 0 {
		return token{}
	}
	return p.tokens[0]
}

func (p *parser) next() token {
	t := p.peek()
	p.tokens = p.tokens[min(1, len(p.tokens)):]
	return t
}

// is says whether the next token is one of these names or operators.
func (p *parser) is(texts ...string) bool {
	t := p.peek()
	return (t.kind == 'n' || t.kind == 'o') && slices.Contains(texts, t.text)
}

// skip takes the next token if it is this one.
func (p *parser) skip(text string) bool {
	if !p.is(text) {
		return false
	}
	p.next()
	return true
}

// fail ends the parsing; Compile recovers it.
func (p *parser) fail(format string, args ...any) {
	line := 0
	if p.at > 0 {
		line = p.segments[p.at-1].line
	}
	panic(fmt.Errorf("line %d: %s", line, fmt.Sprintf(format, args...)))
}

func (p *parser) expect(text string) {
	if !p.skip(text) {
		p.fail("expected %q before %.20q", text, p.peek().text)
	}
}

func (p *parser) name() string {
	t := p.next()
	if t.kind != 'n' {
		p.fail("expected a name before %.20q", t.text)
	}
	return t.text
}

// tuple reads expressions between commas: one is itself, several are a tuple. conditional says that "if" may follow.
func (p *parser) tuple(conditional bool, ends ...string) expr {
	one := func() expr {
		if conditional {
			return p.expression()
		}
		return p.either()
	}
	if p.is(ends...) {
		return list(nil, true)
	}
	items := []expr{one()}
	several := false
	for p.skip(",") {
		if several = true; len(p.tokens) == 0 || p.is(ends...) {
			break
		}
		items = append(items, one())
	}
	if !several {
		return items[0]
	}
	return list(items, true)
}

func list(items []expr, tuple bool) expr {
	return func(s *scope) (Value, error) {
		values := make([]Value, len(items))
		for i, item := range items {
			var err error
			if values[i], err = item(s); err != nil {
				return nil, err
			}
		}
		if tuple {
			return starlark.Tuple(values), nil
		}
		return starlark.NewList(values), nil
	}
}

// expression is a if b else c, or what binds closer.
func (p *parser) expression() expr {
	then := p.either()
	for p.skip("if") {
		yes, condition := then, p.either()
		no := constant(Undefined(""))
		if p.skip("else") {
			no = p.expression()
		}
		then = func(s *scope) (Value, error) {
			c, err := condition(s)
			if err != nil {
				return nil, err
			}
			if c.Truth() {
				return yes(s)
			}
			return no(s)
		}
	}
	return then
}

func constant(v Value) expr { return func(*scope) (Value, error) { return v, nil } }

// choice is a and b, a or b: the right is computed if the truth of the left is other than stop.
func choice(left, right expr, stop bool) expr {
	return func(s *scope) (Value, error) {
		v, err := left(s)
		if err != nil || bool(v.Truth()) == stop {
			return v, err
		}
		return right(s)
	}
}

func (p *parser) either() expr {
	left := p.both()
	for p.skip("or") {
		left = choice(left, p.both(), true)
	}
	return left
}

func (p *parser) both() expr {
	left := p.not()
	for p.skip("and") {
		left = choice(left, p.not(), false)
	}
	return left
}

// deeper bounds the depth of expressions.
func (p *parser) deeper() func() {
	if p.depth++; p.depth > 10*MaxDepth {
		p.fail("an expression is nested deeper than %d levels", 10*MaxDepth)
	}
	return func() { p.depth-- }
}

func (p *parser) not() expr {
	defer p.deeper()()
	if !p.skip("not") {
		return p.compare()
	}
	inner := p.not()
	return unary(inner, func(v Value) (Value, error) { return !v.Truth(), nil })
}

func unary(inner expr, f func(Value) (Value, error)) expr {
	return func(s *scope) (Value, error) {
		v, err := inner(s)
		if err != nil {
			return nil, err
		}
		return f(v)
	}
}

func binary(left, right expr, f func(x, y Value) (Value, error)) expr {
	return func(s *scope) (Value, error) {
		x, err := left(s)
		if err != nil {
			return nil, err
		}
		y, err := right(s)
		if err != nil {
			return nil, err
		}
		return f(x, y)
	}
}

var comparisons = map[string]syntax.Token{"==": syntax.EQL, "!=": syntax.NEQ, "<": syntax.LT, "<=": syntax.LE,
	">": syntax.GT, ">=": syntax.GE}

func (p *parser) compare() expr {
	left := p.chain([]string{"+", "-"}, p.concatenation)
	var whole expr
	for {
		var f func(x, y Value) (Value, error)
		op := p.peek().text
		switch {
		case p.is("==", "!=", "<", "<=", ">", ">="):
			p.next()
			f = func(x, y Value) (Value, error) {
				ok, err := compare(comparisons[op], x, y)
				return starlark.Bool(ok), err
			}
		case p.is("in") || p.is("not") && len(p.tokens) > 1 && p.tokens[1] == token{'n', "in"}:
			if p.skip("not") {
				op = "not"
			}
			p.next()
			f = func(x, y Value) (Value, error) {
				ok, err := contains(y, x)
				return starlark.Bool(ok == (op == "in")), err
			}
		default:
			if whole == nil {
				return left
			}
			return whole
		}
		right := p.chain([]string{"+", "-"}, p.concatenation)
		if step := binary(left, right, f); whole == nil {
			whole = step
		} else {
			whole = choice(whole, step, false)
		}
		left = right
	}
}

var arithmetic = map[string]syntax.Token{"+": syntax.PLUS, "-": syntax.MINUS, "*": syntax.STAR, "/": syntax.SLASH,
	"//": syntax.SLASHSLASH, "%": syntax.PERCENT}

func (p *parser) chain(ops []string, operand func() expr) expr {
	left := operand()
	for p.is(ops...) {
		op := p.next().text
		left = binary(left, operand(), func(x, y Value) (Value, error) { return calculate(op, x, y) })
	}
	return left
}

func (p *parser) concatenation() expr {
	product := func() expr { return p.chain([]string{"*", "/", "//", "%"}, p.power) }
	left := product()
	for p.skip("~") {
		left = binary(left, product(), func(x, y Value) (Value, error) { return starlark.String(Text(x) + Text(y)), nil })
	}
	return left
}

func (p *parser) power() expr { return p.chain([]string{"**"}, func() expr { return p.signed(true) }) }

func (p *parser) signed(filters bool) expr {
	defer p.deeper()()
	var e expr
	if p.is("-", "+") {
		op := map[string]syntax.Token{"-": syntax.MINUS, "+": syntax.PLUS}[p.next().text]
		e = unary(p.signed(false), func(v Value) (Value, error) { return starlark.Unary(op, v) })
	} else {
		e = p.primary()
	}
	e = p.postfix(e)
	for filters && p.is("|", "is", "(") {
		switch {
		case p.skip("|"):
			e = p.filter(e)
		case p.skip("is"):
			e = p.test(e)
		default:
			e = p.postfix(e)
		}
	}
	return e
}

func (p *parser) primary() expr {
	switch t := p.next(); {
	case t.kind == 'n':
		switch strings.ToLower(t.text[:1]) + t.text[1:] {
		case "true":
			return constant(starlark.True)
		case "false":
			return constant(starlark.False)
		case "none":
			return constant(starlark.None)
		}
		return func(s *scope) (Value, error) { return s.get(t.text), nil }
	case t.kind == 's':
		text := t.text
		for p.peek().kind == 's' {
			text += p.next().text
		}
		return constant(starlark.String(text))
	case t.kind == 'i':
		n, err := strconv.ParseInt(strings.ReplaceAll(t.text, "_", ""), 10, 64)
		if err != nil {
			p.fail("%s: %v", t.text, err)
		}
		return constant(starlark.MakeInt64(n))
	case t.kind == 'f':
		f, err := strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64)
		if err != nil {
			p.fail("%s: %v", t.text, err)
		}
		return constant(starlark.Float(f))
	case t == token{'o', "("}:
		e := p.tuple(true, ")")
		p.expect(")")
		return e
	case t == token{'o', "["}:
		return list(p.items("]"), false)
	case t == token{'o', "{"}:
		return p.dict()
	default:
		p.fail("unexpected %.20q", t.text)
		return nil
	}
}

func (p *parser) items(end string) (items []expr) {
	for !p.skip(end) {
		if len(items) > 0 {
			if p.expect(","); p.skip(end) {
				break
			}
		}
		items = append(items, p.expression())
	}
	return items
}

func (p *parser) dict() expr {
	var keys, values []expr
	for !p.skip("}") {
		if len(keys) > 0 {
			if p.expect(","); p.skip("}") {
				break
			}
		}
		keys = append(keys, p.expression())
		p.expect(":")
		values = append(values, p.expression())
	}
	return func(s *scope) (Value, error) {
		d := starlark.NewDict(len(keys))
		for i := range keys {
			k, err := keys[i](s)
			if err != nil {
				return nil, err
			}
			v, err := values[i](s)
			if err != nil {
				return nil, err
			}
			if err := d.SetKey(k, v); err != nil {
				return nil, err
			}
		}
		return d, nil
	}
}

// postfix reads attributes, items, slices and calls.
func (p *parser) postfix(e expr) expr {
	for {
		of := e
		switch {
		case p.skip("."):
			t := p.next()
			if t.kind == 'i' {
				n, _ := strconv.Atoi(t.text)
				e = unary(of, func(v Value) (Value, error) { return item(v, starlark.MakeInt(n)) })
				continue
			}
			e = unary(of, func(v Value) (Value, error) { return attribute(v, t.text) })
		case p.skip("["):
			e = p.subscript(of)
		case p.skip("("):
			args := p.arguments()
			e = func(s *scope) (Value, error) {
				f, err := of(s)
				if err != nil {
					return nil, err
				}
				values, err := args.in(s)
				if err != nil {
					return nil, err
				}
				return s.call(f, values)
			}
		default:
			return e
		}
	}
}

func (p *parser) subscript(of expr) expr {
	var parts [3]expr
	n := 0
	for {
		if !p.is(":", "]") {
			parts[n] = p.expression()
		}
		if n == 2 || !p.skip(":") {
			break
		}
		n++
	}
	p.expect("]")
	if n == 0 {
		if parts[0] == nil {
			p.fail("a subscript is empty")
		}
		return binary(of, parts[0], item)
	}
	return func(s *scope) (Value, error) {
		v, err := of(s)
		if err != nil {
			return nil, err
		}
		var bounds [3]Value
		for i, part := range parts {
			if bounds[i] = starlark.None; part != nil {
				if bounds[i], err = part(s); err != nil {
					return nil, err
				}
			}
		}
		return slice(v, bounds)
	}
}

// arguments are those of a call, a filter or a test, not computed yet.
type arguments struct {
	positional []expr
	names      []string
	named      []expr
}

// arguments reads up to the closing parenthesis.
func (p *parser) arguments() (a arguments) {
	for first := true; !p.skip(")"); first = false {
		if !first {
			if p.expect(","); p.skip(")") {
				break
			}
		}
		if p.peek().kind == 'n' && len(p.tokens) > 1 && p.tokens[1] == (token{'o', "="}) {
			a.names = append(a.names, p.next().text)
			p.next()
			a.named = append(a.named, p.expression())
			continue
		}
		a.positional = append(a.positional, p.expression())
	}
	return a
}

// in computes them in a scope.
func (a arguments) in(s *scope) (out call, err error) {
	for _, e := range a.positional {
		v, err := e(s)
		if err != nil {
			return out, err
		}
		out.args = append(out.args, v)
	}
	for i, e := range a.named {
		v, err := e(s)
		if err != nil {
			return out, err
		}
		out.kwargs = append(out.kwargs, starlark.Tuple{starlark.String(a.names[i]), v})
	}
	return out, nil
}

func (p *parser) filter(of expr) expr {
	name := p.name()
	f, known := filters[name]
	if !known {
		p.fail("the filter %q is not known", name)
	}
	var args arguments
	if p.skip("(") {
		args = p.arguments()
	}
	return func(s *scope) (Value, error) {
		v, err := of(s)
		if err != nil {
			return nil, err
		}
		c, err := args.in(s)
		if err != nil {
			return nil, err
		}
		c.scope = s
		if v, err = f(v, c); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return v, nil
	}
}

func (p *parser) test(of expr) expr {
	negated := p.skip("not")
	name := p.name()
	f, known := tests[name]
	if !known {
		p.fail("the test %q is not known", name)
	}
	var args arguments
	if p.skip("(") {
		args = p.arguments()
	} else if t := p.peek(); t.kind != 0 && (t.kind != 'o' || p.is("(", "[", "{")) && !p.is("else", "or", "and", "is", "if",
		"not", "in", "recursive") {
		args.positional = []expr{p.postfix(p.primary())}
	}
	return func(s *scope) (Value, error) {
		v, err := of(s)
		if err != nil {
			return nil, err
		}
		c, err := args.in(s)
		if err != nil {
			return nil, err
		}
		ok, err := f(v, c)
		if err != nil {
			return nil, fmt.Errorf("is %s: %w", name, err)
		}
		return starlark.Bool(ok != negated), nil
	}
}
