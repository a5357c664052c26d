package episode

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"iter"
	"os"

	"gyre/internal/atomicfile"
)

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
			line, readErr := reader.ReadBytes('\n')
			if readErr != nil && readErr != io.EOF {
				yield(nil, fmt.Errorf("%s:%d: %w", path, number, readErr))
				return
			}
			if line = bytes.TrimSpace(line); len(line) > 0 {
				e, err := Decode(line, index)
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

// WriteFile writes episodes to path, all or nothing; parent folders are made.
func WriteFile(path string, episodes []*Episode) error {
	file, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for _, e := range episodes {
		line, err := Encode(e)
		if err != nil {
			return fmt.Errorf("%s: episode %d: %w", path, e.Index, err)
		}
		if _, err := file.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return file.Commit()
}
