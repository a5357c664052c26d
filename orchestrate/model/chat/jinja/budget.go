package jinja

import (
	"strings"
	"time"

	"go.starlark.net/starlark"
)

// Prices of what a rendering does, in units of its budget.
const (
	MaxWork     = 256 << 20 // the budget: about a byte for each unit, written, made or gone over
	writeWork   = 4         // a byte that is written, in macros too
	stepWork    = 256       // a round of a loop, a call
	elementWork = 64        // an element of a list
	MaxBits     = 4096      // of a whole number
)

// spend takes from the budget, before the work is done.
func (r *run) spend(n int) {
	if r.spent += n; r.spent > MaxWork {
		fail("the template does more work than a rendering may (%d units): it makes or goes over too much", MaxWork)
	}
	if r.steps++; r.steps&0xff == 0 && time.Now().After(r.deadline) {
		fail("the template takes longer than %v", MaxTime)
	}
}

// weight is what a value itself costs, without what its elements hold.
func weight(v Value) int {
	switch v := v.(type) {
	case starlark.String:
		return 1 + len(v)
	case *starlark.List, starlark.Tuple, *starlark.Dict:
		return elementWork * (1 + starlark.Len(v))
	}
	return 1
}

// reading is what it costs to look at values once: who goes over the elements of one pays for each.
func reading(values ...Value) (n int) {
	for _, v := range values {
		if text, ok := v.(starlark.String); ok {
			n += len(text)
		}
	}
	return n
}

// size is the length of a value's text, about, with all that it holds; counting ends beyond most. A short template can
// make a value that holds another so often that its text would have no end.
func size(v Value, most int) (n int) {
	add := func(one Value) bool {
		n += size(one, most-n)
		return n <= most
	}
	switch v := v.(type) {
	case starlark.String:
		return 1 + len(v)
	case starlark.Tuple:
		for i := 0; i < len(v) && add(v[i]); i++ {
		}
	case *starlark.List:
		for i := 0; i < v.Len() && add(v.Index(i)); i++ {
		}
	case *starlark.Dict:
		for _, pair := range v.Items() {
			if !add(pair) {
				break
			}
		}
	}
	return n + 16
}

// weigh spends what it takes to read all of a value.
func (r *run) weigh(v Value) { r.spend(size(v, MaxWork)) }

// text is Text of a value, paid for.
func (r *run) text(v Value) string {
	r.weigh(v)
	return Text(v)
}

// grows bounds how much longer the result of a text's method is than the text: each mark stands for the insert.
func grows(name, text string, args []Value) int {
	insert := 0
	for _, one := range args {
		insert = min(insert+size(one, MaxWork), MaxWork)
	}
	mark := map[string]string{"replace": "", "format": "{", "%": "%", "splitlines": "\n"}
	switch name {
	case "replace":
		if len(args) > 1 {
			mark[name] = Text(args[0])
		}
	case "join":
		if len(args) > 0 {
			return insert + max(0, starlark.Len(args[0]))*len(text)
		}
	case "splitlines":
		insert = elementWork
	}
	if of, known := mark[name]; known {
		return strings.Count(text, of) * insert
	}
	return insert
}

// call calls a function.
func (s *scope) call(f Value, c call) Value {
	s.spend(stepWork + reading(c.args...))
	var out Value
	switch f := f.(type) {
	case function:
		c.scope = s
		out = f(c)
	case *starlark.Builtin:
		if text, ok := f.Receiver().(starlark.String); ok {
			s.spend(len(text) + grows(f.Name(), string(text), c.args))
		}
		out = must(starlark.Call(s.thread, f, c.args, c.kwargs))
	case Undefined:
		f.misuse()
	default:
		fail("a value of type %s cannot be called", f.Type())
	}
	s.spend(weight(out))
	return out
}
