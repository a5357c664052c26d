package jinja

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Value is a value in a template: None, Bool, Int, Float, String, List, Tuple, Dict or a function of Starlark's, or one
// of this package's.
type Value = starlark.Value

// Undefined is the value of a variable, an item or an attribute that is not there: its name.
type Undefined string

func (u Undefined) String() string        { return "" }
func (u Undefined) Type() string          { return "undefined" }
func (u Undefined) Freeze()               {}
func (u Undefined) Truth() starlark.Bool  { return false }
func (u Undefined) Hash() (uint32, error) { return 0, u.misuse() }
func (u Undefined) misuse() error         { return fmt.Errorf("'%s' is undefined", string(u)) }

// namespace is what namespace() makes.
type namespace map[string]Value

func (n namespace) String() string        { return "<Namespace>" }
func (n namespace) Type() string          { return "namespace" }
func (n namespace) Freeze()               {}
func (n namespace) Truth() starlark.Bool  { return true }
func (n namespace) Hash() (uint32, error) { return 0, errors.New("a namespace is no key") }

// call is what a function, a filter or a test gets besides its first value.
type call struct {
	args   []Value
	kwargs []starlark.Tuple
	scope  *scope
}

// take gives the argument at a position or of a name.
func (c call) take(i int, name string) (Value, bool) {
	if i >= 0 && i < len(c.args) {
		return c.args[i], true
	}
	for _, kw := range c.kwargs {
		if kw[0] == starlark.String(name) {
			return kw[1], true
		}
	}
	return nil, false
}

func (c call) or(i int, name string, otherwise Value) Value {
	if v, ok := c.take(i, name); ok {
		return v
	}
	return otherwise
}

func (c call) integer(i int, name string, otherwise int) (int, error) {
	v := c.or(i, name, starlark.MakeInt(otherwise))
	n, err := starlark.AsInt32(number(v))
	if err != nil {
		return 0, fmt.Errorf("%s is %s, expected an integer", name, repr(v, 0))
	}
	return n, nil
}

func builtin(name string, f func(call) (Value, error)) *starlark.Builtin {
	return starlark.NewBuiltin(name, func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple,
		kwargs []starlark.Tuple) (Value, error) {
		return f(call{args: args, kwargs: kwargs})
	})
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
	inner := func(values []Value) string {
		parts := make([]string, len(values))
		for i, one := range values {
			parts[i] = repr(one, depth+1)
		}
		return strings.Join(parts, ", ")
	}
	switch v := v.(type) {
	case starlark.String:
		return quote(string(v))
	case starlark.Float:
		return float(float64(v))
	case starlark.Tuple:
		if len(v) == 1 {
			return "(" + inner(v) + ",)"
		}
		return "(" + inner(v) + ")"
	case *starlark.List:
		all, _ := elements(v)
		return "[" + inner(all) + "]"
	case *starlark.Dict:
		var parts []string
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
func elements(v Value) (all []Value, err error) {
	switch v := v.(type) {
	case Undefined:
		return nil, nil
	case starlark.String:
		for _, r := range string(v) {
			all = append(all, starlark.String(string(r)))
		}
		return all, nil
	case starlark.Tuple:
		return v, nil
	case starlark.Iterable:
		iterator := v.Iterate()
		defer iterator.Done()
		for one := Value(nil); iterator.Next(&one); {
			all = append(all, one)
		}
		return all, nil
	}
	return nil, fmt.Errorf("a value of type %s cannot be gone over", v.Type())
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

func isNumber(v Value) bool {
	switch v.(type) {
	case starlark.Bool, starlark.Int, starlark.Float:
		return true
	}
	return false
}

func compare(op syntax.Token, x, y Value) (bool, error) {
	_, noX := x.(Undefined)
	_, noY := y.(Undefined)
	if (noX || noY) && (op == syntax.EQL || op == syntax.NEQ) {
		return (noX && noY) == (op == syntax.EQL), nil
	}
	if isNumber(x) && isNumber(y) {
		x, y = number(x), number(y)
	}
	return starlark.Compare(op, x, y)
}

func contains(all, one Value) (bool, error) {
	switch all := all.(type) {
	case Undefined:
		return false, nil
	case starlark.String:
		s, ok := one.(starlark.String)
		if !ok {
			return false, fmt.Errorf("'in <string>' requires string as left operand, not %s", one.Type())
		}
		return strings.Contains(string(all), string(s)), nil
	case *starlark.Dict:
		_, found, err := all.Get(one)
		return found, err
	}
	values, err := elements(all)
	for _, v := range values {
		if same, err := compare(syntax.EQL, v, one); same || err != nil {
			return same, err
		}
	}
	return false, err
}

func calculate(op string, x, y Value) (Value, error) {
	for _, v := range []Value{x, y} {
		if u, ok := v.(Undefined); ok {
			return nil, u.misuse()
		}
	}
	if isNumber(x) && isNumber(y) {
		x, y = number(x), number(y)
	}
	if n, ok := y.(starlark.Int); ok && op == "*" && starlark.Len(x) > 0 {
		if times, err := starlark.AsInt32(n); err != nil || times*starlark.Len(x) > MaxRendered {
			return nil, errors.New("a value would be repeated too often")
		}
	}
	if op == "**" {
		base, okX := starlark.AsFloat(x)
		exponent, okY := starlark.AsFloat(y)
		if !okX || !okY {
			return nil, fmt.Errorf("%s ** %s: expected numbers", x.Type(), y.Type())
		}
		power := math.Pow(base, exponent)
		_, intX := x.(starlark.Int)
		if _, intY := y.(starlark.Int); intX && intY && exponent >= 0 && power < 1<<53 {
			return starlark.MakeInt64(int64(power)), nil
		}
		return starlark.Float(power), nil
	}
	if format, ok := x.(starlark.String); ok && op == "%" {
		return percent(string(format), y)
	}
	return starlark.Binary(arithmetic[op], x, y)
}

// percent is the old formatting of Python: starlark's knows no widths.
func percent(format string, v Value) (Value, error) {
	values, many := v.(starlark.Tuple)
	if !many {
		values = starlark.Tuple{v}
	}
	args := make([]any, 0, len(values))
	plain := strings.ReplaceAll(format, "%%", "")
	for i, one := range values {
		verbs := strings.FieldsFunc(plain, func(r rune) bool { return r == '%' })
		if !strings.HasPrefix(plain, "%") && len(verbs) > 0 {
			verbs = verbs[1:]
		}
		if i >= len(verbs) {
			return nil, errors.New("not all arguments converted during string formatting")
		}
		verb := strings.TrimLeft(verbs[i], "0123456789.-+ #")
		n, isInt := number(one).(starlark.Int)
		f, isFloat := starlark.AsFloat(number(one))
		switch {
		case verb == "":
			return nil, errors.New("incomplete format")
		case verb[0] == 's':
			args = append(args, Text(one))
		case verb[0] == 'r':
			return nil, errors.New("the format r is not known")
		case strings.IndexByte("dxXo", verb[0]) >= 0 && isFloat:
			if !isInt {
				n = starlark.MakeInt64(int64(f))
			}
			args = append(args, n.BigInt())
		case strings.IndexByte("feEgG", verb[0]) >= 0 && isFloat:
			args = append(args, f)
		default:
			return nil, fmt.Errorf("%%%c of a value of type %s", verb[0], one.Type())
		}
	}
	if strings.Count(plain, "%") > len(args) {
		return nil, errors.New("not enough arguments for format string")
	}
	return starlark.String(fmt.Sprintf(format, args...)), nil
}

// item is v[key].
func item(v, key Value) (Value, error) {
	switch v := v.(type) {
	case Undefined:
		return nil, v.misuse()
	case *starlark.Dict:
		if found, ok, _ := v.Get(key); ok { // what is no key is in no dictionary
			return found, nil
		}
	case starlark.String, *starlark.List, starlark.Tuple:
		if n, err := starlark.AsInt32(number(key)); err == nil {
			all, _ := elements(v)
			if n < 0 {
				n += len(all)
			}
			if n < 0 || n >= len(all) {
				return Undefined(fmt.Sprintf("%s[%s]", v.Type(), repr(key, 0))), nil
			}
			return all[n], nil
		}
	}
	if name, ok := key.(starlark.String); ok {
		return attribute(v, string(name))
	}
	return Undefined(repr(key, 0)), nil
}

// attribute is v.name: a method, or else the item.
func attribute(v Value, name string) (Value, error) {
	switch v := v.(type) {
	case Undefined:
		return nil, v.misuse()
	case namespace:
		if found, ok := v[name]; ok {
			return found, nil
		}
		return Undefined(name), nil
	}
	if m, err := method(v, name); m != nil || err != nil {
		return m, err
	}
	if d, ok := v.(*starlark.Dict); ok {
		if found, ok, _ := d.Get(starlark.String(name)); ok {
			return found, nil
		}
	}
	return Undefined(v.Type() + " object has no attribute '" + name + "': it"), nil
}

// slice is v[start:stop:step].
func slice(v Value, bounds [3]Value) (Value, error) {
	all, err := elements(v)
	if err != nil {
		return nil, err
	}
	var n [3]int
	for i, b := range bounds {
		if b == starlark.None {
			continue
		}
		if n[i], err = starlark.AsInt32(number(b)); err != nil {
			return nil, fmt.Errorf("a slice's bound is %s, expected an integer", repr(b, 0))
		}
	}
	step := 1
	if bounds[2] != starlark.None {
		step = n[2]
	}
	if step == 0 {
		return nil, errors.New("a slice's step is 0")
	}
	low, high := 0, len(all)
	if step < 0 {
		low, high = -1, len(all)-1
	}
	at := func(i, otherwise int) int {
		if bounds[i] == starlark.None {
			return otherwise
		}
		if n[i] < 0 {
			n[i] += len(all)
		}
		return min(max(n[i], low), high)
	}
	start, stop := at(0, low), at(1, high)
	if step < 0 {
		start, stop = at(0, high), at(1, low)
	}
	var out []Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		out = append(out, all[i])
	}
	switch v.(type) {
	case starlark.String:
		var b strings.Builder
		for _, one := range out {
			b.WriteString(string(one.(starlark.String)))
		}
		return starlark.String(b.String()), nil
	case starlark.Tuple:
		return starlark.Tuple(out), nil
	}
	return starlark.NewList(out), nil
}

func length(v Value) (int, error) {
	switch v := v.(type) {
	case Undefined:
		return 0, nil
	case starlark.String:
		return utf8.RuneCountInString(string(v)), nil
	}
	if n := starlark.Len(v); n >= 0 {
		return n, nil
	}
	return 0, fmt.Errorf("a value of type %s has no length", v.Type())
}
