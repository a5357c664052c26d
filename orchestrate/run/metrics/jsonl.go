package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gyre/internal/lines"
	"gyre/internal/statistics"
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
	file, err := lines.Continue(path, end, 0o644)
	if err != nil {
		return nil, err
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
		for line, err := range lines.Read(path) {
			if line.Torn {
				return
			}
			var record Record
			if err == nil {
				if record, err = decode(line.Text); err != nil {
					err = line.Fault(err)
				}
			}
			record.end = line.To
			if !yield(record, err) || err != nil {
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
	step, _ = Raw(line).Step()
	return step
}

// Raw is the line of a step as it stands in a file. Whoever shows a few numbers of thousands of lines finds them here
// in a hundredth of the time that decoding takes. It expects what Encode wrote, or a row of a W&B history.
type Raw []byte

// Step is the line's step; false where it has none.
func (r Raw) Step() (int, bool) {
	for _, name := range []string{"step", "_step"} {
		for found, v := range r.Numbers(name) {
			if found == name {
				return int(v), true
			}
		}
	}
	return 0, false
}

// Numbers are the finite numbers of the metrics whose names begin with prefix (Python writes others, too). A quotation
// mark within a text is escaped, so that one behind a comma or a brace, with a colon behind the next, is that of a
// name.
func (r Raw) Numbers(prefix string) iter.Seq2[string, float64] {
	begin := append([]byte{'"'}, prefix...)
	return func(yield func(string, float64) bool) {
		for rest := r; ; {
			at := bytes.Index(rest, begin)
			if at < 0 {
				return
			}
			before := bytes.TrimRight(rest[:at], " ")
			rest = rest[at+1:]
			end := bytes.IndexByte(rest, '"')
			if end < 0 {
				return
			}
			after, isName := bytes.CutPrefix(bytes.TrimLeft(rest[end+1:], " "), []byte{':'})
			if !isName || len(before) == 0 || before[len(before)-1] != ',' && before[len(before)-1] != '{' {
				continue
			}
			text := bytes.TrimSpace(after[:max(bytes.IndexAny(after, ",}"), 0)])
			if v, err := strconv.ParseFloat(string(text), 64); err == nil && statistics.Finite(v) &&
				!yield(string(rest[:end]), v) {
				return
			}
			rest = rest[end+1:]
		}
	}
}
