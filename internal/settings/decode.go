package settings

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"gyre/internal/nearest"
	"gyre/internal/statistics"
)

// Decoder is a type that reads its values itself, as a TOML decoder delivers them.
type Decoder interface{ DecodeSetting(value any) error }

// decoder assigns trees of values to structs.
type decoder struct {
	report  func(key, format string, args ...any)
	defined map[string]bool // paths that are set
	root    reflect.Type
	// overrides have the text that counts where a string is wanted (run.name=2024).
	overrides map[string]override
	removed   map[string]Removed
	// loose takes values of JSON and of Go, and strings as they are typed on a command line: "3", "6x8", rows on lines.
	loose bool
}

// DecodeOptions sets the options of a struct that to points to, fields with an option tag. Values are as a TOML or
// JSON decoder delivers them, or strings as typed on a command line. Each problem is reported by the option's name.
func DecodeOptions(to any, values map[string]any, report func(key, format string, args ...any)) {
	v := reflect.ValueOf(to).Elem()
	d := decoder{report: report, defined: map[string]bool{}, root: v.Type(), loose: true}
	d.table("", values, v)
}

func (d *decoder) table(path string, raw map[string]any, to reflect.Value) {
	setBy := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		field, ok := fieldByKey(to.Type(), key)
		if gone, was := d.removed[indices.ReplaceAllString(join(path, key), "")]; was && !ok {
			if raw[key] != gone.Value {
				d.report(join(path, key), "is gone: %s", gone.Instead)
			}
			continue
		}
		if !ok {
			d.unknown(path, key, to.Type())
			continue
		}
		if other, twice := setBy[field.Name]; twice {
			d.report(join(path, key), "%q and %q are the same setting: keep one", other, key)
			continue
		}
		setBy[field.Name] = key
		d.defined[join(path, key)] = true
		d.value(join(path, key), raw[key], to.FieldByIndex(field.Index), field.Tag)
	}
}

func (d *decoder) unknown(path, key string, table reflect.Type) {
	known := keys(table)
	if match, ok := nearest.Match(key, known); ok {
		d.report(join(path, key), "unknown key (did you mean %s?)", match)
		return
	}
	for _, f := range reflect.VisibleFields(d.root) {
		if f.Type.Kind() == reflect.Struct && f.Type != table && slices.Contains(keys(f.Type), key) {
			d.report(join(path, key), "unknown key here; %s belongs to [%s]", key, names(f.Tag)[0])
			return
		}
	}
	d.report(join(path, key), "unknown key; valid here: %s", strings.Join(known, ", "))
}

// value assigns one value to a field or an element. The field's tags hold its legal values.
func (d *decoder) value(path string, raw any, to reflect.Value, tag reflect.StructTag) {
	text, isText := raw.(string)
	if isText && d.loose && to.Kind() != reflect.String {
		raw = Value(text)
	}
	if o, ok := d.overrides[path]; ok && !isText {
		text, isText = o.value, true
	}
	if own, ok := to.Addr().Interface().(Decoder); ok {
		if err := own.DecodeSetting(raw); err != nil {
			d.report(path, "%v", err)
		}
		return
	}
	ok := false
	switch to.Kind() {
	case reflect.Interface:
		to.Set(reflect.ValueOf(raw))
		ok = true
	case reflect.Struct:
		var table map[string]any
		if table, ok = raw.(map[string]any); ok {
			d.table(path, table, to)
		}
	case reflect.Slice, reflect.Array:
		ok = d.list(path, raw, to, tag)
	case reflect.Map:
		ok = d.keyed(path, raw, to, tag)
	case reflect.String:
		if ok = isText; ok {
			d.text(path, text, to, tag)
		}
	case reflect.Pointer: // a key without a default
		to.Set(reflect.New(to.Type().Elem()))
		d.value(path, raw, to.Elem(), tag)
		return
	case reflect.Bool:
		if _, ok = raw.(bool); ok {
			to.SetBool(raw.(bool))
		}
	default:
		ok = d.number(path, raw, to, tag)
	}
	if !ok {
		d.report(path, "expected %s, got %s%s", typeName(to.Type()), describe(raw), listSyntax(path, raw, to))
	}
}

// listSyntax shows how the list is written that one text was given for.
func listSyntax(path string, raw any, to reflect.Value) string {
	if s, ok := raw.(string); ok && to.Kind() == reflect.Slice && (to.Type().Elem().Kind() == reflect.String ||
		readsItself(to.Type().Elem())) {
		return fmt.Sprintf("; a list is written [%q], on a command line '%s=[%q]'", s, path, s)
	}
	return ""
}

// list assigns a slice or an array; false means that raw is none, or of another length.
func (d *decoder) list(path string, raw any, to reflect.Value, tag reflect.StructTag) bool {
	if text, isText := raw.(string); isText && d.loose {
		if to.Kind() == reflect.Array {
			raw = strings.Split(strings.ToLower(text), "x")
		} else {
			raw = strings.Split(strings.Trim(text, "\n"), "\n")
		}
	}
	from := reflect.ValueOf(raw)
	if from.Kind() != reflect.Slice || to.Kind() == reflect.Array && from.Len() != to.Len() {
		return false
	}
	if to.Kind() == reflect.Slice {
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
	}
	for i := range from.Len() {
		at, element := fmt.Sprintf("%s.%d", path, i), to.Index(i)
		if element.Kind() == reflect.Struct && !readsItself(element.Type()) {
			setDefaults(element)
			d.setElement(path, element, tag)
		}
		d.value(at, from.Index(i).Interface(), element, tag)
	}
	return true
}

// setElement applies the defaults that a list has for its tables.
func (d *decoder) setElement(path string, to reflect.Value, tag reflect.StructTag) {
	for key, value := range pairs(tag, "elements") {
		field, _ := fieldByKey(to.Type(), key)
		d.value(path, Value(value), to.FieldByIndex(field.Index), field.Tag)
	}
}

// keyed assigns a map; false means that raw is no table.
func (d *decoder) keyed(path string, raw any, to reflect.Value, tag reflect.StructTag) bool {
	table, ok := raw.(map[string]any)
	if !ok {
		return false
	}
	to.Set(reflect.MakeMap(to.Type()))
	for key, element := range table {
		v := reflect.New(to.Type().Elem()).Elem()
		d.value(join(path, key), element, v, tag)
		to.SetMapIndex(reflect.ValueOf(key), v)
	}
	return true
}

func (d *decoder) text(path, text string, to reflect.Value, tag reflect.StructTag) {
	list, ok := tag.Lookup("oneof")
	if !ok {
		to.SetString(text)
		return
	}
	legal := strings.Split(list, ",")
	if value, ok := canonical(text, legal, pairs(tag, "aliases")); ok {
		to.SetString(value)
		return
	}
	hint := nearest.Hint(text, legal)
	if meant, ok := pairs(tag, "hints")[fold(text)]; ok {
		hint = fmt.Sprintf(" (did you mean %s?)", meant)
	}
	d.report(path, "expected one of %s; got %q%s", strings.Join(legal, ", "), text, hint)
}

// number assigns an integer or a number within the field's range; false means that raw is neither.
func (d *decoder) number(path string, raw any, to reflect.Value, tag reflect.StructTag) bool {
	var x float64
	from := reflect.ValueOf(raw)
	whole := from.CanInt()
	switch {
	case whole:
		x = float64(from.Int())
	case !from.IsValid() || from.Kind() != reflect.Float64:
		return false
	default:
		x = from.Float()
		if to.Kind() != reflect.Float64 {
			if !d.loose || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
				return false
			}
			from, whole = reflect.ValueOf(int64(x)), true // as JSON writes an integer
		}
	}
	if !statistics.Finite(x) {
		d.report(path, "expected a finite number, got %v", x)
		return true
	}
	if interval, ok := tag.Lookup("range"); ok && !within(x, interval) {
		d.report(path, "expected %s %s, got %v", typeName(to.Type()), spell(interval), raw)
		return true
	}
	switch {
	case to.Kind() == reflect.Float64:
		to.SetFloat(x)
	case to.CanInt():
		to.SetInt(from.Int())
	case from.Int() < 0:
		d.report(path, "expected an integer >= 0, got %v", raw)
	default:
		to.SetUint(uint64(from.Int()))
	}
	return true
}

// setDefaults applies the default tags of a struct and of the structs in it.
func setDefaults(to reflect.Value) {
	broken := func(key, format string, args ...any) { // found by any test of the struct's package
		panic(fmt.Sprintf("settings: the default of %s.%s: %s", to.Type(), key, fmt.Sprintf(format, args...)))
	}
	d := decoder{report: broken, loose: true}
	for i := range to.NumField() {
		field := to.Type().Field(i)
		text, ok := field.Tag.Lookup("default")
		switch {
		case ok:
			d.value(field.Name, text, to.Field(i), field.Tag)
		case field.Type.Kind() == reflect.Struct && field.IsExported():
			setDefaults(to.Field(i))
		}
	}
}

// names are the names of a field, the first of them its own; none for a field that is no setting.
func names(tag reflect.StructTag) []string {
	text := tag.Get("toml")
	if text == "" {
		text = tag.Get("option")
	}
	if text == "" || text == "-" {
		return nil
	}
	return strings.Split(text, ",")
}

func fieldByKey(table reflect.Type, key string) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(table) {
		if slices.Contains(names(f.Tag), key) {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func keys(table reflect.Type) (out []string) {
	for _, f := range reflect.VisibleFields(table) {
		if all := names(f.Tag); len(all) > 0 {
			out = append(out, all[0])
		}
	}
	return out
}
