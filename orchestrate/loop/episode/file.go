package episode

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"gyre/internal/atomicfile"
)

// longestLine bounds what one line of a file may make the reader hold (a million-token episode needs about 20 MB).
const longestLine = 1 << 30

// Read streams the episodes of a JSONL file. The first error ends the stream; it names file, line and field. Blank
// lines are skipped.
func Read(path string) iter.Seq2[*Episode, error] {
	return func(yield func(*Episode, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(nil, err)
			return
		}
		defer file.Close()
		reader := bufio.NewReaderSize(file, 1<<16)
		for number, index := 1, 0; ; number++ {
			line, readErr := readLine(reader)
			if readErr != nil && readErr != io.EOF {
				yield(nil, fmt.Errorf("%s:%d: %w", path, number, readErr))
				return
			}
			if line = bytes.TrimSpace(line); len(line) > 0 {
				e, err := parse(line, index)
				if err != nil {
					yield(nil, fmt.Errorf("%s:%d: %w", path, number, err))
					return
				}
				index++
				if !yield(e, nil) {
					return
				}
			}
			if readErr == io.EOF {
				return
			}
		}
	}
}

func readLine(reader *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		piece, err := reader.ReadSlice('\n')
		line = append(line, piece...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > longestLine {
			return nil, fmt.Errorf("line is longer than %d bytes: not a file of episodes", longestLine)
		}
	}
}

// ReadFile reads all episodes of a JSONL file; a file without any is an error.
func ReadFile(path string) ([]*Episode, error) {
	var all []*Episode
	for e, err := range Read(path) {
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no episodes in it, expected one JSON object per line", path)
	}
	return all, nil
}

// Writer writes a JSONL file that appears under its name only when Commit has succeeded.
type Writer struct {
	path string
	file *atomicfile.File
	line []byte
}

// Create starts a file; parent folders are made. Always Close it: without a Commit, nothing remains.
func Create(path string) (*Writer, error) {
	file, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	return &Writer{path: path, file: file}, nil
}

// Write adds one episode.
func (w *Writer) Write(e *Episode) error {
	line, err := AppendJSON(w.line[:0], e)
	if err != nil {
		return fmt.Errorf("%s: episode %d: %w", w.path, e.Index, err)
	}
	w.line = append(line, '\n')
	_, err = w.file.Write(w.line)
	return err
}

// Commit makes the file durable and gives it its name.
func (w *Writer) Commit() error { return w.file.Commit() }

// Close discards a file that was not committed. It may be called more than once.
func (w *Writer) Close() error { return w.file.Close() }

// WriteFile writes episodes to path, all or nothing.
func WriteFile(path string, episodes []*Episode) error {
	w, err := Create(path)
	if err != nil {
		return err
	}
	defer w.Close()
	for _, e := range episodes {
		if err := w.Write(e); err != nil {
			return err
		}
	}
	return w.Commit()
}
