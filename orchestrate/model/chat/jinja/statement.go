package jinja

import (
	"maps"
	"slices"
	"strings"

	"github.com/ncruces/go-strftime"
	"go.starlark.net/starlark"
)

// statement writes something, or changes variables of its scope.
type statement func(*scope) flow

// flow says how it goes on after a statement.
type flow int

const (
	on flow = iota
	breaks
	continues
)

// block reads segments up to a tag of these names, which it leaves in p.tokens.
func (p *parser) block(ends ...string) statement {
	if len(p.tokens) > 0 {
		p.fail("unexpected %.20q", p.peek().text)
	}
	if p.blocks++; p.blocks > MaxDepth {
		p.fail("blocks are nested deeper than %d levels", MaxDepth)
	}
	defer func() { p.blocks-- }()
	var all []statement
	for p.at < len(p.segments) {
		s := p.segments[p.at]
		p.at++
		p.tokens = s.tokens
		switch {
		case s.kind == 't':
			all = append(all, func(in *scope) flow { in.write(s.text); return on })
		case s.kind == '{':
			e := p.tuple(true)
			all = append(all, func(in *scope) flow { in.write(in.text(e(in))); return on })
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
	return func(s *scope) flow {
		for _, one := range all {
			s.spend(1)
			if f := one(s); f != on {
				return f
			}
		}
		return on
	}
}

// body reads a block and the tag that ends it.
func (p *parser) body(end string) statement {
	b := p.block(end)
	p.next()
	return b
}

// rendered is a body as a text.
func rendered(body statement, in *scope) Value {
	var out strings.Builder
	body(in.inside(&out))
	return starlark.String(out.String())
}

func (p *parser) tag(name string) statement {
	switch name {
	case "if":
		return p.ifTag()
	case "for":
		return p.forTag()
	case "set":
		t := p.target()
		if p.skip("=") {
			e := p.tuple(true)
			return func(s *scope) flow { t.set(s, e(s)); return on }
		}
		body := p.body("endset")
		return func(s *scope) flow { t.set(s, rendered(body, s)); return on }
	case "macro":
		name := p.name()
		p.expect("(")
		ps := p.parameters()
		body := p.body("endmacro")
		return func(s *scope) flow { s.variables[name] = ps.function(name, body, s); return on }
	case "call":
		return p.callTag()
	case "filter":
		const held = "\x00held" // no template can spell it
		filtered := p.filter(func(s *scope) Value { return s.get(held) })
		body := p.body("endfilter")
		return func(s *scope) flow {
			in := s.inside(s.out)
			in.variables[held] = rendered(body, s)
			s.write(in.text(filtered(in)))
			return on
		}
	case "generation": // marks the assistant's tokens for transformers
		return p.body("endgeneration")
	case "break":
		return func(*scope) flow { return breaks }
	case "continue":
		return func(*scope) flow { return continues }
	}
	p.fail("the tag %q is not known", name)
	return nil
}

func (p *parser) ifTag() statement {
	condition := p.expression()
	then, otherwise := p.block("elif", "else", "endif"), sequence(nil)
	switch p.next().text {
	case "elif":
		otherwise = p.ifTag()
	case "else":
		otherwise = p.body("endif")
	}
	return func(s *scope) flow {
		if condition(s).Truth() {
			return then(s)
		}
		return otherwise(s)
	}
}

// target is what a loop or a set assigns to: a name, a tuple of targets, or an attribute of a namespace.
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

func (t target) set(s *scope, v Value) {
	switch {
	case t.attribute != "":
		space, ok := s.get(t.name).(namespace)
		if !ok {
			fail("%s.%s cannot be set: %s is no namespace", t.name, t.attribute, t.name)
		}
		space[t.attribute] = v
	case t.parts != nil:
		values := elements(v)
		if len(values) != len(t.parts) {
			fail("%d values for %d names", len(values), len(t.parts))
		}
		for i, part := range t.parts {
			part.set(s, values[i])
		}
	default:
		s.variables[t.name] = v
	}
}

func (p *parser) forTag() statement {
	t := p.target()
	p.expect("in")
	of, only := p.tuple(false, "if"), constant(starlark.True)
	if p.skip("if") {
		only = p.expression()
	}
	body, empty := p.block("else", "endfor"), sequence(nil)
	if p.next().text == "else" {
		empty = p.body("endfor")
	}
	return func(s *scope) flow {
		var all []Value
		source := of(s)
		s.spend(elementWork * reading(source)) // a text's characters become values
		for _, v := range elements(source) {
			s.spend(stepWork)
			in := s.inside(s.out)
			if t.set(in, v); only(in).Truth() {
				all = append(all, v)
			}
		}
		if len(all) == 0 {
			return empty(s)
		}
		for i, v := range all {
			s.spend(stepWork)
			in := s.inside(s.out)
			in.variables["loop"] = loop(all, i)
			t.set(in, v)
			if body(in) == breaks {
				break
			}
		}
		return on
	}
}

// loop is the variable of that name inside a for.
func loop(all []Value, i int) Value {
	n := func(n int) Value { return starlark.MakeInt(n) }
	l := namespace{"index": n(i + 1), "index0": n(i), "length": n(len(all)), "revindex": n(len(all) - i),
		"revindex0": n(len(all) - i - 1), "first": starlark.Bool(i == 0), "last": starlark.Bool(i == len(all)-1),
		"cycle": function(func(c call) Value { return item(starlark.Tuple(c.args), n(i%max(1, len(c.args)))) })}
	if i > 0 {
		l["previtem"] = all[i-1]
	}
	if i+1 < len(all) {
		l["nextitem"] = all[i+1]
	}
	return l
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

// function renders body in a scope with the arguments.
func (ps parameters) function(name string, body statement, defined *scope) function {
	return func(c call) Value {
		if defined.depth++; defined.depth > MaxDepth {
			fail("macro %q calls itself more than %d times", name, MaxDepth)
		}
		defer func() { defined.depth-- }()
		in := defined.inside(nil)
		for i, p := range ps.names {
			v := c.or(i, p, nil)
			if e, ok := ps.defaults[p]; v == nil && ok {
				v = e(in)
			}
			if v == nil {
				v = Undefined(p)
			}
			in.variables[p] = v
		}
		for _, kw := range c.kwargs {
			key := Text(kw[0])
			if key != "caller" && !slices.Contains(ps.names, key) {
				fail("macro %q takes no argument %q, expected one of %v", name, key, ps.names)
			}
			in.variables[key] = kw[1]
		}
		if len(c.args) > len(ps.names) {
			fail("macro %q takes %d arguments, got %d", name, len(ps.names), len(c.args))
		}
		return rendered(body, in)
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
	return func(s *scope) flow {
		c := args.in(s)
		c.kwargs = append(c.kwargs, starlark.Tuple{starlark.String("caller"), ps.function("caller", body, s)})
		s.write(s.text(s.call(s.get(of), c)))
		return on
	}
}

// globals are the functions that every template sees.
var globals = map[string]function{
	"range": func(c call) Value {
		bounds := [3]int{0, 0, 1}
		for i := range min(3, len(c.args)) {
			if bounds[i] = c.integer(i, "a bound of range", 0); len(c.args) == 1 {
				bounds[0], bounds[1] = 0, bounds[0]
			}
		}
		if len(c.args) < 1 || len(c.args) > 3 || bounds[2] == 0 {
			fail("range: the step is 0, or there are not one to three integers")
		}
		var list []Value
		for i := bounds[0]; bounds[2] > 0 && i < bounds[1] || bounds[2] < 0 && i > bounds[1]; i += bounds[2] {
			if len(list) == MaxRange {
				fail("range: more than %d numbers", MaxRange)
			}
			list = append(list, starlark.MakeInt(i))
		}
		return starlark.NewList(list)
	},
	"namespace": func(c call) Value {
		n := namespace{}
		if d, ok := c.or(0, "", starlark.None).(*starlark.Dict); ok {
			maps.Insert(n, fields(d.Items()))
		}
		maps.Insert(n, fields(c.kwargs))
		return n
	},
	"dict": func(c call) Value {
		d := starlark.NewDict(len(c.kwargs))
		for _, kw := range c.kwargs {
			must(0, d.SetKey(kw[0], kw[1]))
		}
		return d
	},
	"raise_exception": func(c call) Value { panic(failure{&Raised{Text(c.or(0, "message", starlark.String("")))}}) },
	"strftime_now": func(c call) Value {
		return starlark.String(strftime.Format(Text(c.or(0, "format", starlark.String(""))), c.scope.now))
	},
}

func fields(pairs []starlark.Tuple) func(func(string, Value) bool) {
	return func(yield func(string, Value) bool) {
		for _, pair := range pairs {
			if !yield(Text(pair[0]), pair[1]) {
				return
			}
		}
	}
}
