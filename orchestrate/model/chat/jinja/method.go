package jinja

import (
	"errors"
	"fmt"
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
func method(v Value, name string) (Value, error) {
	s, isString := v.(starlark.String)
	if f, ok := methods[name]; ok && isString {
		return builtin(name, func(c call) (Value, error) { return f(string(s), c) }), nil
	}
	object, ok := v.(starlark.HasAttrs)
	switch {
	case !ok:
		return nil, nil
	case !isString && slices.Contains(changing, name) && slices.Contains(object.AttrNames(), name):
		return builtin(name, func(call) (Value, error) {
			return nil, fmt.Errorf("access to attribute '%s' of '%s' object is unsafe", name, v.Type())
		}), nil
	case isString && (strings.HasPrefix(name, "elem") || strings.HasPrefix(name, "codepoint")): // Starlark's own
		return nil, nil
	}
	m, err := object.Attr(name)
	var none starlark.NoSuchAttrError
	if errors.As(err, &none) {
		return nil, nil
	}
	return m, err
}

var methods map[string]func(string, call) (Value, error)

func init() {
	methods = map[string]func(string, call) (Value, error){
		"strip": strip(true, true), "lstrip": strip(true, false), "rstrip": strip(false, true),
		"split": split(func(s, sep string, n int) []string { return strings.SplitN(s, sep, n) }), "rsplit": split(splitRight),
		"find": find(strings.Index, false), "rfind": find(strings.LastIndex, false),
		"index": find(strings.Index, true), "rindex": find(strings.LastIndex, true),
		"ljust": pad(0, 1), "rjust": pad(1, 0), "center": pad(1, 1),
		"isdecimal": all(unicode.IsDigit), "isnumeric": all(unicode.IsNumber), "isdigit": all(unicode.IsDigit),
		"zfill": func(s string, c call) (Value, error) {
			c.args = append(c.args, starlark.String("0"))
			return pad(1, 0)(s, c)
		},
		"upper": func(s string, _ call) (Value, error) { return starlark.String(strings.ToUpper(s)), nil },
		"lower": func(s string, _ call) (Value, error) { return starlark.String(strings.ToLower(s)), nil },
	}
}

// IsSpace says what Python takes for white space.
func IsSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

func all(is func(rune) bool) func(string, call) (Value, error) {
	return func(s string, _ call) (Value, error) {
		return starlark.Bool(s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !is(r) })), nil
	}
}

func strip(left, right bool) func(string, call) (Value, error) {
	return func(s string, c call) (Value, error) {
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
		return starlark.String(s), nil
	}
}

// split is str.split or str.rsplit; cut splits into at most n parts, all of them if n is negative.
func split(cut func(s, sep string, n int) []string) func(string, call) (Value, error) {
	return func(s string, c call) (Value, error) {
		n, err := c.integer(1, "maxsplit", -1)
		if err != nil {
			return nil, err
		}
		if n >= 0 {
			n++
		}
		var parts []string
		switch sep, given := c.or(0, "sep", starlark.None).(starlark.String); {
		case given && sep == "":
			return nil, errors.New("empty separator")
		case given:
			parts = cut(s, string(sep), n)
		case n < 0:
			parts = strings.FieldsFunc(s, IsSpace)
		default:
			return nil, errors.New("maxsplit without a separator is not known")
		}
		values := make([]Value, len(parts))
		for i, p := range parts {
			values[i] = starlark.String(p)
		}
		return starlark.NewList(values), nil
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
func find(in func(s, part string) int, must bool) func(string, call) (Value, error) {
	return func(s string, c call) (Value, error) {
		part, ok := c.or(0, "sub", starlark.None).(starlark.String)
		if !ok || len(c.args) > 1 {
			return nil, errors.New("expected the text to look for, and no bounds")
		}
		at := in(s, string(part))
		if at < 0 && must {
			return nil, errors.New("substring not found")
		}
		return starlark.MakeInt(utf8.RuneCountInString(s[:max(at, 0)]) + min(at, 0)), nil
	}
}

// pad fills a text up to a width, on the left and the right in these proportions.
func pad(left, right int) func(string, call) (Value, error) {
	return func(s string, c call) (Value, error) {
		width, err := c.integer(0, "width", 80)
		if err != nil {
			return nil, err
		}
		fill := Text(c.or(1, "fillchar", starlark.String(" ")))
		missing := max(0, min(width, MaxRange)-utf8.RuneCountInString(s))
		before := missing * left / (left + right)
		return starlark.String(strings.Repeat(fill, before) + s + strings.Repeat(fill, missing-before)), nil
	}
}
