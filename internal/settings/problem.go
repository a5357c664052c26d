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
	Line     int    // 1-based line in file; 0 = none (a key that is missing, an override)
	Text     string // that line
	Override string // the override that set the key, instead of a line
	Key      string // dotted, elements by index: envs.0.tag
	Message  string
}

func (p Problem) String() string {
	text := p.File + ": "
	switch {
	case p.Override != "":
		text = fmt.Sprintf("override %q: ", p.Override)
	case p.Line > 0:
		text = fmt.Sprintf("%s:%d: ", p.File, p.Line)
	}
	if p.Key != "" {
		text += p.Key + ": "
	}
	text += p.Message
	if p.Text != "" {
		text += fmt.Sprintf("\n    %d | %s", p.Line, printable(p.Text))
	}
	return text
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
type Error struct{ Problems []Problem }

func newError(problems []Problem) *Error {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Override, b.Override), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key))
	})
	return &Error{problems}
}

func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	text := fmt.Sprintf("%d problems with the configuration:", len(e.Problems))
	for _, p := range e.Problems {
		text += "\n  " + strings.ReplaceAll(p.String(), "\n", "\n  ")
	}
	return text
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
	return newError([]Problem{{File: file, Message: fmt.Sprintf("cannot be read: %v%s", err, hint)}})
}
