package envs

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"gyre/internal/settings"
)

// Option describes one field of an options struct.
type Option struct {
	Name    string
	Aliases []string
	Doc     string
	Default any
}

// Options lists the fields of an options struct, and of structs that it embeds, in order. A field is an option if it has an `option:"name,alias…"` tag;
// its `doc:"…"` tag is the help text, to which the values of a `oneof:"a,b"` tag are added, and its value the default.
// Kinds: bool, int, float64, string, []string, [2]int.
func Options(options any) []Option {
	v := reflect.Indirect(reflect.ValueOf(options))
	var list []Option
	for _, f := range reflect.VisibleFields(v.Type()) {
		if tag, ok := f.Tag.Lookup("option"); ok {
			names, doc := strings.Split(tag, ","), f.Tag.Get("doc")
			if values := f.Tag.Get("oneof"); values != "" {
				doc += " (" + strings.ReplaceAll(values, ",", ", ") + ")"
			}
			list = append(list, Option{names[0], names[1:], doc, v.FieldByIndex(f.Index).Interface()})
		}
	}
	return list
}

// Decode sets the fields of the struct that options points to. Values are as a TOML or JSON decoder delivers them, or
// strings as typed on a command line. All problems are reported together.
func Decode(options any, values map[string]any) error {
	var problems []error
	settings.DecodeOptions(options, values, func(key, format string, args ...any) {
		problems = append(problems, fmt.Errorf("option %s: "+format, append([]any{key}, args...)...))
	})
	return errors.Join(problems...)
}
