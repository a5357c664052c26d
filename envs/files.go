package envs

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"sync"

	"gyre/internal/dataset"
)

// ReadRows reads the file (JSON, JSON Lines or Parquet) that an option names, or the embedded one of that name where
// the option is empty, and makes something of every row. It does so once for all environments, which may not change
// it. Errors name the option, the file and the row, counted from 1.
func ReadRows[Row, Thing any](option, path string, own fs.FS, name string,
	take func(Row) (Thing, error)) ([]Thing, error) {
	key := [3]any{path, name, reflect.TypeFor[Thing]()}
	return Shared(key, []string{path}, func() ([]Thing, error) {
		table, err := dataset.ReadOr(path, own, name)
		if err != nil {
			return nil, fmt.Errorf("option %s: %w", option, err)
		}
		things := make([]Thing, len(table.Rows))
		for i, columns := range table.Rows {
			row, err := decodeRow[Row](columns)
			if err == nil {
				things[i], err = take(row)
			}
			if err != nil {
				return nil, fmt.Errorf("option %s: %s, row %d: %w", option, table.Path, i+1, err)
			}
		}
		return things, nil
	})
}

func decodeRow[Row any](columns dataset.Columns) (row Row, err error) {
	text, err := json.Marshal(columns)
	if err != nil {
		return row, err
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber() // as written
	err = decoder.Decode(&row)
	return row, err
}

// shared is what environments of the whole process share, under mu.
var shared = struct {
	mu    sync.Mutex
	known map[any]sharedValue
}{known: map[any]sharedValue{}}

type sharedValue struct {
	state string // of the files, when they were read
	value any
}

// Shared gives what build makes of the files at paths (empty ones are no files). Environments that ask with the same
// key share it, so nobody may change it; keys have a type or a text of their own in each package. When a file has
// changed it is built again. It may be used by many goroutines, but not by build.
func Shared[Key comparable, Value any](key Key, paths []string, build func() (Value, error)) (Value, error) {
	var state strings.Builder
	for _, path := range paths {
		if path == "" {
			continue
		}
		if info, err := os.Stat(path); err == nil { // else build says what is wrong
			fmt.Fprintln(&state, info.ModTime().UnixNano(), info.Size())
		}
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if known, ok := shared.known[key]; ok && known.state == state.String() {
		if value, is := known.value.(Value); is {
			return value, nil
		}
	}
	value, err := build()
	if err == nil {
		shared.known[key] = sharedValue{state.String(), value}
	}
	return value, err
}
