package envs

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"sync"

	"gyre/internal/dataset"
	"gyre/internal/quote"
)

// ReadRows reads the file (JSON, JSON Lines or Parquet) that an option names, or the embedded one of that name where
// the option is empty, and makes something of every row. It does so once for all environments, which may not change
// it. Errors name the option, the file and the row, counted from 1.
func ReadRows[Row, Thing any](option, path string, own fs.FS, name string,
	take func(Row) (Thing, error)) ([]Thing, error) {
	key := [3]any{FileKey(path), name, reflect.TypeFor[Thing]()}
	return Shared(key, func() ([]Thing, error) {
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
				return nil, fmt.Errorf("option %s: %s, %s: %w", option, table.Path, table.Place(i), err)
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
	return row, quote.JSON(err)
}

// shared is what environments of the whole process share, by key.
var shared = struct {
	mu    sync.Mutex // guards known, and is held while a value is built: others wait for it instead of building theirs
	known map[any]any
}{known: map[any]any{}}

// FileKey is a key of Shared for the file of that name: a relative one is another file in another working directory. ""
// stays "".
func FileKey(path string) string {
	if absolute, err := filepath.Abs(path); err == nil && path != "" {
		return absolute
	}
	return path
}

// Shared gives what build makes, once for all environments that ask with the same key. Nobody may change it. Keys have
// a type or a text of their own in each package. It may be used by many goroutines, but not by build.
func Shared[Key comparable, Value any](key Key, build func() (Value, error)) (Value, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if value, ok := shared.known[key].(Value); ok {
		return value, nil
	}
	value, err := build()
	if err == nil {
		shared.known[key] = value
	}
	return value, err
}
