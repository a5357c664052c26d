package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"gyre/internal/nearest"
)

// ErrInvalid is what every *Error matches with errors.Is.
var ErrInvalid = errors.New("invalid configuration")

// Problem is one thing that is wrong with a document.
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

// Error lists everything that is wrong with a document.
type Error struct {
	File     string
	Problems []Problem
}

func newError(file string, problems []Problem) *Error {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Override, b.Override), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key))
	})
	return &Error{File: file, Problems: problems}
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

// Is makes every error of this package match ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

// Unreadable is the error for a file that cannot be read; where it does not exist, it names a file beside it that may
// have been meant.
func Unreadable(file string, err error) error {
	hint := ""
	if errors.Is(err, fs.ErrNotExist) {
		// a bad pattern finds nothing
		beside, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*"+filepath.Ext(file)))
		hint = nearest.Hint(file, beside)
	}
	return newError(file, []Problem{{File: file, Message: fmt.Sprintf("cannot be read: %v%s", err, hint)}})
}
