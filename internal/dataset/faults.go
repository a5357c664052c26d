package dataset

import (
	"errors"
	"fmt"
	"strings"
)

// faults gathers what is wrong with the rows of a file, so that all of it is told at once.
type faults struct {
	count int
	shown []string // the first few
}

func (f *faults) add(where string, err error) {
	const most = 5
	if f.count++; f.count <= most {
		f.shown = append(f.shown, fmt.Sprintf("%s: %v", where, err))
	}
}

// err is nil where nothing is wrong.
func (f *faults) err() error {
	text := strings.Join(f.shown, "; ")
	switch more := f.count - len(f.shown); {
	case f.count == 0:
		return nil
	case more > 0:
		text += fmt.Sprintf("; and %d more", more)
	}
	if f.count > 1 {
		text = fmt.Sprintf("%d rows are wrong: %s", f.count, text)
	}
	return errors.New(text)
}

// Place names a row for people: its index from 0 and, of JSON lines, its line from 1.
func (t *Table) Place(row int) string {
	if row < len(t.lines) {
		return fmt.Sprintf("row %d (line %d)", row, t.lines[row])
	}
	return fmt.Sprintf("row %d", row)
}
