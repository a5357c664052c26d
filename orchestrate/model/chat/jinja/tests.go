package jinja

import (
	"slices"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// test says whether a value is something.
type test func(v Value, c call) bool

// kind tests by the type's name.
func kind(types ...string) test {
	return func(v Value, _ call) bool { return slices.Contains(types, v.Type()) }
}

func compared(op syntax.Token) test {
	return func(v Value, c call) bool {
		if len(c.args) != 1 {
			fail("expected one value to compare with")
		}
		return compare(op, v, c.args[0])
	}
}

// remainder tests v modulo the argument (or n).
func remainder(n, of int) test {
	return func(v Value, c call) bool {
		return compare(syntax.EQL, calculate("%", v, c.or(0, "num", starlark.MakeInt(n))), starlark.MakeInt(of))
	}
}

// cased tests that a text has letters, and all of one case.
func cased(change func(string) string) test {
	return func(v Value, _ call) bool {
		s := Text(v)
		return s == change(s) && strings.ToLower(s) != strings.ToUpper(s)
	}
}

var tests map[string]test

func init() { // the table refers to itself
	series := kind("list", "tuple", "string", "dict", "undefined")
	tests = map[string]test{
		"defined":   func(v Value, _ call) bool { return v.Type() != "undefined" },
		"undefined": kind("undefined"), "none": kind("NoneType"), "boolean": kind("bool"), "integer": kind("int"),
		"float": kind("float"), "number": kind("int", "float", "bool"), "string": kind("string"),
		"mapping": kind("dict"), "sequence": series, "iterable": series,
		"callable": kind("builtin_function_or_method", "undefined"),
		"true":     func(v Value, _ call) bool { return v == starlark.True },
		"false":    func(v Value, _ call) bool { return v == starlark.False },
		"in":       func(v Value, c call) bool { return contains(c.or(0, "seq", starlark.Tuple{}), v) },
		"odd":      remainder(2, 1), "even": remainder(2, 0), "divisibleby": remainder(0, 0),
		"upper": cased(strings.ToUpper), "lower": cased(strings.ToLower),
		"filter": func(v Value, _ call) bool { return filters[Text(v)] != nil },
		"test":   func(v Value, _ call) bool { return tests[Text(v)] != nil },
	}
	for op, names := range map[syntax.Token]string{syntax.EQL: "eq equalto ==", syntax.NEQ: "ne !=",
		syntax.LT: "lt lessthan <", syntax.LE: "le <=", syntax.GT: "gt greaterthan >", syntax.GE: "ge >="} {
		for _, name := range strings.Fields(names) {
			tests[name] = compared(op)
		}
	}
}
