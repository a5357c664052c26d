package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Change is a key in which two configurations differ, with its values as text; From is empty for a key that is new,
// To for one that is gone. Step is the last step that a run did with the old one, where a resumption changed it.
type Change struct {
	Step int    `json:"step"`
	Key  string `json:"key"`
	From string `json:"from"`
	To   string `json:"to"`
}

// Trains reports whether the key bears on what is learned, and not only on what is kept and shown of it.
func (c Change) Trains() bool {
	table, key, _ := strings.Cut(c.Key, ".")
	return table != "checkpoint" && (table != "run" || strings.HasSuffix(key, "seed") || key == "threads")
}

func (c Change) String() string {
	switch {
	case c.From == "":
		return fmt.Sprintf("%s = %s is new", c.Key, c.To)
	case c.To == "":
		return fmt.Sprintf("%s = %s is gone", c.Key, c.From)
	}
	return fmt.Sprintf("%s = %s was %s", c.Key, c.To, c.From)
}

// Compare lists the keys in which two resolved configurations differ.
func Compare(before, after []byte) ([]Change, error) {
	old, err := Flatten(before)
	if err != nil {
		return nil, fmt.Errorf("earlier configuration: %w", err)
	}
	current, err := Flatten(after)
	if err != nil {
		return nil, err
	}
	keys := maps.Clone(old)
	maps.Copy(keys, current)
	var list []Change
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if old[key] != current[key] {
			list = append(list, Change{Key: key, From: old[key], To: current[key]})
		}
	}
	return list, nil
}

// Flatten gives every value of a document by its dotted key, as text.
func Flatten(document []byte) (map[string]string, error) {
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
