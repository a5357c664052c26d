package jinja

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// filter computes a value from the one before the |.
type filter func(v Value, c call) (Value, error)

var filters map[string]filter

func init() { // the table refers to itself
	filters = map[string]filter{
		"tojson": toJSON, "trim": ofText("strip"), "lower": ofText("lower"), "upper": ofText("upper"),
		"title": ofText("title"), "capitalize": ofText("capitalize"), "replace": ofText("replace"),
		"center": ofText("center"), "safe": same, "string": func(v Value, _ call) (Value, error) {
			return starlark.String(Text(v)), nil
		},
		"escape": escaped, "e": escaped, "format": format, "indent": indent, "wordcount": wordCount,
		"default": orDefault, "d": orDefault, "length": count, "count": count, "first": end(0), "last": end(-1),
		"list": toList, "reverse": reversed, "sort": sorted, "unique": unique, "join": join, "sum": sum,
		"max": extreme(1), "min": extreme(-1), "int": toInt, "float": toFloat, "abs": absolute, "round": round,
		"items": items, "dictsort": dictSort, "attr": func(v Value, c call) (Value, error) {
			name := Text(c.or(0, "name", starlark.None))
			if m, err := method(v, name); m != nil || err != nil {
				return m, err
			}
			return Undefined(name), nil
		},
		"map": mapped, "select": choose(false, true), "reject": choose(false, false),
		"selectattr": choose(true, true), "rejectattr": choose(true, false),
	}
}

func same(v Value, _ call) (Value, error) { return v, nil }

// ofText is the method of a string.
func ofText(name string) filter {
	return func(v Value, c call) (Value, error) {
		m, err := method(starlark.String(Text(v)), name)
		if err != nil {
			return nil, err
		}
		return c.scope.call(m, c)
	}
}

var htmlEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

func escaped(v Value, _ call) (Value, error) {
	return starlark.String(htmlEscapes.Replace(Text(v))), nil
}

func format(v Value, c call) (Value, error) { return percent(Text(v), starlark.Tuple(c.args)) }

func indent(v Value, c call) (Value, error) {
	pad, isText := c.or(0, "width", starlark.MakeInt(4)).(starlark.String)
	if !isText {
		n, err := c.integer(0, "width", 4)
		if err != nil {
			return nil, err
		}
		pad = starlark.String(strings.Repeat(" ", max(0, min(n, MaxRange))))
	}
	lines := strings.Split(Text(v), "\n")
	for i, line := range lines {
		first := i == 0 && !bool(c.or(1, "first", starlark.False).Truth())
		if !first && (line != "" || bool(c.or(2, "blank", starlark.False).Truth())) {
			lines[i] = string(pad) + line
		}
	}
	return starlark.String(strings.Join(lines, "\n")), nil
}

func wordCount(v Value, _ call) (Value, error) {
	return starlark.MakeInt(len(strings.Fields(Text(v)))), nil
}

func orDefault(v Value, c call) (Value, error) {
	_, undefined := v.(Undefined)
	if undefined || bool(c.or(1, "boolean", starlark.False).Truth()) && !bool(v.Truth()) {
		return c.or(0, "default_value", starlark.String("")), nil
	}
	return v, nil
}

func count(v Value, _ call) (Value, error) {
	n, err := length(v)
	return starlark.MakeInt(n), err
}

func end(at int) filter {
	return func(v Value, _ call) (Value, error) {
		all, err := elements(v)
		if err != nil {
			return nil, err
		}
		return item(starlark.Tuple(all), starlark.MakeInt(at))
	}
}

func toList(v Value, _ call) (Value, error) {
	all, err := elements(v)
	return starlark.NewList(slices.Clone(all)), err
}

func reversed(v Value, _ call) (Value, error) {
	return slice(v, [3]Value{starlark.None, starlark.None, starlark.MakeInt(-1)})
}

// path is an attribute of attributes, "a.b" or "0".
func path(v Value, name Value) (Value, error) {
	for _, part := range strings.Split(Text(name), ".") {
		key := Value(starlark.String(part))
		if n, err := strconv.Atoi(part); err == nil {
			key = starlark.MakeInt(n)
		}
		var err error
		if v, err = item(v, key); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// keyed gives for each element what is compared of it: an attribute, in small letters unless asked otherwise.
func keyed(v Value, c call, attribute, sensitive int) (all, keys []Value, err error) {
	if all, err = elements(v); err != nil {
		return nil, nil, err
	}
	all = slices.Clone(all)
	name := c.or(attribute, "attribute", starlark.None)
	for _, one := range all {
		if name != starlark.None {
			if one, err = path(one, name); err != nil {
				return nil, nil, err
			}
		}
		if s, ok := one.(starlark.String); ok && !bool(c.or(sensitive, "case_sensitive", starlark.False).Truth()) {
			one = starlark.String(strings.ToLower(string(s)))
		}
		keys = append(keys, one)
	}
	return all, keys, nil
}

// order sorts places by keys.
func order(keys []Value, reverse bool) (places []int, err error) {
	for i := range keys {
		places = append(places, i)
	}
	slices.SortStableFunc(places, func(a, b int) int {
		if reverse {
			a, b = b, a
		}
		less, failed := compare(syntax.LT, keys[a], keys[b])
		more, _ := compare(syntax.GT, keys[a], keys[b])
		err = cmp.Or(err, failed)
		return map[bool]int{true: 1}[more] - map[bool]int{true: 1}[less]
	})
	return places, err
}

func sorted(v Value, c call) (Value, error) {
	all, keys, err := keyed(v, c, 2, 1)
	if err != nil {
		return nil, err
	}
	places, err := order(keys, bool(c.or(0, "reverse", starlark.False).Truth()))
	out := make([]Value, len(all))
	for i, place := range places {
		out[i] = all[place]
	}
	return starlark.NewList(out), err
}

func unique(v Value, c call) (Value, error) {
	all, keys, err := keyed(v, c, 1, 0)
	if err != nil {
		return nil, err
	}
	seen := starlark.NewList(nil)
	var out []Value
	for i, key := range keys {
		known, err := contains(seen, key)
		if err != nil {
			return nil, err
		}
		if !known {
			out = append(out, all[i])
			_ = seen.Append(key) // nobody iterates
		}
	}
	return starlark.NewList(out), nil
}

func extreme(sign int) filter {
	return func(v Value, c call) (Value, error) {
		all, keys, err := keyed(v, c, 1, 0)
		if err != nil || len(all) == 0 {
			return Undefined("No aggregated item, sequence was empty."), err
		}
		places, err := order(keys, sign > 0)
		return all[places[0]], err
	}
}

func join(v Value, c call) (Value, error) {
	all, err := elements(v)
	name := c.or(1, "attribute", starlark.None)
	parts := make([]string, len(all))
	for i, one := range all {
		if name != starlark.None {
			if one, err = path(one, name); err != nil {
				return nil, err
			}
		}
		parts[i] = Text(one)
	}
	return starlark.String(strings.Join(parts, Text(c.or(0, "d", starlark.String(""))))), err
}

func sum(v Value, c call) (Value, error) {
	all, err := elements(v)
	total, name := c.or(1, "start", starlark.MakeInt(0)), c.or(0, "attribute", starlark.None)
	for _, one := range all {
		if name != starlark.None {
			if one, err = path(one, name); err != nil {
				return nil, err
			}
		}
		if total, err = calculate("+", total, one); err != nil {
			return nil, err
		}
	}
	return total, err
}

func toInt(v Value, c call) (Value, error) {
	switch v := number(v).(type) {
	case starlark.Int:
		return v, nil
	case starlark.Float:
		return starlark.NumberToInt(v)
	case starlark.String:
		text := strings.ReplaceAll(strings.TrimSpace(string(v)), "_", "")
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return starlark.MakeInt64(n), nil
		}
		if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) < 1<<62 {
			return starlark.MakeInt64(int64(f)), nil
		}
	}
	return c.or(0, "default", starlark.MakeInt(0)), nil
}

func toFloat(v Value, c call) (Value, error) {
	if f, ok := starlark.AsFloat(number(v)); ok {
		return starlark.Float(f), nil
	}
	if f, err := strconv.ParseFloat(strings.TrimSpace(Text(v)), 64); err == nil {
		return starlark.Float(f), nil
	}
	return c.or(0, "default", starlark.Float(0)), nil
}

func absolute(v Value, _ call) (Value, error) {
	if negative, err := compare(syntax.LT, v, starlark.MakeInt(0)); err != nil || !negative {
		return v, err
	}
	return starlark.Unary(syntax.MINUS, v)
}

func round(v Value, c call) (Value, error) {
	digits, err := c.integer(0, "precision", 0)
	f, ok := starlark.AsFloat(number(v))
	if err != nil || !ok {
		return nil, cmp.Or(err, fmt.Errorf("a value of type %s is no number", v.Type()))
	}
	scale := math.Pow(10, float64(digits))
	switch method := Text(c.or(1, "method", starlark.String("common"))); method {
	case "common":
		if digits >= 0 { // as printing does: half to even, of the exact value
			f, err = strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
			return starlark.Float(f), err
		}
		return starlark.Float(math.RoundToEven(f*scale) / scale), nil
	case "ceil":
		return starlark.Float(math.Ceil(f*scale) / scale), nil
	case "floor":
		return starlark.Float(math.Floor(f*scale) / scale), nil
	default:
		return nil, fmt.Errorf("the method %q is not known", method)
	}
}

func items(v Value, _ call) (Value, error) {
	switch v := v.(type) {
	case Undefined:
		return starlark.NewList(nil), nil
	case *starlark.Dict:
		var all []Value
		for _, pair := range v.Items() {
			all = append(all, pair)
		}
		return starlark.NewList(all), nil
	}
	return nil, errors.New("Can only get item pairs from a mapping.") //nolint:staticcheck // Jinja's words
}

func dictSort(v Value, c call) (Value, error) {
	pairs, err := items(v, c)
	if err != nil {
		return nil, err
	}
	at := "0"
	if by := Text(c.or(1, "by", starlark.String("key"))); by == "value" {
		at = "1"
	}
	named := []starlark.Tuple{{starlark.String("attribute"), starlark.String(at)},
		{starlark.String("reverse"), c.or(2, "reverse", starlark.False)},
		{starlark.String("case_sensitive"), c.or(0, "case_sensitive", starlark.False)}}
	return sorted(pairs, call{kwargs: named, scope: c.scope})
}

func mapped(v Value, c call) (Value, error) {
	all, err := elements(v)
	if err != nil {
		return nil, err
	}
	out := make([]Value, len(all))
	name, byName := c.take(-1, "attribute")
	var f filter
	if !byName {
		if len(c.args) == 0 {
			return nil, errors.New("expected a filter or attribute=…")
		}
		if f = filters[Text(c.args[0])]; f == nil {
			return nil, fmt.Errorf("the filter %q is not known", Text(c.args[0]))
		}
		c.args = c.args[1:]
	}
	for i, one := range all {
		if byName {
			out[i], err = path(one, name)
			if _, undefined := out[i].(Undefined); undefined {
				out[i] = c.or(-1, "default", out[i])
			}
		} else {
			out[i], err = f(one, c)
		}
		if err != nil {
			return nil, err
		}
	}
	return starlark.NewList(out), nil
}

// choose keeps the elements that pass a test, or (keep false) those that do not; of them or of an attribute of theirs.
func choose(attribute, keep bool) filter {
	return func(v Value, c call) (Value, error) {
		all, err := elements(v)
		if err != nil {
			return nil, err
		}
		var name Value
		if attribute {
			if len(c.args) == 0 {
				return nil, errors.New("expected the name of an attribute")
			}
			name, c.args = c.args[0], c.args[1:]
		}
		passes := test(func(v Value, _ call) (bool, error) { return bool(v.Truth()), nil })
		if len(c.args) > 0 {
			if passes = tests[Text(c.args[0])]; passes == nil {
				return nil, fmt.Errorf("the test %q is not known", Text(c.args[0]))
			}
			c.args = c.args[1:]
		}
		var out []Value
		for _, one := range all {
			tested := one
			if attribute {
				if tested, err = path(one, name); err != nil {
					return nil, err
				}
			}
			ok, err := passes(tested, c)
			if err != nil {
				return nil, err
			}
			if ok == keep {
				out = append(out, one)
			}
		}
		return starlark.NewList(out), nil
	}
}
