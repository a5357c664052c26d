package jinja

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ncruces/go-strftime"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// globals are the functions that every template sees.
var globals map[string]func(call) (Value, error)

func init() {
	globals = map[string]func(call) (Value, error){
		"range":     numbers,
		"namespace": func(c call) (Value, error) { return fields(c, namespace{}) },
		"dict": func(c call) (Value, error) {
			d := starlark.NewDict(len(c.kwargs))
			for _, kw := range c.kwargs {
				if err := d.SetKey(kw[0], kw[1]); err != nil {
					return nil, err
				}
			}
			return d, nil
		},
		"joiner": func(c call) (Value, error) {
			begun := false
			return builtin("joiner", func(call) (Value, error) {
				if !begun {
					begun = true
					return starlark.String(""), nil
				}
				return c.or(0, "sep", starlark.String(", ")), nil
			}), nil
		},
		"raise_exception": func(c call) (Value, error) {
			return nil, &Raised{Text(c.or(0, "message", starlark.String("")))}
		},
		"strftime_now": func(c call) (Value, error) {
			return starlark.String(strftime.Format(Text(c.or(0, "format", starlark.String(""))), c.scope.now)), nil
		},
	}
}

func fields(c call, n namespace) (Value, error) {
	for _, from := range c.args {
		d, ok := from.(*starlark.Dict)
		if !ok {
			return nil, errors.New("namespace takes a dictionary, and names with values")
		}
		for _, pair := range d.Items() {
			n[Text(pair[0])] = pair[1]
		}
	}
	for _, kw := range c.kwargs {
		n[Text(kw[0])] = kw[1]
	}
	return n, nil
}

func numbers(c call) (Value, error) {
	if len(c.args) < 1 || len(c.args) > 3 {
		return nil, fmt.Errorf("range: %d arguments, expected one to three integers", len(c.args))
	}
	bounds := [3]int{0, 0, 1}
	for i := range c.args {
		n, err := c.integer(i, "a bound of range", 0)
		if err != nil {
			return nil, err
		}
		if bounds[i] = n; len(c.args) == 1 {
			bounds[0], bounds[1] = 0, n
		}
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return nil, errors.New("range: the step is 0")
	}
	var list []Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(list) == MaxRange {
			return nil, fmt.Errorf("range: more than %d numbers", MaxRange)
		}
		list = append(list, starlark.MakeInt(i))
	}
	return starlark.NewList(list), nil
}

// test says whether a value is something.
type test func(v Value, c call) (bool, error)

// is tests by the type's name.
func is(types ...string) test {
	return func(v Value, _ call) (bool, error) {
		return strings.Contains(" "+strings.Join(types, " ")+" ", " "+v.Type()+" "), nil
	}
}

func not(t test) test {
	return func(v Value, c call) (bool, error) {
		ok, err := t(v, c)
		return !ok, err
	}
}

func compared(op syntax.Token) test {
	return func(v Value, c call) (bool, error) {
		if len(c.args) != 1 {
			return false, errors.New("expected one value to compare with")
		}
		return compare(op, v, c.args[0])
	}
}

// remainder tests v modulo the argument (or n).
func remainder(n, of int) test {
	return func(v Value, c call) (bool, error) {
		rest, err := calculate("%", v, c.or(0, "num", starlark.MakeInt(n)))
		if err != nil {
			return false, err
		}
		return compare(syntax.EQL, rest, starlark.MakeInt(of))
	}
}

// cased tests that a text has letters, and all of one case.
func cased(change func(string) string) test {
	return func(v Value, _ call) (bool, error) {
		s := Text(v)
		return s == change(s) && strings.ToLower(s) != strings.ToUpper(s), nil
	}
}

var tests map[string]test

func init() {
	constant := func(is Value) test { return func(v Value, _ call) (bool, error) { return v == is, nil } }
	in := func(v Value, c call) (bool, error) { return contains(c.or(0, "seq", starlark.Tuple{}), v) }
	tests = map[string]test{
		"defined": not(is("undefined")), "undefined": is("undefined"), "none": is("NoneType"), "boolean": is("bool"),
		"integer": is("int"), "float": is("float"), "number": is("int", "float", "bool"), "string": is("string"),
		"mapping": is("dict"), "sequence": is("list", "tuple", "string", "dict", "undefined"),
		"iterable": is("list", "tuple", "string", "dict", "undefined"), "callable": is("builtin_function_or_method", "undefined", "loop"),
		"true": constant(starlark.True), "false": constant(starlark.False), "in": in,
		"odd": remainder(2, 1), "even": remainder(2, 0), "divisibleby": remainder(0, 0),
		"upper": cased(strings.ToUpper), "lower": cased(strings.ToLower),
		"sameas": func(v Value, c call) (bool, error) {
			other := c.or(0, "other", nil)
			return other != nil && v.Type() == other.Type() && repr(v, 0) == repr(other, 0), nil
		},
		"filter": func(v Value, _ call) (bool, error) { return filters[Text(v)] != nil, nil },
		"test":   func(v Value, _ call) (bool, error) { return tests[Text(v)] != nil, nil },
	}
	for op, names := range map[syntax.Token]string{syntax.EQL: "eq equalto ==", syntax.NEQ: "ne !=",
		syntax.LT: "lt lessthan <", syntax.LE: "le <=", syntax.GT: "gt greaterthan >", syntax.GE: "ge >="} {
		for _, name := range strings.Fields(names) {
			tests[name] = compared(op)
		}
	}
}
