// Package dataset reads, prepares and checks files of prompts and answers.
//
// JSON (a list of objects), JSON lines and Parquet are read, whatever their columns are called: the names that
// MATH-500, GSM8K, reasoning-gym and verl's training files use are known, others can be given. Prepared files have
// verl's columns, in the order in which the rldynamic project writes them. Environments play the rows, gyre data
// looks after the files.
package dataset

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/parquet-go/parquet-go"

	"gyre/internal/atomicfile"
)

// Columns is one row as it stands in the file.
type Columns map[string]any

// Table is a file's rows.
type Table struct {
	Path string
	Rows []Columns
	Hash string // SHA-256 of the file

	schema *parquet.Schema // of a Parquet file
}

// Formats are the endings of the files that Read knows.
var Formats = []string{".json", ".jsonl", ".parquet"}

// Read reads a JSON, JSONL or Parquet file; the ending says which.
func Read(path string) (*Table, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(path, content)
}

// ReadOr reads the file at path or, where path is empty, one that a program brings with it.
func ReadOr(path string, own fs.FS, name string) (*Table, error) {
	if path != "" {
		return Read(path)
	}
	content, err := fs.ReadFile(own, name)
	if err != nil {
		return nil, err
	}
	return parse(name, content)
}

func parse(path string, content []byte) (t *Table, err error) {
	t = &Table{Path: path, Hash: fmt.Sprintf("%x", sha256.Sum256(content))}
	switch ending := strings.ToLower(filepath.Ext(path)); ending {
	case ".json":
		err = decode(content, &t.Rows)
		if err != nil {
			err = fmt.Errorf("expected a list of objects: %w", err)
		}
	case ".jsonl":
		t.Rows, err = readLines(content)
	case ".parquet":
		t.Rows, t.schema, err = readParquet(content)
	default:
		err = fmt.Errorf("the ending is %q, expected one of %s", ending, strings.Join(Formats, ", "))
	}
	if err == nil && len(t.Rows) == 0 {
		err = errors.New("it has no rows")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// decode keeps numbers as they are written.
func decode(content []byte, to any) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if err := decoder.Decode(to); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the first JSON value")
	}
	return nil
}

func readLines(content []byte) ([]Columns, error) {
	var rows []Columns
	lines := bufio.NewReader(bytes.NewReader(content))
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var row Columns
			if bad := decode(line, &row); bad != nil {
				return nil, fmt.Errorf("line %d: expected an object: %w", n, bad)
			}
			rows = append(rows, row)
		}
		if err != nil {
			return rows, nil
		}
	}
}

// readParquet survives files that the library stumbles over.
func readParquet(content []byte) (rows []Columns, schema *parquet.Schema, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("not a Parquet file that can be read: %v", p)
		}
	}()
	file, err := parquet.OpenFile(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, nil, err
	}
	reader := parquet.NewGenericReader[any](file, file.Schema())
	defer reader.Close()
	batch := make([]any, 256)
	for {
		n, err := reader.Read(batch)
		for _, row := range batch[:n] {
			columns, ok := row.(map[string]any)
			if !ok {
				return nil, nil, fmt.Errorf("row %d: expected columns, got %T", len(rows), row)
			}
			rows = append(rows, columns)
		}
		clear(batch)
		if errors.Is(err, io.EOF) {
			return rows, file.Schema(), nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("after row %d: %w", len(rows), err)
		}
	}
}

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
