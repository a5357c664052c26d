package envs

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gyre/internal/dataset"
)

// ReadRows reads the JSON Lines or Parquet file that an option names and makes something of every row. Errors name the option, the file and
// the line or row; thing is what a row holds.
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
