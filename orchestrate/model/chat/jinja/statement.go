package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"
)

// statement writes something, or changes variables of its scope.
type statement func(*scope) error

var errBreak, errContinue = errors.New("break outside of a loop"), errors.New("continue outside of a loop")

// block reads segments up to a tag of these names, which it leaves in p.tokens.
func (p *parser) block(ends ...string) statement {
	if len(p.tokens) > 0 {
		p.fail("unexpected %.20q", p.peek().text)
	}
	if len(p.ends) > MaxDepth {
		p.fail("blocks are nested deeper than %d levels", MaxDepth)
	}
	p.ends = append(p.ends, strings.Join(ends, " or "))
	defer func() { p.ends = p.ends[:len(p.ends)-1] }()
	var all []statement
	for p.at < len(p.segments) {
		s := p.segments[p.at]
		p.at++
		p.tokens = s.tokens
		switch {
		case s.kind == 't':
			all = append(all, func(in *scope) error { return in.write(s.text) })
			continue
		case s.kind == '{':
			e := p.tuple(true)
			all = append(all, func(in *scope) error {
				v, err := e(in)
				if err != nil {
					return fmt.Errorf("line %d: %w", s.line, err)
				}
				return in.write(Text(v))
			})
		case p.is(ends...):
			return sequence(all)
		default:
			all = append(all, p.tag(p.name()))
		}
		if len(p.tokens) > 0 {
			p.fail("unexpected %.20q", p.peek().text)
		}
	}
	if len(ends) > 0 {
		p.fail("the template ends before %s", strings.Join(ends, " or "))
	}
	return sequence(all)
}

func sequence(all []statement) statement {
	return func(s *scope) error {
		for _, one := range all {
			if err := one(s); err != nil {
				return err
			}
		}
		return nil
	}
}

// body reads a block and the tag that ends it.
func (p *parser) body(end string) statement {
	b := p.block(end)
	p.next()
	return b
}

// rendered is a body as a text.
func rendered(body statement, in *scope) (string, error) {
	var out strings.Builder
	err := body(in.inside(&out))
	return out.String(), err
}

func (p *parser) tag(name string) statement {
	switch name {
	case "if":
		return p.ifTag()
	case "for":
		return p.forTag()
	case "set":
		return p.setTag()
	case "macro":
		return p.macroTag()
	case "call":
		return p.callTag()
	case "generation": // marks the assistant's tokens for transformers
		return p.body("endgeneration")
	case "break":
		return func(*scope) error { return errBreak }
	case "continue":
		return func(*scope) error { return errContinue }
	case "filter":
		return p.filterTag()
	case "with":
		return p.withTag()
	}
	p.fail("the tag %q is not known", name)
	return nil
}

func (p *parser) ifTag() statement {
	condition := p.expression()
	then := p.block("elif", "else", "endif")
	otherwise := statement(func(*scope) error { return nil })
	switch p.next().text {
	case "elif":
		otherwise = p.ifTag()
	case "else":
		otherwise = p.body("endif")
	}
	return func(s *scope) error {
		c, err := condition(s)
		if err != nil {
			return err
		}
		if c.Truth() {
			return then(s)
		}
		return otherwise(s)
	}
}

// target is what a loop or a set assigns to: names, a tuple of targets, or an attribute of a namespace.
type target struct {
	name, attribute string
	parts           []target
}

func (p *parser) target() target {
	one := func() target {
		if p.skip("(") {
			t := p.target()
			p.expect(")")
			return t
		}
		t := target{name: p.name()}
		if p.skip(".") {
			t.attribute = p.name()
		}
		return t
	}
	first := one()
	if !p.is(",") {
		return first
	}
	t := target{parts: []target{first}}
	for p.skip(",") {
		t.parts = append(t.parts, one())
	}
	return t
}

func (t target) set(s *scope, v Value) error {
	switch {
	case t.attribute != "":
		space, ok := s.get(t.name).(namespace)
		if !ok {
			return fmt.Errorf("%s.%s cannot be set: %s is no namespace", t.name, t.attribute, t.name)
		}
		space[t.attribute] = v
	case t.parts != nil:
		values, err := elements(v)
		if err != nil {
			return err
		}
		if len(values) != len(t.parts) {
			return fmt.Errorf("%d values for %d names", len(values), len(t.parts))
		}
		for i, part := range t.parts {
			if err := part.set(s, values[i]); err != nil {
				return err
			}
		}
	default:
		s.variables[t.name] = v
	}
	return nil
}

// assign sets t in the scope to, by an expression of the scope from.
func assign(t target, e expr, from, to *scope) error {
	v, err := e(from)
	if err != nil {
		return err
	}
	return t.set(to, v)
}

func (p *parser) withTag() statement {
	var targets []target
	var values []expr
	for len(p.tokens) > 0 {
		if len(targets) > 0 {
			p.expect(",")
		}
		targets = append(targets, target{name: p.name()})
		p.expect("=")
		values = append(values, p.expression())
	}
	body := p.body("endwith")
	return func(s *scope) error {
		in := s.inside(s.out)
		for i, t := range targets {
			if err := assign(t, values[i], s, in); err != nil {
				return err
			}
		}
		return body(in)
	}
}

func (p *parser) setTag() statement {
	t := p.target()
	if p.skip("=") {
		e := p.tuple(true)
		return func(s *scope) error { return assign(t, e, s, s) }
	}
	filtered := p.held()
	body := p.body("endset")
	return func(s *scope) error {
		text, err := rendered(body, s)
		if err != nil {
			return err
		}
		v, err := filtered(s, text)
		if err != nil {
			return err
		}
		return t.set(s, v)
	}
}

// held reads the filters that a block's text goes through.
func (p *parser) held() func(*scope, string) (Value, error) {
	const name = "\x00held" // no template can spell it
	e := func(s *scope) (Value, error) { return s.get(name), nil }
	for p.skip("|") {
		e = p.filter(e)
	}
	return func(s *scope, text string) (Value, error) {
		in := s.inside(s.out)
		in.variables[name] = starlark.String(text)
		return e(in)
	}
}

func (p *parser) filterTag() statement {
	p.tokens = append([]token{{'o', "|"}}, p.tokens...)
	filtered := p.held()
	body := p.body("endfilter")
	return func(s *scope) error {
		text, err := rendered(body, s)
		if err != nil {
			return err
		}
		v, err := filtered(s, text)
		if err != nil {
			return err
		}
		return s.write(Text(v))
	}
}

// parameters are the names of a macro or of a caller, with their defaults.
type parameters struct {
	names    []string
	defaults map[string]expr
}

func (p *parser) parameters() (out parameters) {
	out.defaults = map[string]expr{}
	for !p.skip(")") {
		if len(out.names) > 0 {
			p.expect(",")
		}
		name := p.name()
		if out.names = append(out.names, name); p.skip("=") {
			out.defaults[name] = p.expression()
		}
	}
	return out
}

// function makes a function that renders body in scope with its arguments.
func (ps parameters) function(name string, body statement, defined *scope) Value {
	return builtin(name, func(c call) (Value, error) {
		if err := defined.late(); err != nil {
			return nil, err
		}
		if defined.depth++; defined.depth > MaxDepth {
			return nil, fmt.Errorf("macro %q calls itself more than %d times", name, MaxDepth)
		}
		defer func() { defined.depth-- }()
		var out strings.Builder
		in := defined.inside(&out)
		for i, p := range ps.names {
			v, given := c.take(i, p)
			if e, ok := ps.defaults[p]; !given && ok {
				var err error
				if v, err = e(in); err != nil {
					return nil, err
				}
			}
			if v == nil {
				v = Undefined(p)
			}
			in.variables[p] = v
		}
		in.variables["varargs"] = starlark.Tuple(c.args[min(len(ps.names), len(c.args)):])
		for _, kw := range c.kwargs {
			key := string(kw[0].(starlark.String))
			if key != "caller" && !slices.Contains(ps.names, key) {
				return nil, fmt.Errorf("macro %q takes no argument %q", name, key)
			}
			in.variables[key] = kw[1]
		}
		err := body(in)
		return starlark.String(out.String()), err
	})
}

func (p *parser) macroTag() statement {
	name := p.name()
	p.expect("(")
	ps := p.parameters()
	body := p.body("endmacro")
	return func(s *scope) error {
		s.variables[name] = ps.function(name, body, s)
		return nil
	}
}

func (p *parser) callTag() statement {
	var ps parameters
	if p.skip("(") {
		ps = p.parameters()
	}
	of := p.name()
	p.expect("(")
	args := p.arguments()
	body := p.body("endcall")
	return func(s *scope) error {
		c, err := args.in(s)
		if err != nil {
			return err
		}
		c.kwargs = append(c.kwargs, starlark.Tuple{starlark.String("caller"), ps.function("caller", body, s)})
		v, err := s.call(s.get(of), c)
		if err != nil {
			return err
		}
		return s.write(Text(v))
	}
}
