package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"go.starlark.net/starlark"
)

// FromJSON reads one JSON value; objects keep the order of their members.
func FromJSON(data []byte) (v Value, err error) {
	defer recovered(&err, "not JSON")
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v = decode(d, 0)
	if _, more := d.Token(); !errors.Is(more, io.EOF) {
		fail("more follows the value")
	}
	return v, nil
}

func decode(d *json.Decoder, depth int) Value {
	if depth > MaxDepth {
		fail("a value is nested deeper than %d levels", MaxDepth)
	}
	switch t := must(d.Token()).(type) {
	case json.Delim:
		list, dict := starlark.NewList(nil), starlark.NewDict(0)
		for d.More() {
			if t == '{' {
				key := starlark.String(must(d.Token()).(string))
				must(0, dict.SetKey(key, decode(d, depth+1)))
			} else {
				must(0, list.Append(decode(d, depth+1)))
			}
		}
		if must(d.Token()); t == '{' {
			return dict
		}
		return list
	case json.Number:
		if whole, err := t.Int64(); err == nil {
			return starlark.MakeInt64(whole)
		}
		return starlark.Float(must(t.Float64()))
	case bool:
		return starlark.Bool(t)
	case string:
		return starlark.String(t)
	}
	return starlark.None
}

// JSON writes a value as Python's json.dumps(v, ensure_ascii=False) does.
func JSON(v Value) (text string, err error) {
	defer recovered(&err, "json")
	return Text(toJSON(v, call{scope: &scope{run: begin(time.Time{})}})), nil
}

// toJSON is the filter tojson as transformers defines it.
func toJSON(v Value, c call) Value {
	c.scope.weigh(v)
	w := jsonWriter{item: ", ", key: ": ", ascii: c.flag(0, "ensure_ascii"), sorted: c.flag(3, "sort_keys")}
	if c.or(1, "indent", starlark.None) != starlark.None {
		n := c.integer(1, "indent", 0)
		if n < 0 || n > MaxDepth {
			fail("indent is %d, expected 0 to %d", n, MaxDepth)
		}
		w.item, w.lines, w.indent = ",", true, strings.Repeat(" ", n)
	}
	if separators := c.or(2, "separators", starlark.None); separators != starlark.None {
		if pair := elements(separators); len(pair) == 2 {
			w.item, w.key = Text(pair[0]), Text(pair[1])
		}
	}
	w.value(v, 0)
	return starlark.String(w.out.String())
}

type jsonWriter struct {
	out           strings.Builder
	item, key     string // separators
	indent        string
	lines         bool
	ascii, sorted bool
}

func (w *jsonWriter) value(v Value, depth int) {
	if depth > MaxDepth {
		fail("value is nested deeper than %d levels", MaxDepth)
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
			slices.SortStableFunc(members, func(a, b starlark.Tuple) int {
				return strings.Compare(Text(a[0]), Text(b[0]))
			})
		}
		w.list("{}", len(members), depth, func(i int) {
			w.string(Text(members[i][0]))
			w.out.WriteString(w.key)
			w.value(members[i][1], depth+1)
		})
	case *starlark.List, starlark.Tuple:
		all := elements(v)
		w.list("[]", len(all), depth, func(i int) { w.value(all[i], depth+1) })
	default:
		fail("a value of type %s cannot be written", v.Type())
	}
}

func (w *jsonWriter) list(brackets string, n, depth int, element func(i int)) {
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
		element(i)
	}
	line(depth)
	w.out.WriteByte(brackets[1])
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
