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
type expr func(*scope) Value

// parser reads the segments of a template, and the tokens of the one it is in.
type parser struct {
	segments []segment
	at       int // of the next segment
	tokens   []token
	blocks   int // under way
	depth    int // of the expression
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

// fail names the line.
func (p *parser) fail(format string, args ...any) {
	line := 0
	if p.at > 0 {
		line = p.segments[p.at-1].line
	}
	fail("line %d: %s", line, fmt.Sprintf(format, args...))
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
	return func(s *scope) Value {
		s.spend(elementWork * (1 + len(items)))
		values := make([]Value, len(items))
		for i, item := range items {
			values[i] = item(s)
		}
		if tuple {
			return starlark.Tuple(values)
		}
		return starlark.NewList(values)
	}
}

// expression is a if b else c, or what binds closer.
func (p *parser) expression() expr {
	then := p.either()
	for p.skip("if") {
		yes, condition := then, p.either()
		no := constant(Undefined("the inline if-expression without an else"))
		if p.skip("else") {
			no = p.expression()
		}
		then = func(s *scope) Value {
			if condition(s).Truth() {
				return yes(s)
			}
			return no(s)
		}
	}
	return then
}

func constant(v Value) expr { return func(*scope) Value { return v } }

// choice is a and b, a or b: the right is computed if the truth of the left is other than stop.
func choice(left, right expr, stop bool) expr {
	return func(s *scope) Value {
		if v := left(s); bool(v.Truth()) == stop {
			return v
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
	return func(s *scope) Value { return !inner(s).Truth() }
}

var comparisons = map[string]syntax.Token{"==": syntax.EQL, "!=": syntax.NEQ, "<": syntax.LT, "<=": syntax.LE,
	">": syntax.GT, ">=": syntax.GE}

func (p *parser) compare() expr {
	sum := func() expr { return p.chain([]string{"+", "-"}, p.concatenation) }
	left := sum()
	var whole expr
	for {
		var f func(s *scope, x, y Value) bool
		op := p.peek().text
		switch {
		case p.is("==", "!=", "<", "<=", ">", ">="):
			f = func(s *scope, x, y Value) bool { return compare(s, comparisons[op], x, y) }
		case p.is("in"):
			f = func(s *scope, x, y Value) bool { return contains(s, y, x) }
		case p.is("not") && len(p.tokens) > 1 && p.tokens[1] == token{'n', "in"}:
			p.next()
			f = func(s *scope, x, y Value) bool { return !contains(s, y, x) }
		default:
			if whole == nil {
				return left
			}
			return whole
		}
		p.next()
		first, second := left, sum()
		step := func(s *scope) Value { return starlark.Bool(f(s, first(s), second(s))) }
		if left = second; whole == nil {
			whole = step
		} else {
			whole = choice(whole, step, false)
		}
	}
}

func (p *parser) chain(ops []string, operand func() expr) expr {
	left := operand()
	for p.is(ops...) {
		op, first, second := p.next().text, left, operand()
		left = func(s *scope) Value { return calculate(s, op, first(s), second(s)) }
	}
	return left
}

func (p *parser) concatenation() expr {
	product := func() expr {
		return p.chain([]string{"*", "/", "//", "%"}, func() expr { return p.signed(true) })
	}
	left := product()
	for p.skip("~") {
		first, second := left, product()
		left = func(s *scope) Value { return bounded(starlark.String(s.text(first(s)) + s.text(second(s)))) }
	}
	return left
}

func (p *parser) signed(filters bool) expr {
	defer p.deeper()()
	var e expr
	if p.is("-", "+") {
		op, inner := arithmetic[p.next().text], p.signed(false)
		e = func(s *scope) Value { return must(starlark.Unary(op, inner(s))) }
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
		return func(s *scope) Value { return s.get(t.text) }
	case t.kind == 's':
		var text strings.Builder
		for text.WriteString(t.text); p.peek().kind == 's'; {
			text.WriteString(p.next().text)
		}
		return constant(starlark.String(text.String()))
	case t.kind == 'i':
		return constant(starlark.MakeInt64(must(strconv.ParseInt(strings.ReplaceAll(t.text, "_", ""), 10, 64))))
	case t.kind == 'f':
		return constant(starlark.Float(must(strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64))))
	case t == token{'o', "("}:
		e := p.tuple(true, ")")
		p.expect(")")
		return e
	case t == token{'o', "["}:
		var items []expr
		p.separated("]", func() { items = append(items, p.expression()) })
		return list(items, false)
	case t == token{'o', "{"}:
		return p.dict()
	default:
		p.fail("unexpected %.20q", t.text)
		return nil
	}
}

// separated reads elements between commas up to end; a comma may stand before it.
func (p *parser) separated(end string, element func()) {
	for first := true; !p.skip(end); first = false {
		if !first {
			if p.expect(","); p.skip(end) {
				return
			}
		}
		element()
	}
}

func (p *parser) dict() expr {
	var keys, values []expr
	p.separated("}", func() {
		keys = append(keys, p.expression())
		p.expect(":")
		values = append(values, p.expression())
	})
	return func(s *scope) Value {
		s.spend(elementWork * (1 + len(keys)))
		d := starlark.NewDict(len(keys))
		for i := range keys {
			key := keys[i](s)
			s.weigh(key) // for its hash
			must(0, d.SetKey(key, values[i](s)))
		}
		return d
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
				n := starlark.MakeInt(must(strconv.Atoi(t.text)))
				e = func(s *scope) Value { return item(of(s), n) }
				continue
			}
			e = func(s *scope) Value { return attribute(of(s), t.text) }
		case p.skip("["):
			e = p.subscript(of)
		case p.skip("("):
			args := p.arguments()
			e = func(s *scope) Value { return s.call(of(s), args.in(s)) }
		default:
			return e
		}
	}
}

func (p *parser) subscript(of expr) expr {
	var parts [3]expr
	n := 0
	for {
		if parts[n] = constant(starlark.None); !p.is(":", "]") {
			parts[n] = p.expression()
		} else if p.is("]") && n == 0 {
			p.fail("a subscript is empty")
		}
		if n == 2 || !p.skip(":") {
			break
		}
		n++
	}
	p.expect("]")
	if n == 0 {
		return func(s *scope) Value {
			v, key := of(s), parts[0](s)
			s.weigh(key) // for its hash
			s.spend(reading(v))
			return item(v, key)
		}
	}
	return func(s *scope) Value {
		v, bounds := of(s), [3]Value{starlark.None, starlark.None, starlark.None}
		for i := range n + 1 {
			bounds[i] = parts[i](s)
		}
		s.spend(4 * weight(v))
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
	p.separated(")", func() {
		if p.peek().kind == 'n' && len(p.tokens) > 1 && p.tokens[1] == (token{'o', "="}) {
			a.names = append(a.names, p.next().text)
			p.next()
			a.named = append(a.named, p.expression())
		} else {
			a.positional = append(a.positional, p.expression())
		}
	})
	return a
}

// in computes them in a scope.
func (a arguments) in(s *scope) call {
	out := call{scope: s}
	for _, e := range a.positional {
		out.args = append(out.args, e(s))
	}
	for i, e := range a.named {
		out.kwargs = append(out.kwargs, starlark.Tuple{starlark.String(a.names[i]), e(s)})
	}
	return out
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
	return func(s *scope) Value {
		v, c := of(s), args.in(s)
		s.spend(stepWork + reading(v) + reading(c.args...))
		out := f(v, c)
		s.spend(weight(out))
		return out
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
	} else if t := p.peek(); t.kind != 0 && (t.kind != 'o' || p.is("(", "[", "{")) &&
		!p.is("else", "or", "and", "is", "if", "not", "in") {
		args.positional = []expr{p.postfix(p.primary())}
	}
	return func(s *scope) Value { return starlark.Bool(f(of(s), args.in(s)) != negated) }
}
