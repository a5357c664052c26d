package jinja

import (
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.starlark.net/starlark"
)

// changing are methods that transformers' sandbox refuses.
var changing = strings.Fields("append clear extend insert pop popitem remove reverse setdefault sort update")

// method is a bound method of v, nil where it has none of that name: Starlark's, which are Python's, but for those that
// treat white space or positions otherwise.
func method(v Value, name string) Value {
	s, isString := v.(starlark.String)
	if f, ok := methods[name]; ok && isString {
		return function(func(c call) Value { return f(string(s), c) })
	}
	object, ok := v.(starlark.HasAttrs)
	switch {
	case !ok || isString && (strings.HasPrefix(name, "elem") || strings.HasPrefix(name, "codepoint")): // Starlark's own
		return nil
	case !isString && slices.Contains(changing, name) && slices.Contains(object.AttrNames(), name):
		return function(func(call) Value {
			fail("access to attribute '%s' of '%s' object is unsafe", name, v.Type())
			return nil
		})
	}
	m, err := object.Attr(name)
	if none := (starlark.NoSuchAttrError)(""); m == nil || errors.As(err, &none) {
		return nil
	}
	return must(m, err)
}

var methods = map[string]func(string, call) Value{
	"strip": strip(true, true), "lstrip": strip(true, false), "rstrip": strip(false, true),
	"split": split(strings.SplitN), "rsplit": split(splitRight),
	"find": find(strings.Index, false), "rfind": find(strings.LastIndex, false),
	"index": find(strings.Index, true), "rindex": find(strings.LastIndex, true),
	"upper": func(s string, _ call) Value { return starlark.String(strings.ToUpper(s)) },
	"lower": func(s string, _ call) Value { return starlark.String(strings.ToLower(s)) },
}

// IsSpace says what Python takes for white space.
func IsSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

func strip(left, right bool) func(string, call) Value {
	return func(s string, c call) Value {
		cut := IsSpace
		if set, ok := c.or(0, "chars", starlark.None).(starlark.String); ok {
			cut = func(r rune) bool { return strings.ContainsRune(string(set), r) }
		}
		if left {
			s = strings.TrimLeftFunc(s, cut)
		}
		if right {
			s = strings.TrimRightFunc(s, cut)
		}
		return starlark.String(s)
	}
}

// split is str.split or str.rsplit; cut splits into at most n parts, all of them if n is negative.
func split(cut func(s, sep string, n int) []string) func(string, call) Value {
	return func(s string, c call) Value {
		n := c.integer(1, "maxsplit", -1)
		if n >= 0 {
			n++
		}
		var parts []string
		c.scope.spend(elementWork * (1 + strings.Count(s, Text(c.or(0, "sep", starlark.String(" "))))))
		switch sep, given := c.or(0, "sep", starlark.None).(starlark.String); {
		case given && sep == "":
			fail("empty separator")
		case given:
			parts = cut(s, string(sep), n)
		case n < 0:
			parts = strings.FieldsFunc(s, IsSpace)
		default:
			fail("maxsplit without a separator is not known")
		}
		values := make([]Value, len(parts))
		for i, p := range parts {
			values[i] = starlark.String(p)
		}
		return starlark.NewList(values)
	}
}

func splitRight(s, sep string, n int) []string {
	parts := strings.Split(s, sep)
	if n < 0 || len(parts) <= n {
		return parts
	}
	first := len(parts) - n + 1
	return append([]string{strings.Join(parts[:first], sep)}, parts[first:]...)
}

// find gives positions in characters.
func find(in func(s, part string) int, must bool) func(string, call) Value {
	return func(s string, c call) Value {
		part, ok := c.or(0, "sub", starlark.None).(starlark.String)
		if !ok || len(c.args) > 1 {
			fail("expected the text to look for, and no bounds")
		}
		at := in(s, string(part))
		if at < 0 && must {
			fail("substring not found")
		}
		return starlark.MakeInt(utf8.RuneCountInString(s[:max(at, 0)]) + min(at, 0))
	}
}
