// Package settings decodes settings into structs, once for all: configurations and studies in TOML, the overrides of
// a command line on top of them, and the options of environments. Everything wrong is reported together, each with
// its line or its override, and with the name that was probably meant.
//
// Tags of a field: toml (or option) is its key, with further names after commas; default is applied before the
// document is read; oneof lists the legal values; aliases (spelling=value,…) are other spellings of them, hints
// (word=value,…) what to propose for a word that is none; range is the interval of legal numbers; elements
// (key=value,…) are defaults of the tables in a list.
package settings

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Document is a TOML document with overrides on top of it, and everything that is wrong with it. It belongs to one
// goroutine.
type Document struct {
	// Keys of the document in the order in which they are written, without those of overrides.
	Keys []toml.Key
	// Removed are keys that are no more, elements of lists without their number.
	Removed map[string]Removed

	name      string
	tree      map[string]any
	lines     []string
	overrides map[string]override
	defined   map[string]bool // paths that the document or an override sets
	reported  map[string]bool
	problems  []Problem
}

// Parse reads a document; name stands for it in errors. One that is not valid TOML is empty, and reported.
func Parse(name string, data []byte) *Document {
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	d := &Document{name: name, tree: map[string]any{}, lines: strings.Split(text, "\n"),
		overrides: map[string]override{}, defined: map[string]bool{}, reported: map[string]bool{}}
	meta, err := toml.Decode(text, &d.tree)
	d.Keys = meta.Keys()
	if err == nil {
		return d
	}
	d.tree = map[string]any{}
	p := Problem{Message: err.Error()}
	if parse := (toml.ParseError{}); errors.As(err, &parse) {
		p.Line, p.Message = parse.Position.Line, "not valid TOML: "+parse.Message
	}
	d.add(p)
	return d
}

// Removed is a key that earlier documents have: what is said to those who set it, and the value that may still stand
// there, as it does what is done now anyway; nil: none.
type Removed struct {
	Value   any
	Instead string
}

// indices are those of elements in a path.
var indices = regexp.MustCompile(`\.\d+`)

// Decode sets the struct that to points to: defaults first, then what the document and its overrides say.
func (d *Document) Decode(to any) {
	v := reflect.ValueOf(to).Elem()
	setDefaults(v)
	(&decoder{report: d.Report, defined: d.defined, root: v.Type(), overrides: d.overrides,
		removed: d.Removed}).table("", d.tree, v)
}

// Defined reports whether the document or an override sets a path, such as validation.envs.0.groups.
func (d *Document) Defined(path string) bool { return d.defined[path] }

// override is one "key=value": all of it, and the value as it was typed.
type override struct{ text, value string }

// brackets is an element as other systems write it: envs[0].
var brackets = regexp.MustCompile(`\[(\d+)\]`)

// Override puts one "key=value" into the document.
func (d *Document) Override(text string) {
	key, value, ok := strings.Cut(text, "=")
	key = strings.TrimSpace(key)
	malformed := func(format string, args ...any) {
		d.add(Problem{Override: text, Message: fmt.Sprintf(format, args...)})
	}
	if !ok || key == "" || strings.HasPrefix(key, ".") || strings.HasSuffix(key, ".") || strings.Contains(key, "..") {
		malformed("expected key=value, such as filter.value=0.8")
		return
	}
	if plain := brackets.ReplaceAllString(key, ".$1"); plain != key {
		malformed("elements are named with dots: %s=%s", plain, value)
		return
	}
	if _, is, whole := tomlValue(value); is && !whole {
		malformed("expected a value and nothing behind it; put a text into quotes: %s='\"…\"'", key)
		return
	}
	d.overrides[key] = override{text, value}
	path, tree := strings.Split(key, "."), d.tree
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
				d.Report(key, "%s has %d elements: name a key of one of them, such as %s.0.groups", at, len(list), at)
				return
			}
			if n == len(list) {
				list = append(list, map[string]any{})
			}
			tree[path[i]], tree = list, list[n]
			i++
		default:
			d.Report(key, "%s is a value, not a table", at)
			return
		}
	}
	tree[path[len(path)-1]] = Value(value)
}

// tomlValue reads a text that begins with a TOML value, if it does; whole tells that nothing is behind the value, such
// as a comment.
func tomlValue(text string) (value any, is, whole bool) {
	document, list := map[string]any{}, map[string]any{}
	if _, err := toml.Decode("v = "+text, &document); err != nil {
		return nil, false, false
	}
	_, err := toml.Decode("v = ["+text+"]", &list) // a comment would hide the bracket
	return document["v"], true, err == nil
}

// Value reads a TOML value; anything else is a string without its quotes.
func Value(text string) any {
	text = strings.TrimSpace(text)
	if value, _, whole := tomlValue(text); whole {
		return value
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

// Report adds a problem with a key. A key's first problem is its only one: what follows from a wrong value is noise.
func (d *Document) Report(key, format string, args ...any) {
	if d.reported[key] {
		return
	}
	d.reported[key] = true
	p := Problem{Key: key, Message: fmt.Sprintf(format, args...)}
	// the key itself, or the table that it is in or lacks it
	for path := key; path != "" && p.Override == "" && p.Line == 0; path = parent(path) {
		p.Line = d.line(path)
		if p.Override = d.overrides[path].text; p.Override == "" && p.Line == 0 {
			p.Override = d.overrideBelow(path) // which may have made the table
		}
	}
	d.add(p)
}

// add completes a problem by the text of its line, unless an override is to blame.
func (d *Document) add(p Problem) {
	if p.Override != "" {
		p.Line = 0
	}
	if p.Line >= 1 && p.Line <= len(d.lines) {
		p.Text = strings.TrimSpace(d.lines[p.Line-1])
	}
	p.File = d.name
	d.problems = append(d.problems, p)
}

// Err is an *Error with every problem, nil without one.
func (d *Document) Err() error {
	if len(d.problems) == 0 {
		return nil
	}
	return newError(d.problems)
}

// overrideBelow is the override of a key in a table, the first by name; "" without one.
func (d *Document) overrideBelow(table string) string {
	for _, key := range slices.Sorted(maps.Keys(d.overrides)) {
		if strings.HasPrefix(key, table+".") {
			return d.overrides[key].text
		}
	}
	return ""
}

// line is the 1-based line of the statement that first sets a path; 0 where the document does not set it. The
// document's first lines are a document themselves, except where they end within a value: the line wanted is the last
// of the fewest lines after which the path is set.
func (d *Document) line(path string) int {
	n := 1 + sort.Search(len(d.lines), func(i int) bool {
		for ; i < len(d.lines); i++ {
			tree := map[string]any{}
			if _, err := toml.Decode(strings.Join(d.lines[:i+1], "\n"), &tree); err == nil {
				return holds(tree, strings.Split(path, "."))
			}
		}
		return true // not valid up to its end: nothing can be located
	})
	if n > len(d.lines) {
		return 0
	}
	return n
}

// holds reports whether a tree has a path, elements by index.
func holds(tree any, path []string) bool {
	if len(path) == 0 {
		return true
	}
	if table, ok := tree.(map[string]any); ok {
		child, has := table[path[0]]
		return has && holds(child, path[1:])
	}
	list := reflect.ValueOf(tree)
	n, err := strconv.Atoi(path[0])
	return err == nil && n >= 0 && list.Kind() == reflect.Slice && n < list.Len() &&
		holds(list.Index(n).Interface(), path[1:])
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

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func parent(path string) string { return path[:max(strings.LastIndexByte(path, '.'), 0)] }
