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

// Compile reads a template.
func Compile(source string) (t *Template, err error) {
	defer func() {
		if r := recover(); r != nil {
			failed, ok := r.(error)
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("not a chat template: %w", failed)
		}
	}()
	segments, err := scan(source)
	if err != nil {
		return nil, fmt.Errorf("not a chat template: %w", err)
	}
	p := &parser{segments: segments}
	return &Template{p.block()}, nil
}

// run is one rendering.
type run struct {
	thread   *starlark.Thread
	deadline time.Time
	now      time.Time
	depth    int
	written  int
}

func (r *run) late() error {
	if time.Now().After(r.deadline) {
		return fmt.Errorf("the template takes longer than %v", MaxTime)
	}
	return nil
}

// scope holds the variables of a block; those around it are seen, and not changed.
type scope struct {
	*run
	variables map[string]Value
	around    *scope
	out       *strings.Builder
}

// inside is a scope within s that writes to out.
func (s *scope) inside(out *strings.Builder) *scope {
	return &scope{s.run, map[string]Value{}, s, out}
}

func (s *scope) get(name string) Value {
	for in := s; in != nil; in = in.around {
		if v, ok := in.variables[name]; ok {
			return v
		}
	}
	if f, ok := globals[name]; ok {
		return builtin(name, func(c call) (Value, error) {
			c.scope = s
			return f(c)
		})
	}
	return Undefined(name)
}

func (s *scope) write(text string) error {
	if s.written += len(text); s.written > MaxRendered {
		return fmt.Errorf("the template writes more than %d bytes", MaxRendered)
	}
	s.out.WriteString(text)
	return nil
}

// call calls a function.
func (s *scope) call(f Value, c call) (Value, error) {
	switch f := f.(type) {
	case Undefined:
		return nil, f.misuse()
	case *starlark.Builtin:
		return starlark.Call(s.thread, f, c.args, c.kwargs)
	case *loop:
		return f.recurse(c)
	}
	return nil, fmt.Errorf("a value of type %s cannot be called", f.Type())
}

// Render writes the template with variables; strftime_now sees now. The error is a *Raised where the template calls
// raise_exception.
func (t *Template) Render(variables map[string]Value, now time.Time) (text string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the template cannot be executed: %v", r)
		}
	}()
	r := &run{thread: &starlark.Thread{}, deadline: time.Now().Add(MaxTime), now: now}
	var out strings.Builder
	outer := &scope{run: r, variables: variables}
	if err := t.body(outer.inside(&out)); err != nil {
		var raised *Raised
		if errors.As(err, &raised) {
			return "", raised
		}
		return "", fmt.Errorf("the template cannot be executed: %w", err)
	}
	return out.String(), nil
}
