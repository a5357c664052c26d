package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"gyre/internal/nearest"
)

// decoder assigns the tree of a document to the structs.
type decoder struct {
	problems *problems
	defined  map[string]bool // paths that the document or an override sets
}

func (d decoder) table(path string, raw map[string]any, to reflect.Value) {
	for key, value := range raw {
		at := join(path, key)
		field, ok := fieldByKey(to.Type(), key)
		if !ok {
			d.unknown(path, key, to.Type())
			continue
		}
		d.defined[at] = true
		d.value(at, value, to.FieldByIndex(field.Index), field.Tag)
	}
}

func (d decoder) unknown(path, key string, table reflect.Type) {
	at := join(path, key)
	known := keys(table)
	if match, ok := nearest.Match(key, known); ok {
		d.problems.add(at, "unknown key (did you mean %s?)", match)
		return
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		if f.Type.Kind() == reflect.Struct && f.Type != table && slices.Contains(keys(f.Type), key) {
			d.problems.add(at, "unknown key here; %s belongs to [%s]", key, f.Tag.Get("toml"))
			return
		}
	}
	d.problems.add(at, "unknown key; valid here: %s", strings.Join(known, ", "))
}

// value assigns one value to a field. The field's tags hold its legal values.
func (d decoder) value(path string, raw any, to reflect.Value, tag reflect.StructTag) {
	text, isTyped := "", false
	if t, ok := raw.(typed); ok {
		raw, text, isTyped = t.value, t.text, true
	}
	switch to.Kind() {
	case reflect.Struct:
		if table, ok := raw.(map[string]any); ok {
			d.table(path, table, to)
			return
		}
	case reflect.Slice:
		if to.Type().Elem().Kind() == reflect.String {
			if list, ok := raw.([]any); ok {
				to.Set(reflect.MakeSlice(to.Type(), len(list), len(list)))
				for i, element := range list {
					d.value(fmt.Sprintf("%s.%d", path, i), element, to.Index(i), tag)
				}
				return
			}
		} else if list, ok := tables(raw); ok {
			d.elements(path, list, to, tag)
			return
		}
	case reflect.Array:
		if list, ok := raw.([]any); ok && len(list) == to.Len() {
			for i, element := range list {
				d.value(fmt.Sprintf("%s.%d", path, i), element, to.Index(i), tag)
			}
			return
		}
	case reflect.Map:
		table, ok := raw.(map[string]any)
		switch {
		case ok && to.Type().Elem().Kind() == reflect.Interface:
			to.Set(reflect.ValueOf(plain(table)))
			return
		case ok:
			to.Set(reflect.MakeMap(to.Type()))
			for key, element := range table {
				v := reflect.New(to.Type().Elem()).Elem()
				d.value(join(path, key), element, v, tag)
				to.SetMapIndex(reflect.ValueOf(key), v)
			}
			return
		}
	case reflect.String:
		if s, ok := raw.(string); ok {
			text, isTyped = s, true
		}
		if isTyped {
			d.text(path, text, to, tag)
			return
		}
	case reflect.Pointer: // a key without a default
		to.Set(reflect.New(to.Type().Elem()))
		d.value(path, raw, to.Elem(), tag)
		return
	case reflect.Bool:
		if b, ok := raw.(bool); ok {
			to.SetBool(b)
			return
		}
	default:
		if d.number(path, raw, to, tag) {
			return
		}
	}
	d.problems.add(path, "expected %s, got %s", typeName(to.Type()), describe(raw))
}

func (d decoder) elements(path string, list []map[string]any, to reflect.Value, tag reflect.StructTag) {
	to.Set(reflect.MakeSlice(to.Type(), len(list), len(list)))
	for i, table := range list {
		setDefaults(to.Index(i))
		if defaults := tag.Get("elements"); defaults != "" {
			for _, pair := range strings.Split(defaults, ",") {
				key, value, _ := strings.Cut(pair, "=")
				field, _ := fieldByKey(to.Type().Elem(), key)
				d.value(path, parseValue(value), to.Index(i).FieldByIndex(field.Index), field.Tag)
			}
		}
		d.table(fmt.Sprintf("%s.%d", path, i), table, to.Index(i))
	}
}

func (d decoder) text(path, text string, to reflect.Value, tag reflect.StructTag) {
	list, ok := tag.Lookup("oneof")
	if !ok {
		to.SetString(text)
		return
	}
	legal := strings.Split(list, ",")
	value, ok := canonical(tag.Get("toml"), text, legal)
	if !ok {
		d.problems.add(path, "expected one of %s; got %q%s", strings.Join(legal, ", "), text, nearest.Hint(text, legal))
		return
	}
	to.SetString(value)
}

// number assigns an integer or a number within the field's range; false means that raw is neither.
func (d decoder) number(path string, raw any, to reflect.Value, tag reflect.StructTag) bool {
	var x float64
	switch n := raw.(type) {
	case int64:
		x = float64(n)
	case float64:
		if to.Kind() != reflect.Float64 {
			return false
		}
		x = n
	default:
		return false
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		d.problems.add(path, "expected a finite number, got %v", x)
		return true
	}
	if interval, ok := tag.Lookup("range"); ok && !within(x, interval) {
		d.problems.add(path, "expected %s %s, got %v", typeName(to.Type()), spell(interval), raw)
		return true
	}
	switch to.Kind() {
	case reflect.Float64:
		to.SetFloat(x)
	case reflect.Int, reflect.Int64:
		to.SetInt(raw.(int64))
	case reflect.Uint64:
		if raw.(int64) < 0 {
			d.problems.add(path, "expected an integer >= 0, got %v", raw)
			return true
		}
		to.SetUint(uint64(raw.(int64)))
	}
	return true
}

// setDefaults applies the default tags of a struct and of the structs in it.
func setDefaults(to reflect.Value) {
	d := decoder{problems: newProblems("the default", nil)}
	for i := range to.NumField() {
		field := to.Type().Field(i)
		if field.Type.Kind() == reflect.Struct {
			setDefaults(to.Field(i))
		} else if text, ok := field.Tag.Lookup("default"); ok {
			d.value(field.Name, typed{text, parseValue(text)}, to.Field(i), field.Tag)
		}
	}
	if err := d.problems.err(); err != nil {
		panic(err) // a default tag of this package: found by any test
	}
}

func fieldByKey(table reflect.Type, key string) (reflect.StructField, bool) {
	for i := range table.NumField() {
		if f := table.Field(i); f.Tag.Get("toml") == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func keys(table reflect.Type) []string {
	var out []string
	for i := range table.NumField() {
		out = append(out, table.Field(i).Tag.Get("toml"))
	}
	return out
}

// plain strips the marks of overrides from a free-form table.
func plain(table map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range table {
		switch v := value.(type) {
		case typed:
			out[key] = v.value
		case map[string]any:
			out[key] = plain(v)
		default:
			out[key] = v
		}
	}
	return out
}
