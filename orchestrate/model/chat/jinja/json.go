package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf16"

	"go.starlark.net/starlark"
)

// FromJSON reads one JSON value; objects keep the order of their members.
func FromJSON(data []byte) (Value, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decode(d, 0)
	if err != nil {
		return nil, err
	}
	if _, more := d.Token(); !errors.Is(more, io.EOF) {
		return nil, errors.New("more follows the value")
	}
	return v, nil
}

func decode(d *json.Decoder, depth int) (Value, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("a value is nested deeper than %d levels", MaxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		list, dict := starlark.NewList(nil), starlark.NewDict(0)
		for d.More() {
			var key any
			if t == '{' {
				if key, err = d.Token(); err != nil {
					return nil, err
				}
			}
			v, err := decode(d, depth+1)
			if err != nil {
				return nil, err
			}
			if name, ok := key.(string); ok {
				err = dict.SetKey(starlark.String(name), v)
			} else {
				err = list.Append(v)
			}
			if err != nil {
				return nil, err
			}
		}
		if _, err = d.Token(); t == '{' {
			return dict, err
		}
		return list, err
	case json.Number:
		if whole, err := t.Int64(); err == nil {
			return starlark.MakeInt64(whole), nil
		}
		f, err := t.Float64()
		return starlark.Float(f), err
	case bool:
		return starlark.Bool(t), nil
	case string:
		return starlark.String(t), nil
	}
	return starlark.None, nil
}

// JSON writes a value as Python's json.dumps(v, ensure_ascii=False) does.
func JSON(v Value) (string, error) {
	w := jsonWriter{item: ", ", key: ": "}
	err := w.value(v, 0)
	return w.out.String(), err
}

// toJSON is the filter tojson as transformers defines it.
func toJSON(v Value, c call) (Value, error) {
	w := jsonWriter{item: ", ", key: ": ", ascii: bool(c.or(0, "ensure_ascii", starlark.False).Truth()),
		sorted: bool(c.or(3, "sort_keys", starlark.False).Truth())}
	if width := c.or(1, "indent", starlark.None); width != starlark.None {
		n, err := c.integer(1, "indent", 0)
		if err != nil || n < 0 || n > MaxDepth {
			return nil, fmt.Errorf("indent is %s, expected an integer from 0 to %d", Text(width), MaxDepth)
		}
		w.item, w.lines, w.indent = ",", true, strings.Repeat(" ", n)
	}
	if pair, _ := elements(c.or(2, "separators", Undefined(""))); len(pair) == 2 {
		w.item, w.key = Text(pair[0]), Text(pair[1])
	}
	err := w.value(v, 0)
	return starlark.String(w.out.String()), err
}

type jsonWriter struct {
	out           strings.Builder
	item, key     string // separators
	indent        string
	lines         bool
	ascii, sorted bool
}

func (w *jsonWriter) value(v Value, depth int) error {
	if depth > MaxDepth {
		return fmt.Errorf("value is nested deeper than %d levels", MaxDepth)
	}
	switch v := v.(type) {
	case starlark.NoneType:
		w.out.WriteString("null")
	case starlark.String:
		w.string(string(v))
	case starlark.Bool, starlark.Int:
		w.out.WriteString(strings.ToLower(v.String()))
	case starlark.Float:
		w.out.WriteString(float(float64(v)))
	case *starlark.Dict:
		members := v.Items()
		if w.sorted {
			slices.SortStableFunc(members, func(a, b starlark.Tuple) int { return strings.Compare(Text(a[0]), Text(b[0])) })
		}
		return w.list("{}", len(members), depth, func(i int) error {
			w.string(Text(members[i][0]))
			w.out.WriteString(w.key)
			return w.value(members[i][1], depth+1)
		})
	case *starlark.List, starlark.Tuple:
		all, _ := elements(v)
		return w.list("[]", len(all), depth, func(i int) error { return w.value(all[i], depth+1) })
	default:
		return fmt.Errorf("a value of type %s cannot be written", v.Type())
	}
	return nil
}

func (w *jsonWriter) list(brackets string, n, depth int, element func(i int) error) error {
	line := func(depth int) {
		if w.lines && n > 0 {
			w.out.WriteString("\n" + strings.Repeat(w.indent, depth))
		}
	}
	w.out.WriteByte(brackets[0])
	for i := range n {
		if i > 0 {
			w.out.WriteString(w.item)
		}
		line(depth + 1)
		if err := element(i); err != nil {
			return err
		}
	}
	line(depth)
	w.out.WriteByte(brackets[1])
	return nil
}

// string writes a JSON string with the escapes of Python's json module.
func (w *jsonWriter) string(s string) {
	var encoded bytes.Buffer
	e := json.NewEncoder(&encoded)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	text := strings.TrimSuffix(encoded.String(), "\n")
	text = strings.NewReplacer("\\u2028", "\u2028", "\\u2029", "\u2029", "\\\\", "\\\\").Replace(text)
	for _, r := range text {
		if !w.ascii || r < 0x7f {
			w.out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&w.out, "\\u%04x", unit)
		}
	}
}
