package envs

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"gyre/internal/dataset"
)

// ReadRows reads the JSON Lines or Parquet file that an option names and makes something of every row. Errors name
// the option, the file and the line or row; thing is what a row holds.
func ReadRows[Row, Thing any](option, path, thing string, take func(Row) (Thing, error)) ([]Thing, error) {
	var things []Thing
	add := func(where string, text []byte) error {
		var row Row
		err := json.Unmarshal(text, &row)
		if err == nil {
			var one Thing
			if one, err = take(row); err == nil {
				things = append(things, one)
				return nil
			}
		}
		return fmt.Errorf("option %s: %s, %s: %w", option, path, where, err)
	}
	if strings.EqualFold(filepath.Ext(path), ".parquet") {
		table, err := dataset.Read(path)
		if err != nil {
			return nil, fmt.Errorf("option %s: %w", option, err)
		}
		for n, row := range table.Rows {
			text, err := json.Marshal(row)
			if err == nil {
				err = add(fmt.Sprintf("row %d", n+1), text)
			}
			if err != nil {
				return nil, err
			}
		}
		return things, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("option %s: %w", option, err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		if err := add(fmt.Sprintf("line %d", n), lines.Bytes()); err != nil {
			return nil, err
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("option %s: %s: %w", option, path, err)
	}
	if len(things) == 0 {
		return nil, fmt.Errorf("option %s: %s holds no %s", option, path, thing)
	}
	return things, nil
}

// Files keeps what has been read from files, for all environments that read the same with the same settings (Key).
// What has been read is shared: nobody may change it. A file that has changed is read again. It may be used by many
// goroutines.
type Files[Key comparable, Value any] struct {
	mu    sync.Mutex
	known map[Key]fileValue[Value]
}

type fileValue[Value any] struct {
	state string // of the files, when they were read
	value Value
}

// Get gives what read makes of the files at paths. Empty paths are no files.
func (f *Files[Key, Value]) Get(key Key, paths []string, read func() (Value, error)) (value Value, err error) {
	var state strings.Builder
	for _, path := range paths {
		if path == "" {
			continue
		}
		if info, err := os.Stat(path); err == nil { // else read says what is wrong
			fmt.Fprintln(&state, info.ModTime().UnixNano(), info.Size())
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.known[key]; ok && known.state == state.String() {
		return known.value, nil
	}
	if value, err = read(); err != nil {
		return value, err
	}
	if f.known == nil {
		f.known = map[Key]fileValue[Value]{}
	}
	f.known[key] = fileValue[Value]{state.String(), value}
	return value, nil
}
