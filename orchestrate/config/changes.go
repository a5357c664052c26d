package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Changes lists the keys in which two resolved configurations differ, each with its old and its new value.
func Changes(before, after []byte) ([]string, error) {
	old, err := flatten(before)
	if err != nil {
		return nil, fmt.Errorf("earlier configuration: %w", err)
	}
	current, err := flatten(after)
	if err != nil {
		return nil, err
	}
	keys := maps.Clone(old)
	maps.Copy(keys, current)
	var list []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		a, had := old[key]
		b, has := current[key]
		switch {
		case !had:
			list = append(list, fmt.Sprintf("%s = %s is new", key, b))
		case !has:
			list = append(list, fmt.Sprintf("%s = %s is gone", key, a))
		case a != b:
			list = append(list, fmt.Sprintf("%s = %s was %s", key, b, a))
		}
	}
	return list, nil
}

// flatten gives every value of a document by its dotted key, as text.
func flatten(document []byte) (map[string]string, error) {
	raw := map[string]any{}
	if _, err := toml.Decode(string(document), &raw); err != nil {
		return nil, err
	}
	out := map[string]string{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, inner := range v {
				walk(strings.TrimPrefix(path+"."+key, "."), inner)
			}
		case []map[string]any:
			for i, inner := range v {
				walk(fmt.Sprintf("%s.%d", path, i), inner)
			}
		case string:
			out[path] = fmt.Sprintf("%q", v)
		default:
			out[path] = fmt.Sprint(v)
		}
	}
	walk("", raw)
	return out, nil
}
