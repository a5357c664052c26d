package metrics

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
)

// Logger appends to a metrics.jsonl. It belongs to one goroutine.
type Logger struct {
	file *os.File
	last int // the step last logged, -1 before the first
}

// Open opens or creates the file for appending; parent folders are made. A torn last line, left by a crash, is removed.
func Open(path string) (*Logger, error) { return openUntil(path, math.MaxInt) }

// openUntil is Open without the lines of steps after keep, which are removed.
func openUntil(path string, keep int) (*Logger, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	l := &Logger{last: -1}
	end := int64(0)
	for record, err := range Read(path) {
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, err
		}
		if record.Step > keep {
			break
		}
		l.last, end = record.Step, record.end
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	if err := file.Truncate(end); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	l.file = file
	return l, nil
}

// Log writes the line of one step and returns when it is on disk. Steps must increase: a step that is logged twice
// means that the file was not truncated on resume.
func (l *Logger) Log(step int, values map[string]any) error {
	if step <= l.last {
		return fmt.Errorf("%s: step %d logged after step %d; truncate the file to the step resumed from",
			l.file.Name(), step, l.last)
	}
	line, err := Encode(step, values)
	if err != nil {
		return err
	}
	if _, err := l.file.Write(line); err != nil {
		return err
	}
	l.last = step
	return l.file.Sync()
}

// Close closes the file.
func (l *Logger) Close() error { return l.file.Close() }

// Read streams a file's records. An error names file and line and ends the stream. A last line without a newline is
// torn and left out.
func Read(path string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer file.Close()
		reader := bufio.NewReader(file)
		end := int64(0)
		for number := 1; ; number++ {
			line, err := reader.ReadBytes('\n')
			if err == io.EOF {
				return
			}
			var record Record
			if err == nil {
				record, err = decode(line)
			}
			if err != nil {
				yield(Record{}, fmt.Errorf("%s:%d: %w", path, number, err))
				return
			}
			end += int64(len(line))
			record.end = end
			if !yield(record, nil) {
				return
			}
		}
	}
}

// LastStep is the last step that the run of a directory has logged, found without decoding the others; 0 where there
// is none or it cannot be read.
func LastStep(dir string) (step int) {
	data, _ := os.ReadFile(filepath.Join(dir, File))
	end := max(bytes.LastIndexByte(data, '\n'), 0)
	line := data[bytes.LastIndexByte(data[:end], '\n')+1 : end]
	schema := 0
	if _, err := fmt.Sscanf(string(line), `{"schema":%d,"step":%d`, &schema, &step); err != nil {
		return 0
	}
	return step
}
