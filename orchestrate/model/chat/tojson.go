package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"gyre/orchestrate/model/chat/bpe"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// toJSON is the filter tojson as transformers defines it: Python's json.dumps(x, ensure_ascii=False) with dictionaries
// in their own order, ", " and ": " as separators unless an indent is given, and no HTML escapes.
func toJSON(_ *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	w := jsonWriter{item: ", ", key: ": "}
	indent := args.GetKeywordArgument("indent", nil)
	if !indent.IsNil() && (!indent.IsInteger() || indent.Integer() < 0 || indent.Integer() > maxDepth) {
		return exec.AsValue(fmt.Errorf("tojson: indent is %s, expected an integer from 0 to %d", indent, maxDepth))
	}
	w.ascii = args.GetKeywordArgument("ensure_ascii", false).IsTrue()
	w.sorted = args.GetKeywordArgument("sort_keys", false).IsTrue()
	if separators := args.GetKeywordArgument("separators", nil); !separators.IsNil() && separators.Len() == 2 {
		w.item, w.key = separators.Index(0).String(), separators.Index(1).String()
	}
	if err := w.value(in, 0); err != nil {
		return exec.AsValue(fmt.Errorf("tojson: %w", err))
	}
	if indent.IsNil() {
		return exec.AsSafeValue(w.out.String())
	}
	var lines bytes.Buffer
	if err := json.Indent(&lines, []byte(w.out.String()), "", strings.Repeat(" ", indent.Integer())); err != nil {
		return exec.AsValue(fmt.Errorf("tojson: %w", err))
	}
	return exec.AsSafeValue(lines.String())
}

type jsonWriter struct {
	out           strings.Builder
	item, key     string // separators
	ascii, sorted bool
}

func (w *jsonWriter) value(v *exec.Value, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("value is nested deeper than %d levels", maxDepth)
	}
	switch {
	case v.IsNil():
		w.out.WriteString("null")
	case v.IsError():
		return v
	case v.IsString():
		w.string(v.String())
	case v.IsBool() || v.IsInteger():
		w.out.WriteString(strings.ToLower(v.String()))
	case v.IsFloat():
		w.out.WriteString(pythonFloat(v.Float()))
	case v.IsDict():
		members := membersOf(v.Interface())
		if w.sorted {
			slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
		}
		return w.list("{", "}", len(members), func(i int) error {
			w.string(members[i].name)
			w.out.WriteString(w.key)
			return w.value(members[i].value, depth+1)
		})
	case v.IsList():
		return w.list("[", "]", v.Len(), func(i int) error { return w.value(v.Index(i), depth+1) })
	default:
		return fmt.Errorf("a value of type %T cannot be written", v.Interface())
	}
	return nil
}

func (w *jsonWriter) list(open, close string, n int, element func(i int) error) error {
	w.out.WriteString(open)
	for i := range n {
		if i > 0 {
			w.out.WriteString(w.item)
		}
		if err := element(i); err != nil {
			return err
		}
	}
	w.out.WriteString(close)
	return nil
}

// string writes a JSON string with the escapes of Python's json module.
func (w *jsonWriter) string(s string) {
	encoded, _ := bpe.EncodeJSON(s, "") // a string always encodes
	text := strings.TrimSuffix(string(encoded), "\n")
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

// pythonFloat writes whole floats with ".0", as Python does.
func pythonFloat(f float64) string {
	b, err := json.Marshal(f)
	if err != nil {
		return "NaN"
	}
	if s := string(b); strings.ContainsAny(s, ".e") {
		return s
	}
	return string(b) + ".0"
}

type member struct {
	name  string
	value *exec.Value
}

// membersOf lists a dictionary in order: that of the template's literal, or for messages and tools that of known, then
// the rest.
func membersOf(dict any) (members []member) {
	switch d := dict.(type) {
	case *exec.Dict:
		for _, p := range d.Pairs {
			members = append(members, member{p.Key.String(), p.Value})
		}
	case map[string]any:
		for _, name := range known {
			if v, ok := d[name]; ok {
				members = append(members, member{name, exec.AsValue(v)})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(d)) {
			if !slices.Contains(known, name) {
				members = append(members, member{name, exec.AsValue(d[name])})
			}
		}
	}
	return members
}

// known are the keys of messages and tools in the order in which people write them.
var known = []string{"role", "content", "type", "function", "name", "description", "parameters", "properties",
	"required"}
