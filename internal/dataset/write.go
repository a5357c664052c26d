package dataset

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/parquet-go/parquet-go"

	"gyre/internal/atomicfile"
)

// WriteRows writes some rows of a table in the table's own format.
func (t *Table) WriteRows(path string, indices []int) error {
	rows := make([]Columns, len(indices))
	for i, index := range indices {
		rows[i] = t.Rows[index]
	}
	if t.schema == nil {
		return Write(path, rows)
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		out := parquet.NewGenericWriter[any](w, t.schema, parquet.Compression(&parquet.Snappy))
		for _, row := range rows {
			if _, err := out.Write([]any{map[string]any(row)}); err != nil {
				return err
			}
		}
		return out.Close()
	})
}

// Write writes rows as the file's ending says: .parquet, .jsonl or .json.
func Write[T any](path string, rows []T) error {
	var content func(io.Writer) error
	switch ending := strings.ToLower(filepath.Ext(path)); ending {
	case ".parquet":
		content = func(w io.Writer) error { return parquet.Write(w, rows, parquet.Compression(&parquet.Snappy)) }
	case ".jsonl":
		content = func(w io.Writer) error {
			out := bufio.NewWriter(w)
			lines := json.NewEncoder(out)
			lines.SetEscapeHTML(false)
			for _, row := range rows {
				if err := lines.Encode(row); err != nil {
					return err
				}
			}
			return out.Flush()
		}
	case ".json":
		content = func(w io.Writer) error {
			out := json.NewEncoder(w)
			out.SetEscapeHTML(false)
			out.SetIndent("", "  ")
			return out.Encode(rows)
		}
	default:
		return fmt.Errorf("%s: the ending is %q, expected one of %s", path, ending, strings.Join(Formats, ", "))
	}
	return atomicfile.Write(path, content)
}
