package endpoint

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{file, map[string]reply{}}
	good, reader := int64(0), bufio.NewReader(file)
	for {
		line, err := reader.ReadBytes('\n')
		var e entry
		if err != nil || json.Unmarshal(line, &e) != nil {
			break // the end, or where a writer was killed
		}
		j.kept[e.Key] = e.Reply
		good += int64(len(line))
	}
	if err := file.Truncate(good); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if _, err := file.Seek(good, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return j, nil
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
