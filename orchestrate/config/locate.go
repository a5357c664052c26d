package config

import (
	"fmt"
	"strings"
)

// locate returns the 1-based line of every table and key of a TOML document that is known to be valid, by dotted path
// with element indices. Keys inside inline tables share the line of the statement: they are not listed.
func locate(document string) map[string]int {
	lines, elements, prefix := map[string]int{}, map[string]int{}, ""
	record := func(path string, line int) {
		for ; path != ""; path = parent(path) {
			if _, known := lines[path]; !known {
				lines[path] = line
			}
		}
	}
	// Below an array of tables, names mean its latest element.
	resolve := func(name string) string {
		path := ""
		for _, part := range strings.Split(name, ".") {
			path = join(path, strings.Trim(strings.TrimSpace(part), `"'`))
			if n := elements[path]; n > 0 {
				path = fmt.Sprintf("%s.%d", path, n-1)
			}
		}
		return path
	}
	var open value
	for i, line := range strings.Split(document, "\n") {
		text := strings.TrimSpace(line)
		switch {
		case open.unfinished():
			open.scan(text)
		case text == "" || text[0] == '#':
		case strings.HasPrefix(text, "[["):
			name, _, _ := strings.Cut(text[2:], "]")
			path := join(resolve(parent(name)), strings.TrimSpace(name[strings.LastIndexByte(name, '.')+1:]))
			prefix = fmt.Sprintf("%s.%d", path, elements[path])
			elements[path]++
			record(prefix, i+1)
		case text[0] == '[':
			name, _, _ := strings.Cut(text[1:], "]")
			prefix = resolve(name)
			record(prefix, i+1)
		default:
			key, rest, _ := strings.Cut(text, "=")
			record(join(prefix, resolve(key)), i+1)
			open.scan(rest)
		}
	}
	return lines
}

func join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// value follows a TOML value over lines, to know where it ends.
type value struct {
	depth int    // open brackets and braces
	quote string // delimiter of the string that is open: """ or '''
}

func (v *value) unfinished() bool { return v.depth > 0 || v.quote != "" }

func (v *value) scan(text string) {
	for text != "" {
		if v.quote != "" {
			end := strings.Index(text, v.quote)
			if v.quote[0] == '"' {
				end = unescaped(text, v.quote)
			}
			if end < 0 {
				if len(v.quote) == 1 { // single-line strings end with their line
					v.quote = ""
				}
				return
			}
			text, v.quote = text[end+len(v.quote):], ""
			continue
		}
		switch c := text[0]; c {
		case '#':
			return
		case '[', '{':
			v.depth++
		case ']', '}':
			v.depth--
		case '"', '\'':
			v.quote = string(c)
			if triple := strings.Repeat(v.quote, 3); strings.HasPrefix(text, triple) {
				v.quote = triple
			}
			text = text[len(v.quote)-1:]
		}
		text = text[1:]
	}
}

// unescaped returns where a closing quote begins, past backslash escapes, or -1.
func unescaped(text, quote string) int {
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' {
			i++
		} else if strings.HasPrefix(text[i:], quote) {
			return i
		}
	}
	return -1
}
