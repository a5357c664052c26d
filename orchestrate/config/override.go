package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// typed is a value from an override: the text that was typed and what TOML makes of it. The text wins where a string
// is wanted (run.name=2024).
type typed struct {
	text  string
	value any
}

// brackets is an element as other systems write it: envs[0].
var brackets = regexp.MustCompile(`\[(\d+)\]`)

// override puts one "key=value" into the tree of a document.
func override(tree map[string]any, text string, p *problems) {
	key, value, ok := strings.Cut(text, "=")
	key = strings.TrimSpace(key)
	if !ok || key == "" || strings.HasPrefix(key, ".") || strings.HasSuffix(key, ".") || strings.Contains(key, "..") {
		p.list = append(p.list, Problem{File: p.file, Override: text, Message: "expected key=value, such as filter.value=0.8"})
		return
	}
	if plain := brackets.ReplaceAllString(key, ".$1"); plain != key {
		p.list = append(p.list, Problem{File: p.file, Override: text, Message: fmt.Sprintf("elements are named with dots: %s=%s", plain, value)})
		return
	}
	p.overrides[key] = text
	path := strings.Split(key, ".")
	for i := 0; i < len(path)-1; i++ {
		at := strings.Join(path[:i+1], ".")
		switch child := tree[path[i]].(type) {
		case nil:
			if _, err := strconv.Atoi(path[i+1]); err == nil {
				tree[path[i]] = []map[string]any{}
				i--
				continue
			}
			table := map[string]any{}
			tree[path[i]], tree = table, table
		case map[string]any:
			tree = child
		case []map[string]any, []any:
			list, ok := tables(child)
			n, err := strconv.Atoi(path[i+1])
			if !ok || err != nil || n < 0 || n > len(list) || i+2 == len(path) {
				p.add(key, "%s has %d elements: name a key of one of them, such as %s.0.groups", at, len(list), at)
				return
			}
			if n == len(list) {
				list = append(list, map[string]any{})
			}
			tree[path[i]], tree = list, list[n]
			i++
		default:
			p.add(key, "%s is a value, not a table", at)
			return
		}
	}
	tree[path[len(path)-1]] = typed{value, parseValue(value)}
}

// parseValue reads a TOML value; anything else is a string without its quotes.
func parseValue(text string) any {
	text = strings.TrimSpace(text)
	document := map[string]any{}
	if _, err := toml.Decode("v = "+text, &document); err == nil && len(document) == 1 {
		return document["v"]
	}
	if x, err := strconv.ParseFloat(text, 64); err == nil { // .5 and 1. are no TOML
		return x
	}
	switch text {
	case "True":
		return true
	case "False":
		return false
	}
	return text
}

// tables returns the elements of an array of tables, whether written with [[…]] or inline.
func tables(v any) ([]map[string]any, bool) {
	switch list := v.(type) {
	case []map[string]any:
		return list, true
	case []any:
		out := make([]map[string]any, len(list))
		for i, element := range list {
			table, ok := element.(map[string]any)
			if !ok {
				return nil, false
			}
			out[i] = table
		}
		return out, true
	}
	return nil, false
}
