package translate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// document is a configuration being written.
type document struct {
	lines            []line
	envs, validation []source
	rewards          []section // [[rewards]]
}

// line is key = value, with the setting that it comes from.
type line struct{ key, value, from string }

// section is a table of the document.
type section []line

// source is one table of [[envs]] or [[validation.envs]].
type source struct {
	tag                                           string
	groups, groupSize, turns, perTurn, allActions int // 0 = left out
	options                                       map[string]any
	from                                          string
}

// tables in the order of a document.
var tables = []string{"run", "model", "lora", "envs", "validation", "validation.envs", "rewards", "rollout", "filter",
	"algorithm", "actor", "critic", "analysis", "components", "collapse", "early_stop", "checkpoint", "engine", "sft"}

func (d *document) find(key string) int {
	return slices.IndexFunc(d.lines, func(l line) bool { return l.key == key })
}

func (d *document) set(key string, value any, from string) {
	l := line{key, literal(value), from}
	if i := d.find(key); i >= 0 {
		d.lines[i] = l
		return
	}
	d.lines = append(d.lines, l)
}

// unset takes a key out again.
func (d *document) unset(key string) {
	d.lines = slices.DeleteFunc(d.lines, func(l line) bool { return l.key == key })
}

// text is what a key of the document is set to; "" where it is not.
func (d *document) text(key string) string {
	if i := d.find(key); i >= 0 {
		return strings.Trim(d.lines[i].value, `"`)
	}
	return ""
}

func (d *document) render() []byte {
	lists := map[string][]section{"rewards": d.rewards}
	for _, s := range d.envs {
		lists["envs"] = append(lists["envs"], s.section())
	}
	for _, s := range d.validation {
		lists["validation.envs"] = append(lists["validation.envs"], s.section())
	}
	var b bytes.Buffer
	for _, table := range tables {
		var own section
		for _, l := range d.lines {
			if name, ok := strings.CutPrefix(l.key, table+"."); ok {
				own = append(own, line{name, l.value, l.from})
			}
		}
		if len(own) > 0 {
			own.write(&b, "["+table+"]")
		}
		for _, s := range lists[table] {
			s.write(&b, "[["+table+"]]")
		}
	}
	return b.Bytes()
}

func (s section) write(b *bytes.Buffer, header string) {
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintln(b, header)
	width := 0
	for _, l := range s {
		width = max(width, len(l.key)+len(l.value)+3)
	}
	for _, l := range s {
		text := l.key + " = " + l.value
		if l.from != "" {
			text = fmt.Sprintf("%-*s  # %s", min(width, 60), text, oneLine.Replace(l.from))
		}
		fmt.Fprintln(b, text)
	}
}

func (s source) section() section {
	out := section{{"tag", literal(s.tag), s.from}}
	for _, n := range []struct {
		key   string
		value int
	}{
		{"groups", s.groups}, {"group_size", s.groupSize}, {"max_turns", s.turns}, {"max_actions", s.allActions},
		{"max_actions_per_turn", s.perTurn},
	} {
		if n.value != 0 {
			out = append(out, line{n.key, literal(n.value), ""})
		}
	}
	if len(s.options) > 0 {
		out = append(out, line{"options", literal(s.options), ""})
	}
	return out
}

// verbatim is a value that is TOML already.
type verbatim string

// literal writes a value as TOML on one line.
func literal(value any) string {
	switch v := value.(type) {
	case string: // JSON's strings are TOML's
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return `""`
		}
		return strings.TrimSpace(b.String())
	case []any:
		var parts []string
		for _, x := range v {
			parts = append(parts, literal(x))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, toml.Key{name}.String()+" = "+literal(v[name]))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	}
	return fmt.Sprint(value)
}
