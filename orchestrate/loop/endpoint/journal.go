package endpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"gyre/internal/lines"
)

// journal keeps replies in a file, one JSON object per line, so that an interrupted evaluation goes on from there. The
// nil journal keeps nothing.
type journal struct {
	file *os.File
	kept map[string]reply
}

type entry struct {
	Key   string `json:"key"`
	Reply reply  `json:"reply"`
}

// openJournal reads what a file holds up to the first line that is incomplete, which is written anew.
func openJournal(path string) (*journal, error) {
	if path == "" {
		return nil, nil
	}
	kept, end := map[string]reply{}, int64(0)
	for line, err := range lines.Read(path) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		var e entry
		if err != nil || line.Torn || json.Unmarshal(line.Text, &e) != nil {
			break // where a writer was killed
		}
		kept[e.Key], end = e.Reply, line.To
	}
	file, err := lines.Continue(path, end, 0o600)
	return &journal{file, kept}, err
}

func (j *journal) find(key string) (reply, bool) {
	if j == nil {
		return reply{}, false
	}
	r, ok := j.kept[key]
	return r, ok
}

func (j *journal) add(key string, r reply) error {
	if j == nil {
		return nil
	}
	line, err := json.Marshal(entry{key, r})
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keeping a reply in %s: %w", j.file.Name(), err)
	}
	return nil
}

func (j *journal) close() error {
	if j == nil {
		return nil
	}
	if err := j.file.Close(); !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}
