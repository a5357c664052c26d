// Package jinja renders chat templates as Jinja does in the environment that transformers gives them: blocks trimmed,
// loop controls, tojson, raise_exception, strftime_now and {% generation %}; methods that change their object refused.
//
//	t, err := jinja.Compile(source)
//	text, err := t.Render(map[string]jinja.Value{"messages": messages}, time.Now())
//
// Source: the Jinja 3.1 documentation ("Template Designer Documentation") and transformers' chat templating. Values and
// most of their methods are Starlark's (go.starlark.net), which are Python's: dictionaries keep their order, and None
// is not undefined. What differs is done here: strings are counted in characters, undefined values, and how a value is
// printed. A filter, test, tag or method that is not known is an error. No template can read a file, and a rendering
// ends in time: see the constants of Limits.
package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.starlark.net/starlark"
)

// Limits on what a rendering may do.
const (
	MaxRendered = 64 << 20         // bytes written, those of macros included
	MaxTime     = 20 * time.Second // of one rendering
	MaxRange    = 1 << 16          // numbers of range()
	MaxDepth    = 64               // macro calls inside each other, and levels of what tojson writes
)

// Template is a compiled template. It is safe for concurrent use.
type Template struct{ body statement }

// Raised is an error that the template itself raised.
type Raised struct{ Message string }

func (r *Raised) Error() string { return "the template refuses the messages: " + r.Message }

// failure is an error on its way out of a template: what computes values panics with it, Compile and Render recover.
type failure struct{ error }

func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// must is v, or a failure.
func must[T any](v T, err error) T {
	if err != nil {
		panic(failure{err})
	}
	return v
}

func recovered(err *error, what string) {
	switch r := recover().(type) {
	case nil:
	case failure:
		if *err = fmt.Errorf("%s: %w", what, r.error); errors.As(r.error, new(*Raised)) {
			*err = r.error
		}
	default:
		*err = fmt.Errorf("%s: %v", what, r)
	}
}

// Compile reads a template.
func Compile(source string) (t *Template, err error) {
	defer recovered(&err, "not a chat template")
	p := &parser{segments: scan(source)}
	return &Template{p.block()}, nil
}

// Render writes the template with variables; strftime_now sees now. The error is a *Raised where the template calls
// raise_exception.
func (t *Template) Render(variables map[string]Value, now time.Time) (text string, err error) {
	defer recovered(&err, "the template cannot be executed")
	r := &run{thread: &starlark.Thread{}, deadline: time.Now().Add(MaxTime), now: now}
	var out strings.Builder
	outer := &scope{run: r, variables: variables}
	t.body(outer.inside(&out))
	return out.String(), nil
}

// run is one rendering.
type run struct {
	thread   *starlark.Thread
	deadline time.Time
	now      time.Time
	depth    int
	written  int
}

func (r *run) check() {
	if time.Now().After(r.deadline) {
		fail("the template takes longer than %v", MaxTime)
	}
}

// scope holds the variables of a block; those around it are seen, and not changed.
type scope struct {
	*run
	variables map[string]Value
	around    *scope
	out       *strings.Builder
}

// inside is a scope within s that writes to out.
func (s *scope) inside(out *strings.Builder) *scope { return &scope{s.run, map[string]Value{}, s, out} }

func (s *scope) get(name string) Value {
	for in := s; in != nil; in = in.around {
		if v, ok := in.variables[name]; ok {
			return v
		}
	}
	if f, ok := globals[name]; ok {
		return f
	}
	return Undefined(name)
}

func (s *scope) write(text string) {
	if s.written += len(text); s.written > MaxRendered {
		fail("the template writes more than %d bytes", MaxRendered)
	}
	s.out.WriteString(text)
}

// call calls a function.
func (s *scope) call(f Value, c call) Value {
	switch f := f.(type) {
	case function:
		c.scope = s
		return f(c)
	case *starlark.Builtin:
		return must(starlark.Call(s.thread, f, c.args, c.kwargs))
	case Undefined:
		f.misuse()
	}
	fail("a value of type %s cannot be called", f.Type())
	return nil
}
