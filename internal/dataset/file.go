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
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"gyre/internal/atomicfile"
	"gyre/internal/quote"
)

// Columns is one row as it stands in the file.
type Columns map[string]any

// Table is a file's rows.
type Table struct {
	Path string
	Rows []Columns
	Hash string // SHA-256 of the file

	lines  []int           // of Rows, from 1, in a file of JSON lines
	stored []Columns       // Rows as they are written, of a Parquet file
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
	case ".json", ".jsonl":
		if err = checkEncoding(content); err != nil {
			break
		}
		if ending == ".jsonl" {
			t.Rows, t.lines, err = readLines(content)
		} else if err = decode(content, &t.Rows); err != nil {
			err = fmt.Errorf("not a list of objects: %w", err)
		}
	case ".parquet":
		t.Rows, t.stored, t.schema, err = readParquet(content)
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

// checkEncoding refuses what is not UTF-8: a decoder of JSON would put other characters in its place.
func checkEncoding(content []byte) error {
	const convert = "expected UTF-8 (`iconv -f %s -t UTF-8` converts a file)"
	if bytes.HasPrefix(content, []byte("\xff\xfe")) || bytes.HasPrefix(content, []byte("\xfe\xff")) ||
		bytes.IndexByte(content[:min(len(content), 4)], 0) >= 0 {
		return fmt.Errorf("line 1: it is UTF-16, "+convert, "UTF-16")
	}
	n := 1
	for line := range bytes.Lines(content) {
		if !utf8.Valid(line) {
			at := bytes.IndexFunc(line, func(r rune) bool { return r == utf8.RuneError })
			return fmt.Errorf("line %d: %q is not UTF-8, "+convert, n, line[max(0, at-20):min(len(line), at+20)],
				"WINDOWS-1252")
		}
		n++
	}
	return nil
}

// byteOrderMark may begin a file, or one of several that were joined.
var byteOrderMark = []byte("\ufeff")

// decode keeps numbers as they are written.
func decode(content []byte, to any) error {
	decoder := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(content, byteOrderMark)))
	decoder.UseNumber()
	if err := decoder.Decode(to); err != nil {
		return quote.JSON(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the first JSON value")
	}
	return nil
}

func readLines(content []byte) (rows []Columns, lines []int, err error) {
	var wrong faults
	n := 0
	for line := range bytes.Lines(content) {
		n++
		if len(bytes.TrimSpace(bytes.TrimPrefix(line, byteOrderMark))) == 0 {
			continue
		}
		var row Columns
		if err := decode(line, &row); err != nil {
			wrong.add(fmt.Sprintf("line %d", n), fmt.Errorf("not a JSON object: %w", err))
		}
		rows, lines = append(rows, row), append(lines, n)
	}
	return rows, lines, wrong.err()
}

// WriteRows writes some rows of a table in the table's own format.
func (t *Table) WriteRows(path string, indices []int) error {
	all, rows := t.Rows, make([]Columns, len(indices))
	if t.schema != nil {
		all = t.stored
	}
	for i, index := range indices {
		rows[i] = all[index]
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
