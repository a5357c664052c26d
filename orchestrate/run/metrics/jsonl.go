package metrics

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"gyre/internal/atomicfile"
)

// Logger appends to a metrics.jsonl. It belongs to one goroutine.
type Logger struct {
	file *os.File
	last int
	any  bool
}

// Open opens or creates the file for appending; parent folders are made. A torn last line, left by a crash, is removed.
func Open(path string) (*Logger, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	l := &Logger{}
	for record, err := range Read(path) {
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				break
			}
			return nil, err
		}
		l.last, l.any = record.Step, true
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	end, err := endOfLines(file)
	if err == nil {
		err = file.Truncate(end)
	}
	if err == nil {
		_, err = file.Seek(end, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	l.file = file
	return l, nil
}

// Log writes the line of one step and returns when it is on disk. Steps must increase: a step that is logged twice
// means that the file was not truncated on resume.
func (l *Logger) Log(step int, values map[string]any) error {
	if l.any && step <= l.last {
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
	l.last, l.any = step, true
	return l.file.Sync()
}

// Close closes the file.
func (l *Logger) Close() error { return l.file.Close() }

// Read streams a file's records. An error names file and line and ends the stream. A last line without a newline is
// torn and left out.
func Read(path string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for line, err := range lines(path) {
			if !yield(line.record, err) {
				return
			}
		}
	}
}

// Truncate drops the lines of later steps, atomically. A file that does not exist is fine.
func Truncate(path string, lastStep int) error {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	kept, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer kept.Close()
	for line, err := range lines(path) {
		if err != nil {
			return err
		}
		if line.record.Step > lastStep {
			continue
		}
		if _, err := kept.Write(line.bytes); err != nil {
			return err
		}
	}
	return kept.Commit()
}

type parsedLine struct {
	bytes  []byte
	record Record
}

func lines(path string) iter.Seq2[parsedLine, error] {
	return func(yield func(parsedLine, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(parsedLine{}, err)
			return
		}
		defer file.Close()
		reader := bufio.NewReader(file)
		for number := 1; ; number++ {
			line, err := reader.ReadBytes('\n')
			if err == io.EOF {
				return
			}
			parsed := parsedLine{bytes: line}
			if err == nil {
				parsed.record, err = decode(line)
			}
			if err != nil {
				yield(parsedLine{}, fmt.Errorf("%s:%d: %w", path, number, err))
				return
			}
			if !yield(parsed, nil) {
				return
			}
		}
	}
}

// LastStep is the last step that a file has, without reading the rest of it; ok is false where there is none.
func LastStep(path string) (step int, ok bool, err error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer file.Close()
	end, err := endOfLines(file)
	if err != nil || end == 0 {
		return 0, false, err
	}
	begin, err := endOfLine(file, end-1)
	if err != nil {
		return 0, false, err
	}
	line := make([]byte, min(end-begin, 64))
	if _, err := file.ReadAt(line, begin); err != nil {
		return 0, false, err
	}
	schema := 0
	if _, err := fmt.Sscanf(string(line), `{"schema":%d,"step":%d`, &schema, &step); err != nil {
		return 0, false, fmt.Errorf("%s: the last line does not begin with schema and step: %w", path, err)
	}
	return step, true, nil
}

// endOfLines finds the offset after the last newline.
func endOfLines(file *os.File) (int64, error) {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	return endOfLine(file, end)
}

// endOfLine finds the offset after the last newline before an offset.
func endOfLine(file *os.File, end int64) (int64, error) {
	const chunk = 1 << 16
	buffer := make([]byte, chunk)
	for end > 0 {
		start := max(0, end-chunk)
		part := buffer[:end-start]
		if _, err := file.ReadAt(part, start); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		end = start
	}
	return 0, nil
}
