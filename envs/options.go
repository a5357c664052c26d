package envs

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/nearest"
)

// Option describes one field of an options struct.
type Option struct {
	Name    string
	Aliases []string
	Doc     string
	Default any
}

// Options lists the fields of an options struct in order. A field is an option if it has an `option:"name,alias…"` tag;
// its `doc:"…"` tag is the help text and its value the default. Kinds: bool, int, float64, string, []string, [2]int.
func Options(options any) []Option {
	v := reflect.Indirect(reflect.ValueOf(options))
	var list []Option
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if tag, ok := f.Tag.Lookup("option"); ok {
			names := strings.Split(tag, ",")
			list = append(list, Option{names[0], names[1:], f.Tag.Get("doc"), v.Field(i).Interface()})
		}
	}
	return list
}

// Decode sets the fields of the struct that options points to. Values are as a TOML or JSON decoder delivers them, or
// strings as typed on a command line. All problems are reported together.
func Decode(options any, values map[string]any) error {
	v := reflect.ValueOf(options).Elem()
	fields := map[string]int{}
	var names []string
	for i := range v.NumField() {
		if tag, ok := v.Type().Field(i).Tag.Lookup("option"); ok {
			all := strings.Split(tag, ",")
			names = append(names, all[0])
			for _, n := range all {
				fields[n] = i
			}
		}
	}
	keys := make([]string, 0, len(values))
	for k := range values {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var problems []error
	setBy := map[int]string{}
	for _, k := range keys {
		i, known := fields[k]
		if !known {
			problems = append(problems, fmt.Errorf("unknown option %q%s; it has: %s",
				k, nearest.Hint(k, names), strings.Join(names, ", ")))
			continue
		}
		if other, twice := setBy[i]; twice {
			problems = append(problems, fmt.Errorf("options %q and %q are the same setting: keep one", other, k))
			continue
		}
		setBy[i] = k
		if err := set(v.Field(i), values[k]); err != nil {
			problems = append(problems, fmt.Errorf("option %s: %w", k, err))
		}
	}
	return errors.Join(problems...)
}

// set assigns one decoded value to a field.
func set(field reflect.Value, value any) error {
	switch p := field.Addr().Interface().(type) {
	case *bool:
		if b, ok := value.(bool); ok {
			*p = b
			return nil
		}
		b, err := strconv.ParseBool(fmt.Sprint(value))
		if err != nil {
			return expected("true or false", value)
		}
		*p = b
	case *int:
		n, err := whole(value)
		if err != nil {
			return err
		}
		*p = n
	case *float64:
		x, err := strconv.ParseFloat(fmt.Sprint(value), 64)
		if err != nil {
			return expected("a number", value)
		}
		*p = x
	case *string:
		s, ok := value.(string)
		if !ok {
			return expected("a string", value)
		}
		*p = s
	case *[]string:
		return setRows(p, value)
	case *[2]int:
		return setPair(p, value)
	default:
		panic(fmt.Sprintf("envs: options field of unsupported type %s", field.Type()))
	}
	return nil
}

// setRows accepts a list of strings or one string with a row per line.
func setRows(p *[]string, value any) error {
	switch list := value.(type) {
	case []string:
		*p = slices.Clone(list)
	case string:
		*p = strings.Split(strings.Trim(list, "\n"), "\n")
	case []any:
		rows := make([]string, len(list))
		for i, item := range list {
			s, ok := item.(string)
			if !ok {
				return expected("a list of strings", value)
			}
			rows[i] = s
		}
		*p = rows
	default:
		return expected("a list of strings", value)
	}
	return nil
}

// setPair accepts a list of two whole numbers or the string "6x8".
func setPair(p *[2]int, value any) error {
	var parts []any
	switch list := value.(type) {
	case []any:
		parts = list
	case []int:
		for _, n := range list {
			parts = append(parts, n)
		}
	case string:
		for _, s := range strings.Split(strings.ToLower(list), "x") {
			parts = append(parts, s)
		}
	}
	if len(parts) != 2 {
		return expected(`two whole numbers such as [6, 8] or "6x8"`, value)
	}
	var pair [2]int
	for i, part := range parts {
		n, err := whole(part)
		if err != nil {
			return err
		}
		pair[i] = n
	}
	*p = pair
	return nil
}

func whole(value any) (int, error) {
	if x, ok := value.(float64); ok && x == float64(int(x)) {
		return int(x), nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(fmt.Sprint(value)))
	if err != nil {
		return 0, expected("a whole number", value)
	}
	return n, nil
}

func expected(what string, got any) error {
	return fmt.Errorf("expected %s, got %#v", what, got)
}
