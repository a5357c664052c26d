package episode

import (
	"fmt"
	"iter"

	"gyre/internal/atomicfile"
	"gyre/internal/lines"
)

// Read streams the episodes of a JSONL file. The first error ends the stream; it names file, line and field. Blank
// lines are skipped.
func Read(path string) iter.Seq2[*Episode, error] {
	return func(yield func(*Episode, error) bool) {
		index := 0
		for line, err := range lines.Read(path) {
			if err == nil && len(line.Text) == 0 {
				continue
			}
			var e *Episode
			if err == nil {
				if e, err = Decode(line.Text, index); err != nil {
					err = line.Fault(err)
				}
			}
			index++
			if !yield(e, err) || err != nil {
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
