package jinja

import (
	"errors"
	"fmt"
	"strings"

	"go.starlark.net/starlark"
)

// loop is the variable of that name inside a for.
type loop struct {
	values  []Value
	index   int // from 0
	depth   int // from 1
	changed Value
	again   func(Value, int) (string, error) // of a recursive loop
}

func (l *loop) String() string        { return "<loop>" }
func (l *loop) Type() string          { return "loop" }
func (l *loop) Freeze()               {}
func (l *loop) Truth() starlark.Bool  { return true }
func (l *loop) Hash() (uint32, error) { return 0, errors.New("a loop is no key") }

// Attr has the signature of starlark.HasAttrs.
func (l *loop) Attr(name string) (Value, error) {
	number := func(n int) (Value, error) { return starlark.MakeInt(n), nil }
	switch name {
	case "index":
		return number(l.index + 1)
	case "index0":
		return number(l.index)
	case "revindex":
		return number(len(l.values) - l.index)
	case "revindex0":
		return number(len(l.values) - l.index - 1)
	case "length":
		return number(len(l.values))
	case "depth":
		return number(l.depth)
	case "depth0":
		return number(l.depth - 1)
	case "first":
		return starlark.Bool(l.index == 0), nil
	case "last":
		return starlark.Bool(l.index == len(l.values)-1), nil
	case "previtem", "nextitem":
		at := l.index - 1
		if name == "nextitem" {
			at = l.index + 1
		}
		if at < 0 || at >= len(l.values) {
			return Undefined("loop." + name), nil
		}
		return l.values[at], nil
	case "cycle":
		return builtin(name, func(c call) (Value, error) {
			if len(c.args) == 0 {
				return nil, errors.New("loop.cycle has nothing to cycle through")
			}
			return c.args[l.index%len(c.args)], nil
		}), nil
	case "changed":
		return builtin(name, func(c call) (Value, error) {
			now := Value(starlark.Tuple(c.args))
			same := false
			if l.changed != nil {
				same, _ = starlark.Equal(l.changed, now)
			}
			l.changed = now
			return starlark.Bool(!same), nil
		}), nil
	}
	return nil, nil
}

// AttrNames has the signature of starlark.HasAttrs.
func (l *loop) AttrNames() []string { return nil }

func (l *loop) recurse(c call) (Value, error) {
	if l.again == nil || len(c.args) != 1 {
		return nil, errors.New("loop(…) takes one value, in a recursive loop")
	}
	text, err := l.again(c.args[0], l.depth+1)
	return starlark.String(text), err
}

func (p *parser) forTag() statement {
	t := p.target()
	p.expect("in")
	of := p.tuple(false, "if", "recursive")
	only := constant(starlark.True)
	if p.skip("if") {
		only = p.expression()
	}
	recursive := p.skip("recursive")
	body := p.block("else", "endfor")
	empty := statement(func(*scope) error { return nil })
	if p.next().text == "else" {
		empty = p.body("endfor")
	}
	return func(s *scope) error {
		v, err := of(s)
		if err != nil {
			return err
		}
		f := &forLoop{t, only, body, empty, recursive}
		return f.run(s, v, 1)
	}
}

type forLoop struct {
	target      target
	only        expr
	body, empty statement
	recursive   bool
}

func (f *forLoop) run(s *scope, v Value, depth int) error {
	all, err := elements(v)
	if err != nil {
		return err
	}
	if depth > MaxDepth {
		return fmt.Errorf("a loop calls itself more than %d times", MaxDepth)
	}
	l := &loop{depth: depth}
	for _, one := range all {
		in := s.inside(s.out)
		if err := f.target.set(in, one); err != nil {
			return err
		}
		keep, err := f.only(in)
		if err != nil {
			return err
		}
		if keep.Truth() {
			l.values = append(l.values, one)
		}
	}
	if len(l.values) == 0 {
		return f.empty(s)
	}
	if f.recursive {
		l.again = func(v Value, depth int) (string, error) {
			var out strings.Builder
			err := f.run(s.inside(&out), v, depth)
			return out.String(), err
		}
	}
	for i, one := range l.values {
		if err := s.late(); err != nil {
			return err
		}
		l.index = i
		in := s.inside(s.out)
		in.variables["loop"] = l
		if err := f.target.set(in, one); err != nil {
			return err
		}
		switch err := f.body(in); {
		case errors.Is(err, errBreak):
			return nil
		case err != nil && !errors.Is(err, errContinue):
			return err
		}
	}
	return nil
}
