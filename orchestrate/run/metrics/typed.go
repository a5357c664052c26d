package metrics

import (
	"fmt"
	"reflect"
	"strings"
)

// Line is what is logged of one step: float64, string, Table, or nil for what does not exist in this step, by name.
type Line map[string]any

// Add puts the fields of structs on the line. A field's tag gives its name, its unit and its meaning, from which
// docs/metrics.md is made:
//
//	Gap float64           `metric:"rollout/logprob_gap_max,omitzero" unit:"nats" doc:"…"`  // absent where it is zero
//	KL  *float64          `metric:"actor/kl_loss" doc:"…"`                                // absent where it is nil
//	Len Extent            `metric:"prompt_length" doc:"…"`                                // a struct: prompt_length/mean, …
//	By  map[string]Bucket `metric:"grad_norm/{bucket}" doc:"…"`                           // the key takes the place of {bucket}
//
// Numbers are logged as float64, true as 1. Fields without a tag are not logged; embedded structs count as their
// fields.
func (l Line) Add(structs ...any) {
	for _, s := range structs {
		walk(reflect.ValueOf(s), "", func(name string, v reflect.Value) { l[name] = value(v) })
	}
}

// Copy puts numbers on the line whose names are not known before.
func (l Line) Copy(numbers map[string]float64) {
	for name, v := range numbers {
		l[name] = v
	}
}

// Floats are the numbers of a line.
func (l Line) Floats() map[string]float64 {
	out := make(map[string]float64, len(l))
	for name, v := range l {
		if number, ok := v.(float64); ok {
			out[name] = number
		}
	}
	return out
}

// Of is the value of a field that may be absent.
func Of(v float64) *float64 { return &v }

// walk visits the values of a struct that are there, by their whole names.
func walk(s reflect.Value, prefix string, visit func(name string, v reflect.Value)) {
	if s.Kind() == reflect.Pointer {
		if s.IsNil() {
			return
		}
		s = s.Elem()
	}
	for i := range s.NumField() {
		f, v := s.Type().Field(i), s.Field(i)
		tag, tagged := f.Tag.Lookup("metric")
		if f.Anonymous && !tagged {
			walk(v, prefix, visit)
		}
		if !tagged {
			continue
		}
		name, omits := strings.CutSuffix(tag, ",omitzero")
		if !omits || !v.IsZero() {
			enter(v, join(prefix, name), visit)
		}
	}
}

func enter(v reflect.Value, name string, visit func(name string, v reflect.Value)) {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
	case v.Kind() == reflect.Pointer:
		enter(v.Elem(), name, visit)
	case v.Type() == reflect.TypeFor[Table]():
		if !v.IsZero() {
			visit(name, v)
		}
	case v.Kind() == reflect.Struct:
		walk(v, name, visit)
	case v.Kind() == reflect.Map:
		for _, key := range v.MapKeys() {
			enter(v.MapIndex(key), keyed(name, key.String()), visit)
		}
	default:
		visit(name, v)
	}
}

// keyed puts a key in the place of the last {…} of a name.
func keyed(name, key string) string {
	from, to := strings.LastIndex(name, "{"), strings.LastIndex(name, "}")
	return name[:from] + key + name[to+1:]
}

func join(prefix, name string) string {
	if prefix == "" || name == "" {
		return prefix + name
	}
	return prefix + "/" + name
}

func value(v reflect.Value) any {
	switch {
	case v.CanFloat():
		return v.Float()
	case v.CanInt():
		return float64(v.Int())
	case v.Kind() == reflect.Bool && v.Bool():
		return 1.0
	case v.Kind() == reflect.Bool:
		return 0.0
	}
	return v.Interface()
}

// Described is one row of docs/metrics.md.
type Described struct{ Name, Unit, Doc string }

// Describe lists the metrics of structs with their units and meanings. A field that holds a struct and has a meaning
// of its own is one row: it speaks for the fields inside, which say nothing or are described elsewhere.
func Describe(structs ...any) []Described {
	var out []Described
	for _, s := range structs {
		out = append(out, describe(reflect.TypeOf(s), "")...)
	}
	return out
}

func describe(t reflect.Type, prefix string) (out []Described) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("metric")
		if f.Anonymous && !tagged {
			out = append(out, describe(f.Type, prefix)...)
		}
		if !tagged {
			continue
		}
		name := join(prefix, strings.TrimSuffix(tag, ",omitzero"))
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Map {
			inner = inner.Elem()
		}
		own := Described{name, f.Tag.Get("unit"), f.Tag.Get("doc")}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[Table]() {
			var silent []string
			inside := describe(inner, name)
			for _, d := range inside {
				if d.Doc == "" {
					silent = append(silent, strings.TrimPrefix(d.Name, name+"/"))
				}
			}
			switch {
			case own.Doc == "":
				out = append(out, inside...)
				continue
			case len(silent) > 0:
				own.Name = fmt.Sprintf("%s/{%s}", name, strings.Join(silent, ","))
			default: // described where it came first
				own.Name = name + "/…"
			}
		}
		out = append(out, own)
	}
	return out
}

// Page replaces the tables of docs/metrics.md: each stands between the lines "<!-- metrics: KEY -->" and "<!-- end
// -->" and lists the structs of that key. It fails where page and tables do not have the same keys.
func Page(page string, tables map[string][]any) (string, error) {
	const begin, end = "<!-- metrics: ", "<!-- end -->"
	var out strings.Builder
	done := map[string]bool{}
	for {
		before, rest, found := strings.Cut(page, begin)
		out.WriteString(before)
		if !found {
			break
		}
		key, rest, _ := strings.Cut(rest, " -->")
		_, rest, closed := strings.Cut(rest, end)
		structs, known := tables[key]
		if !known || !closed {
			return "", fmt.Errorf("the table %q of the page is not known, or has no %s", key, end)
		}
		done[key] = true
		out.WriteString(begin + key + " -->\n| metric | unit | meaning |\n|---|---|---|\n")
		for _, d := range Describe(structs...) {
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", d.Name, d.Unit, strings.ReplaceAll(d.Doc, "|", `\|`))
		}
		out.WriteString(end)
		page = rest
	}
	for key := range tables {
		if !done[key] {
			return "", fmt.Errorf("the page has no table %q", key)
		}
	}
	return out.String(), nil
}
