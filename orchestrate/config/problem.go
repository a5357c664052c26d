package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// ErrInvalid is what every *Error matches with errors.Is.
var ErrInvalid = errors.New("invalid configuration")

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	File     string
	Line     int    // 1-based line in File; 0 = none (a key that is missing, an override)
	Text     string // that line
	Override string // the override that set the key, instead of a line
	Key      string // dotted, elements by index: envs.0.tag
	Message  string
}

func (p Problem) String() string {
	var b strings.Builder
	switch {
	case p.Override != "":
		fmt.Fprintf(&b, "override %q: ", p.Override)
	case p.Line > 0:
		fmt.Fprintf(&b, "%s:%d: ", p.File, p.Line)
	default:
		fmt.Fprintf(&b, "%s: ", p.File)
	}
	if p.Key != "" {
		fmt.Fprintf(&b, "%s: ", p.Key)
	}
	b.WriteString(p.Message)
	if p.Text != "" {
		fmt.Fprintf(&b, "\n    %d | %s", p.Line, printable(p.Text))
	}
	return b.String()
}

// printable is a line of a file that may hold anything, such as the control sequences of a terminal.
func printable(line string) string {
	const limit = 160
	var b strings.Builder
	for i, r := range line {
		if i >= limit {
			return b.String() + "…"
		}
		if r != '\t' && !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Error lists everything that is wrong with a configuration.
type Error struct {
	File     string
	Problems []Problem
}

func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems with the configuration:", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + strings.ReplaceAll(p.String(), "\n", "\n  "))
	}
	return b.String()
}

// Is makes every configuration error match ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

// problems collects what is wrong and knows which line or override each key comes from.
type problems struct {
	file      string
	lines     []string
	positions map[string]int    // line of each key and table of the file
	overrides map[string]string // override text by key
	reported  map[string]bool
	list      []Problem
}

func newProblems(file string, data []byte) *problems {
	document := strings.ReplaceAll(string(data), "\r\n", "\n")
	return &problems{file: file, lines: strings.Split(document, "\n"), positions: locate(document),
		overrides: map[string]string{}, reported: map[string]bool{}}
}

// add reports a problem with a key. A key's first problem is its only one: what follows from a wrong value is noise.
func (p *problems) add(key, format string, args ...any) {
	if p.reported[key] {
		return
	}
	p.reported[key] = true
	problem := Problem{File: p.file, Key: key, Message: fmt.Sprintf(format, args...)}
	for path := key; path != ""; path = parent(path) { // the key itself, or the table that it is in or lacks it
		if text, ok := p.overrides[path]; ok {
			problem.Override = text
			break
		}
		if _, inFile := p.positions[path]; !inFile {
			if text, ok := p.overrideBelow(path); ok { // an override made the table
				problem.Override = text
				break
			}
		}
		if line, ok := p.positions[path]; ok {
			problem.Line, problem.Text = line, strings.TrimSpace(p.lines[line-1])
			break
		}
	}
	p.list = append(p.list, problem)
}

// overrideBelow is the override of a key in a table, the first by name.
func (p *problems) overrideBelow(table string) (text string, ok bool) {
	for _, key := range slices.Sorted(maps.Keys(p.overrides)) {
		if strings.HasPrefix(key, table+".") {
			return p.overrides[key], true
		}
	}
	return "", false
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	slices.SortStableFunc(p.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Override, b.Override), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key))
	})
	return &Error{File: p.file, Problems: p.list}
}

func parent(path string) string { return path[:max(strings.LastIndexByte(path, '.'), 0)] }
