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
// ends in time and memory: see the constants of Limits, and budget.go.
package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.starlark.net/starlark"
)

// Limits on what a rendering may do.
const (
	MaxSource   = 1 << 20          // bytes of a template
	MaxRendered = 64 << 20         // length of a value
	MaxTime     = 20 * time.Second // of one rendering
	MaxRange    = 1 << 16          // numbers of range()
	MaxDepth    = 64               // macro calls inside each other, and levels of what tojson writes
)

// Template is a compiled template. It is safe for concurrent use.
type Template struct {
	// Variables and Attributes are the names that it reads, and some that it may: every name in an expression, and
	// every name behind a dot and text in brackets, in parentheses or before "in".
	Variables, Attributes []string
	body                  statement
}

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
	if len(source) > MaxSource {
		fail("it has %d bytes, expected at most %d", len(source), MaxSource)
	}
	p := &parser{segments: scan(source)}
	t = &Template{}
	t.note(p.segments)
	t.body = p.block()
	return t, nil
}

// note finds the names of a template.
func (t *Template) note(segments []segment) {
	for _, s := range segments {
		before := token{}
		for i, found := range s.tokens {
			after := append(s.tokens[i+1:], token{})[0]
			dotted := before == token{'o', "."}
			switch {
			case found.kind == 'n' && !dotted:
				t.Variables = append(t.Variables, found.text)
			case found.kind == 'n', found.kind == 's' && (before == token{'o', "["} || before == token{'o', "("} ||
				before == token{'o', "="} || after == token{'n', "in"} || after == token{'n', "not"}):
				t.Attributes = append(t.Attributes, found.text)
			}
			before = found
		}
	}
	for _, names := range []*[]string{&t.Variables, &t.Attributes} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
}

// Render writes the template with variables; strftime_now sees now. The error is a *Raised where the template calls
// raise_exception.
func (t *Template) Render(variables map[string]Value, now time.Time) (text string, err error) {
	defer recovered(&err, "the template cannot be executed")
	var out strings.Builder
	outer := &scope{run: begin(now), variables: variables}
	t.body(outer.inside(&out))
	return out.String(), nil
}

// run is one rendering.
type run struct {
	thread   *starlark.Thread
	deadline time.Time
	now      time.Time
	depth    int
	spent    int // of MaxWork
	steps    int
}

func begin(now time.Time) *run {
	return &run{thread: &starlark.Thread{}, deadline: time.Now().Add(MaxTime), now: now}
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
	s.spend(writeWork * len(text))
	s.out.WriteString(text)
}
