package translate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// document is a configuration being written.
type document struct {
	lines      []line
	envs       []source
	validation []source
	rewards    []reward
}

// reward is one table of [[rewards]].
type reward struct {
	name    string
	options map[string]any
	from    string
}

type line struct{ key, value, from string }

// source is one table of [[envs]] or [[validation.envs]].
type source struct {
	tag                                           string
	groups, groupSize, turns, perTurn, allActions int // 0 = left out
	options                                       map[string]any
	from                                          string
}

// tables in the order of a document.
var tables = []string{"run", "model", "validation", "rewards", "rollout", "filter", "algorithm", "actor", "critic",
	"analysis", "components", "collapse", "early_stop",
	"checkpoint", "engine", "sft"}

func (d *document) set(key string, value any, from string) {
	i := slices.IndexFunc(d.lines, func(l line) bool { return l.key == key })
	if i < 0 {
		d.lines = append(d.lines, line{key, literal(value), from})
		return
	}
	d.lines[i] = line{key, literal(value), from}
}

func (d *document) has(key string) bool {
	return slices.ContainsFunc(d.lines, func(l line) bool { return l.key == key })
}

// unset takes a key out again.
func (d *document) unset(key string) {
	d.lines = slices.DeleteFunc(d.lines, func(l line) bool { return l.key == key })
}

// text is what a key of the document is set to; "" where it is not.
func (d *document) text(key string) string {
	for _, l := range d.lines {
		if l.key == key {
			return strings.Trim(l.value, `"`)
		}
	}
	return ""
}

func (d *document) render() []byte {
	var b strings.Builder
	for _, table := range tables {
		var lines []line
		for _, l := range d.lines {
			if name, ok := strings.CutPrefix(l.key, table+"."); ok {
				lines = append(lines, line{name, l.value, l.from})
			}
		}
		if len(lines) > 0 {
			section(&b, "["+table+"]", lines)
		}
		switch table {
		case "model":
			for _, s := range d.envs {
				section(&b, "[[envs]]", s.lines())
			}
		case "validation":
			for _, s := range d.validation {
				section(&b, "[[validation.envs]]", s.lines())
			}
		case "rewards":
			for _, r := range d.rewards {
				section(&b, "[[rewards]]", []line{{"name", literal(r.name), r.from},
					{"options", inline(r.options), ""}})
			}
		}
	}
	return []byte(b.String())
}

func section(b *strings.Builder, header string, lines []line) {
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintln(b, header)
	width := 0
	for _, l := range lines {
		width = max(width, len(l.key)+len(l.value)+3)
	}
	width = min(width, 60)
	for _, l := range lines {
		text := l.key + " = " + l.value
		if l.from != "" {
			text = fmt.Sprintf("%-*s  # %s", width, text, strings.NewReplacer("\n", " ", "\r", " ").Replace(l.from))
		}
		fmt.Fprintln(b, text)
	}
}

func (s source) lines() []line {
	out := []line{{"tag", literal(s.tag), s.from}}
	for _, n := range []struct {
		key   string
		value int
	}{
		{"groups", s.groups}, {"group_size", s.groupSize}, {"max_turns", s.turns}, {"max_actions", s.allActions},
		{"max_actions_per_turn", s.perTurn},
	} {
		if n.value != 0 {
			out = append(out, line{n.key, strconv.Itoa(n.value), ""})
		}
	}
	if len(s.options) > 0 {
		out = append(out, line{"options", inline(s.options), ""})
	}
	return out
}

// inline writes options as a table on one line.
func inline(options map[string]any) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(options)) {
		parts = append(parts, bare(name)+" = "+literal(options[name]))
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

// verbatim is a value that is TOML already.
type verbatim string

// literal writes a value as TOML.
func literal(value any) string {
	switch v := value.(type) {
	case verbatim:
		return string(v)
	case string:
		var b bytes.Buffer // JSON's strings are TOML's
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return `""`
		}
		return strings.TrimSpace(b.String())
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = literal(x)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []string:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = literal(x)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprint(value)
}

// bare writes a key, quoted if it must be.
func bare(key string) string {
	if strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == "" && key != "" {
		return key
	}
	return literal(key)
}
