package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Value is a value in a template: None, Bool, Int, Float, String, List, Tuple, Dict or a method of Starlark's, or one
// of this package's.
type Value = starlark.Value

// Undefined is the value of a variable, an item or an attribute that is not there: its name.
type Undefined string

func (u Undefined) String() string        { return "" }
func (u Undefined) Type() string          { return "undefined" }
func (u Undefined) Freeze()               {}
func (u Undefined) Truth() starlark.Bool  { return false }
func (u Undefined) Hash() (uint32, error) { return 0, fmt.Errorf("'%s' is undefined", string(u)) }
func (u Undefined) misuse()               { fail("'%s' is undefined", string(u)) }

// namespace is what namespace() makes, and the variable loop.
type namespace map[string]Value

func (n namespace) String() string        { return "<Namespace>" }
func (n namespace) Type() string          { return "namespace" }
func (n namespace) Freeze()               {}
func (n namespace) Truth() starlark.Bool  { return true }
func (n namespace) Hash() (uint32, error) { return 0, fmt.Errorf("a namespace is no key") }

// function is what a template can call, besides the methods of Starlark's values.
type function func(call) Value

func (f function) String() string        { return "<function>" }
func (f function) Type() string          { return "builtin_function_or_method" }
func (f function) Freeze()               {}
func (f function) Truth() starlark.Bool  { return true }
func (f function) Hash() (uint32, error) { return 0, fmt.Errorf("a function is no key") }

// call is what a function, a filter or a test gets besides its first value.
type call struct {
	args   []Value
	kwargs []starlark.Tuple
	scope  *scope
}

// or gives the argument at a position or of a name; a negative position has none.
func (c call) or(i int, name string, otherwise Value) Value {
	if i >= 0 && i < len(c.args) {
		return c.args[i]
	}
	for _, kw := range c.kwargs {
		if kw[0] == starlark.String(name) {
			return kw[1]
		}
	}
	return otherwise
}

func (c call) flag(i int, name string) bool { return bool(c.or(i, name, starlark.False).Truth()) }

func (c call) integer(i int, name string, otherwise int) int {
	return integer(c.or(i, name, starlark.MakeInt(otherwise)), name)
}

func integer(v Value, what string) int {
	n, err := starlark.AsInt32(number(v))
	if err != nil {
		fail("%s is %s, expected an integer", what, repr(v, 0))
	}
	return n
}

// Text is a value as a template prints it.
func Text(v Value) string {
	if s, ok := v.(starlark.String); ok {
		return string(s)
	}
	return repr(v, 0)
}

// repr is Python's.
func repr(v Value, depth int) string {
	if depth > MaxDepth {
		return "…"
	}
	var parts []string
	list := func(open, close string, all []Value) string {
		for _, one := range all {
			parts = append(parts, repr(one, depth+1))
		}
		return open + strings.Join(parts, ", ") + close
	}
	switch v := v.(type) {
	case starlark.String:
		return quote(string(v))
	case starlark.Float:
		return float(float64(v))
	case starlark.Tuple:
		if len(v) == 1 {
			return list("(", ",)", v)
		}
		return list("(", ")", v)
	case *starlark.List:
		return list("[", "]", elements(v))
	case *starlark.Dict:
		for _, pair := range v.Items() {
			parts = append(parts, repr(pair[0], depth+1)+": "+repr(pair[1], depth+1))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return v.String()
}

func quote(s string) string {
	mark := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = `"`
	}
	var b strings.Builder
	for _, r := range s {
		switch short := strings.IndexRune("\n\r\t", r); {
		case short >= 0:
			b.WriteString([]string{`\n`, `\r`, `\t`}[short])
		case r == '\\' || string(r) == mark:
			b.WriteString(`\` + string(r))
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return mark + b.String() + mark
}

// float is a number as Python writes it.
func float(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'g', -1, 64)), "+")
	case f != 0 && (math.Abs(f) < 1e-4 || math.Abs(f) >= 1e16):
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// elements are what a loop goes over: keys of a dictionary, characters of a string.
func elements(v Value) (all []Value) {
	switch v := v.(type) {
	case Undefined:
	case starlark.String:
		for _, r := range string(v) {
			all = append(all, starlark.String(string(r)))
		}
	case starlark.Tuple:
		return v
	case starlark.Iterable:
		iterator := v.Iterate()
		defer iterator.Done()
		for one := Value(nil); iterator.Next(&one); {
			all = append(all, one)
		}
	default:
		fail("a value of type %s cannot be gone over", v.Type())
	}
	return all
}

// number makes 0 and 1 of booleans.
func number(v Value) Value {
	switch v {
	case starlark.True:
		return starlark.MakeInt(1)
	case starlark.False:
		return starlark.MakeInt(0)
	}
	return v
}

// numbers makes 0 and 1 of a boolean that meets a number.
func numbers(x, y Value) (Value, Value) {
	_, floatX := starlark.AsFloat(number(x))
	_, floatY := starlark.AsFloat(number(y))
	if floatX && floatY {
		return number(x), number(y)
	}
	return x, y
}

func compare(s *scope, op syntax.Token, x, y Value) bool {
	s.spend(min(size(x, MaxWork), size(y, MaxWork)))
	_, noX := x.(Undefined)
	_, noY := y.(Undefined)
	if (noX || noY) && (op == syntax.EQL || op == syntax.NEQ) {
		return (noX && noY) == (op == syntax.EQL)
	}
	x, y = numbers(x, y)
	return must(starlark.Compare(op, x, y))
}

func contains(s *scope, all, one Value) bool {
	s.spend(reading(all))
	switch all := all.(type) {
	case starlark.String:
		part, ok := one.(starlark.String)
		if !ok {
			fail("'in <string>' requires string as left operand, not %s", one.Type())
		}
		return strings.Contains(string(all), string(part))
	case *starlark.Dict:
		s.weigh(one) // for its hash
		_, found, err := all.Get(one)
		return must(found, err)
	}
	for _, v := range elements(all) {
		if compare(s, syntax.EQL, v, one) {
			return true
		}
	}
	return false
}

var arithmetic = map[string]syntax.Token{"+": syntax.PLUS, "-": syntax.MINUS, "*": syntax.STAR, "/": syntax.SLASH,
	"//": syntax.SLASHSLASH, "%": syntax.PERCENT}

func calculate(s *scope, op string, x, y Value) Value {
	for _, v := range []Value{x, y} {
		if u, ok := v.(Undefined); ok {
			u.misuse()
		}
	}
	x, y = numbers(x, y)
	if _, ok := x.(starlark.Int); ok && op == "*" && starlark.Len(y) > 0 {
		x, y = y, x
	}
	if n, ok := y.(starlark.Int); ok && op == "*" && starlark.Len(x) > 0 {
		if times, err := starlark.AsInt32(n); err != nil || times*starlark.Len(x) > MaxRendered {
			fail("a value would be repeated too often")
		}
		s.spend(max(0, integer(n, "times")) * weight(x))
	}
	if text, ok := x.(starlark.String); ok && op == "%" {
		s.spend(len(text) + grows(op, string(text), []Value{y}))
	}
	out := bounded(must(starlark.Binary(arithmetic[op], x, y)))
	s.spend(weight(out))
	return out
}

// bounded refuses a value that has grown too long.
func bounded(v Value) Value {
	if starlark.Len(v) > MaxRendered {
		fail("a value is longer than %d", MaxRendered)
	}
	if n, ok := v.(starlark.Int); ok && n.BigInt().BitLen() > MaxBits {
		fail("a number has more than %d bits", MaxBits)
	}
	return v
}

// item is v[key].
func item(v, key Value) Value {
	switch v := v.(type) {
	case Undefined:
		v.misuse()
	case *starlark.Dict:
		if found, ok, _ := v.Get(key); ok { // what is no key is in no dictionary
			return found
		}
	case starlark.String, *starlark.List, starlark.Tuple:
		if n, err := starlark.AsInt32(number(key)); err == nil {
			count := length(v)
			if n < 0 {
				n += count
			}
			if n < 0 || n >= count {
				return Undefined(fmt.Sprintf("%s[%s]", v.Type(), repr(key, 0)))
			}
			return at(v, n)
		}
	}
	if name, ok := key.(starlark.String); ok {
		return attribute(v, string(name))
	}
	return Undefined(repr(key, 0))
}

// at is the n-th element, of a string its character.
func at(v Value, n int) Value {
	text, isText := v.(starlark.String)
	if !isText {
		return v.(starlark.Indexable).Index(n)
	}
	for _, r := range string(text) {
		if n--; n < 0 {
			return starlark.String(string(r))
		}
	}
	return nil // n is within the text
}

// attribute is v.name: a method, or else the item.
func attribute(v Value, name string) Value {
	switch v := v.(type) {
	case Undefined:
		v.misuse()
	case namespace:
		if found, ok := v[name]; ok {
			return found
		}
		return Undefined(name)
	}
	if m := method(v, name); m != nil {
		return m
	}
	if d, ok := v.(*starlark.Dict); ok {
		if found, ok, _ := d.Get(starlark.String(name)); ok {
			return found
		}
	}
	return Undefined(name + " of a " + v.Type())
}

// slice is v[start:stop:step]; a bound may be None.
func slice(v Value, bounds [3]Value) Value {
	switch v := v.(type) {
	case starlark.String:
		return starlark.String(string(pick([]rune(string(v)), bounds)))
	case starlark.Tuple:
		return starlark.Tuple(pick(v, bounds))
	}
	return starlark.NewList(pick(elements(v), bounds))
}

func pick[T any](all []T, bounds [3]Value) (out []T) {
	step := 1
	if bounds[2] != starlark.None {
		step = integer(bounds[2], "a slice's step")
	}
	if step == 0 {
		fail("a slice's step is 0")
	}
	low, high := 0, len(all)
	if step < 0 {
		low, high = -1, len(all)-1
	}
	at := func(bound Value, otherwise int) int {
		if bound == starlark.None {
			return otherwise
		}
		n := integer(bound, "a slice's bound")
		if n < 0 {
			n += len(all)
		}
		return min(max(n, low), high)
	}
	start, stop := at(bounds[0], low), at(bounds[1], high)
	if step < 0 {
		start, stop = at(bounds[0], high), at(bounds[1], low)
	}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		out = append(out, all[i])
	}
	return out
}

func length(v Value) int {
	switch v := v.(type) {
	case Undefined:
		return 0
	case starlark.String:
		return utf8.RuneCountInString(string(v))
	}
	n := starlark.Len(v)
	if n < 0 {
		fail("a value of type %s has no length", v.Type())
	}
	return n
}
