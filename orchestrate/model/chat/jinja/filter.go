package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// filter computes a value from the one before the |.
type filter func(v Value, c call) Value

var filters map[string]filter

func init() { // the table refers to itself
	escapes := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")
	escape := func(v Value, c call) Value { return starlark.String(escapes.Replace(c.scope.text(v))) }
	count := func(v Value, _ call) Value { return starlark.MakeInt(length(v)) }
	filters = map[string]filter{
		"tojson": toJSON, "from_json": func(v Value, _ call) Value { return must(FromJSON([]byte(Text(v)))) },
		"trim": ofText("strip"), "lower": ofText("lower"), "upper": ofText("upper"),
		"title": title, "capitalize": ofText("capitalize"), "replace": ofText("replace"),
		"safe": func(v Value, _ call) Value { return v }, "escape": escape, "e": escape,
		"string": func(v Value, c call) Value { return starlark.String(c.scope.text(v)) },
		"format": func(v Value, c call) Value {
			return calculate(c.scope, "%", starlark.String(c.scope.text(v)), starlark.Tuple(c.args))
		},
		"default": orDefault, "d": orDefault, "length": count, "count": count, "indent": indent, "join": join,
		"first": func(v Value, _ call) Value { return item(starlark.Tuple(elements(v)), starlark.MakeInt(0)) },
		"last":  func(v Value, _ call) Value { return item(starlark.Tuple(elements(v)), starlark.MakeInt(-1)) },
		"list":  func(v Value, _ call) Value { return starlark.NewList(slices.Clone(elements(v))) },
		"reverse": func(v Value, _ call) Value {
			return slice(v, [3]Value{starlark.None, starlark.None, starlark.MakeInt(-1)})
		},
		"sum": func(v Value, c call) Value {
			total := c.or(1, "start", starlark.MakeInt(0))
			for _, one := range elements(v) {
				c.scope.spend(stepWork)
				total = calculate(c.scope, "+", total, path(one, c.or(0, "attribute", starlark.None)))
			}
			return total
		},
		"sort": sorted, "unique": unique, "dictsort": dictSort, "items": items, "int": toInt, "float": toFloat,
		"abs": func(v Value, c call) Value {
			if compare(c.scope, syntax.LT, v, starlark.MakeInt(0)) {
				return must(starlark.Unary(syntax.MINUS, v))
			}
			return v
		},
		"map": mapped, "select": choose(false, true), "reject": choose(false, false),
		"selectattr": choose(true, true), "rejectattr": choose(true, false),
	}
}

// ofText is the method of a string.
func ofText(name string) filter {
	return func(v Value, c call) Value { return c.scope.call(method(starlark.String(c.scope.text(v)), name), c) }
}

// title is Jinja's, which takes fewer characters for the start of a word than str.title does.
func title(v Value, c call) Value {
	starts := true
	return starlark.String(strings.Map(func(r rune) rune {
		is := starts
		starts = IsSpace(r) || strings.ContainsRune("-({[<", r)
		if is {
			return unicode.ToUpper(r)
		}
		return unicode.ToLower(r)
	}, c.scope.text(v)))
}

func indent(v Value, c call) Value {
	pad, isText := c.or(0, "width", starlark.MakeInt(4)).(starlark.String)
	if !isText {
		pad = starlark.String(strings.Repeat(" ", max(0, min(c.integer(0, "width", 4), MaxRange))))
	}
	lines := strings.Split(c.scope.text(v), "\n")
	c.scope.spend(len(lines) * (elementWork + len(pad)))
	for i, line := range lines {
		if (i > 0 || c.flag(1, "first")) && (line != "" || c.flag(2, "blank")) {
			lines[i] = string(pad) + line
		}
	}
	return starlark.String(strings.Join(lines, "\n"))
}

func orDefault(v Value, c call) Value {
	if _, undefined := v.(Undefined); undefined || c.flag(1, "boolean") && !bool(v.Truth()) {
		return c.or(0, "default_value", starlark.String(""))
	}
	return v
}

// path is an attribute of attributes, "a.b" or "0", or v itself if there is no name.
func path(v Value, name Value) Value {
	if name == starlark.None {
		return v
	}
	for _, part := range strings.Split(Text(name), ".") {
		key := Value(starlark.String(part))
		if n, err := strconv.Atoi(part); err == nil {
			key = starlark.MakeInt(n)
		}
		v = item(v, key)
	}
	return v
}

// key is what is compared of a value: an attribute, in small letters unless asked otherwise.
func key(v Value, c call, attribute, sensitive int) Value {
	v = path(v, c.or(attribute, "attribute", starlark.None))
	c.scope.spend(weight(v))
	if s, ok := v.(starlark.String); ok && !c.flag(sensitive, "case_sensitive") {
		return starlark.String(strings.ToLower(string(s)))
	}
	return v
}

func sorted(v Value, c call) Value {
	all := slices.Clone(elements(v))
	slices.SortStableFunc(all, func(a, b Value) int {
		x, y := key(a, c, 2, 1), key(b, c, 2, 1)
		if c.flag(0, "reverse") {
			x, y = y, x
		}
		switch {
		case compare(c.scope, syntax.LT, x, y):
			return -1
		case compare(c.scope, syntax.GT, x, y):
			return 1
		}
		return 0
	})
	return starlark.NewList(all)
}

func unique(v Value, c call) Value {
	var out, seen []Value
	for _, one := range elements(v) {
		if k := key(one, c, 1, 0); !contains(c.scope, starlark.Tuple(seen), k) {
			out, seen = append(out, one), append(seen, k)
		}
	}
	return starlark.NewList(out)
}

func dictSort(v Value, c call) Value {
	at := map[string]string{"key": "0", "value": "1"}[Text(c.or(1, "by", starlark.String("key")))]
	return sorted(items(v, c), call{scope: c.scope, args: []Value{c.or(2, "reverse", starlark.False),
		c.or(0, "case_sensitive", starlark.False), starlark.String(at)}})
}

func items(v Value, _ call) Value {
	if _, undefined := v.(Undefined); undefined {
		return starlark.NewList(nil)
	}
	d, ok := v.(*starlark.Dict)
	if !ok {
		fail("Can only get item pairs from a mapping.")
	}
	var all []Value
	for _, pair := range d.Items() {
		all = append(all, pair)
	}
	return starlark.NewList(all)
}

func join(v Value, c call) Value {
	var parts []string
	for _, one := range elements(v) {
		parts = append(parts, c.scope.text(path(one, c.or(1, "attribute", starlark.None))))
	}
	between := Text(c.or(0, "d", starlark.String("")))
	c.scope.spend(len(parts) * len(between))
	return starlark.String(strings.Join(parts, between))
}

func toInt(v Value, c call) Value {
	text := strings.ReplaceAll(strings.TrimSpace(Text(number(v))), "_", "")
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return starlark.MakeInt64(n)
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) < 1<<62 {
		return starlark.MakeInt64(int64(f))
	}
	return c.or(0, "default", starlark.MakeInt(0))
}

func toFloat(v Value, c call) Value {
	if f, err := strconv.ParseFloat(strings.TrimSpace(Text(number(v))), 64); err == nil {
		return starlark.Float(f)
	}
	return c.or(0, "default", starlark.Float(0))
}

func mapped(v Value, c call) Value {
	name := c.or(-1, "attribute", starlark.None)
	f := func(v Value, c call) Value {
		if v = path(v, name); v.Type() == "undefined" {
			return c.or(-1, "default", v)
		}
		return v
	}
	if name == starlark.None {
		f = filters[Text(c.or(0, "filter", starlark.None))]
		if f == nil {
			fail("map: the filter %s is not known", repr(c.or(0, "filter", starlark.None), 0))
		}
		c.args = c.args[1:]
	}
	var out []Value
	for _, one := range elements(v) {
		c.scope.spend(stepWork + reading(c.args...))
		out = append(out, f(one, c))
		c.scope.spend(weight(out[len(out)-1]))
	}
	return starlark.NewList(out)
}

// choose keeps the elements that pass a test, or (keep false) those that do not; of them or of an attribute of theirs.
func choose(attribute, keep bool) filter {
	return func(v Value, c call) Value {
		name := Value(starlark.None)
		if attribute {
			if len(c.args) == 0 {
				fail("expected the name of an attribute")
			}
			name, c.args = c.args[0], c.args[1:]
		}
		passes := test(func(v Value, _ call) bool { return bool(v.Truth()) })
		if len(c.args) > 0 {
			if passes = tests[Text(c.args[0])]; passes == nil {
				fail("the test %q is not known", Text(c.args[0]))
			}
			c.args = c.args[1:]
		}
		var out []Value
		for _, one := range elements(v) {
			c.scope.spend(stepWork)
			if passes(path(one, name), c) == keep {
				out = append(out, one)
			}
		}
		return starlark.NewList(out)
	}
}

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
		return compare(c.scope, op, v, c.args[0])
	}
}

// remainder tests v modulo the argument (or n).
func remainder(n, of int) test {
	return func(v Value, c call) bool {
		left := calculate(c.scope, "%", v, c.or(0, "num", starlark.MakeInt(n)))
		return compare(c.scope, syntax.EQL, left, starlark.MakeInt(of))
	}
}

// cased tests that a text has letters, and all of one case.
func cased(change func(string) string) test {
	return func(v Value, c call) bool {
		s := c.scope.text(v)
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
		"in":       func(v Value, c call) bool { return contains(c.scope, c.or(0, "seq", starlark.Tuple{}), v) },
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
