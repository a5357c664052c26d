// Package lines reads and continues files of one record per line, whose writer may have been killed over the last one.
package lines

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
)

// Line is one of a file.
type Line struct {
	Text     []byte // without white space around it
	From, To int64  // its bytes in the file
	Torn     bool   // the file ends before the line does

	path   string
	number int
}

// Fault is an error about the line, which it names.
func (l Line) Fault(err error) error { return fmt.Errorf("%s:%d: %w", l.path, l.number, err) }

// Read streams the lines of a file. The first error ends the stream.
func Read(path string) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(Line{}, err)
			return
		}
		defer file.Close()
		reader := bufio.NewReaderSize(file, 1<<16)
		for l := (Line{path: path, number: 1}); !l.Torn; l.number++ {
			text, err := reader.ReadBytes('\n')
			if err != nil && err != io.EOF {
				yield(Line{}, l.Fault(err))
				return
			}
			l.Text, l.From, l.To, l.Torn = bytes.TrimSpace(text), l.To, l.To+int64(len(text)), err == io.EOF
			if l.Torn && len(text) == 0 || !yield(l, nil) {
				return
			}
		}
	}
}

// Continue opens a file for lines after its first so many bytes and removes what follows them. The file and its folders
// are made where they are missing.
func Continue(path string, bytes int64, mode fs.FileMode) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, mode)
	if err != nil {
		return nil, err
	}
	if err := file.Truncate(bytes); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
