package envs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"sync"

	"gyre/internal/dataset"
)

// rows are what ReadRows has read, by the file and the type of what was made of it.
var rows Files[rowsKey, any]

type rowsKey struct {
	path, name string
	made       reflect.Type
}

// ReadRows reads the file (JSON, JSON Lines or Parquet) that an option names, or the embedded one of that name where
// the option is empty, and makes something of every row. It does so once for all environments, which may not change
// it. Errors name the option, the file and the row, counted from 1.
func ReadRows[Row, Thing any](option, path string, own fs.FS, name string,
	take func(Row) (Thing, error)) ([]Thing, error) {
	key := rowsKey{path, name, reflect.TypeFor[Thing]()}
	things, err := rows.Get(key, []string{path}, func() (any, error) {
		table, err := dataset.ReadOr(path, own, name)
		if err != nil {
			return nil, fmt.Errorf("option %s: %w", option, err)
		}
		things := make([]Thing, len(table.Rows))
		for i, columns := range table.Rows {
			var row Row
			text, err := json.Marshal(columns)
			if err == nil {
				decoder := json.NewDecoder(bytes.NewReader(text))
				decoder.UseNumber() // as written
				err = decoder.Decode(&row)
			}
			if err == nil {
				things[i], err = take(row)
			}
			if err != nil {
				return nil, fmt.Errorf("option %s: %s, row %d: %w", option, table.Path, i+1, err)
			}
		}
		return things, nil
	})
	list, _ := things.([]Thing)
	return list, err
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
