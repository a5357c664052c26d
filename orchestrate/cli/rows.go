package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"gyre/internal/table"
)

// openInput gives the rows' source.
func openInput(c *cli.Context) (io.ReadCloser, string, error) {
	path := c.String("input")
	if path == "" {
		return io.NopCloser(c.App.Reader), "stdin", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, "", Usagef("--input: %w", err)
	}
	return f, path, nil
}

// eachRow answers every row of the input with one line of output, as it comes. Blank lines are skipped.
func eachRow(c *cli.Context, answer func(line []byte) (any, error)) error {
	input, source, err := openInput(c)
	if err != nil {
		return err
	}
	defer input.Close()
	out := bufio.NewWriter(c.App.Writer)
	results, rows := lines(out), bufio.NewReader(input)
	for n := 1; ; n++ {
		if err := c.Context.Err(); err != nil {
			return errors.Join(out.Flush(), err)
		}
		line, readErr := rows.ReadBytes('\n')
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			return errors.Join(out.Flush(), fmt.Errorf("reading %s: %w", source, readErr))
		}
		if len(bytes.TrimSpace(line)) > 0 {
			result, err := answer(line)
			if err != nil {
				return errors.Join(out.Flush(), Usagef("%s line %d: %w", source, n, err))
			}
			if err := results.Encode(result); err != nil {
				return fmt.Errorf("writing results: %w", err)
			}
		}
		if readErr != nil {
			return out.Flush()
		}
		if rows.Buffered() == 0 { // somebody may be waiting for the answer
			if err := out.Flush(); err != nil {
				return fmt.Errorf("writing results: %w", err)
			}
		}
	}
}

// lines writes one JSON value per line.
func lines(w io.Writer) *json.Encoder {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	return out
}

// show prints a table: for people, or as JSON lines with --json.
func show(c *cli.Context, t *table.Table) error {
	if c.Bool("json") {
		return t.WriteJSON(c.App.Writer)
	}
	return t.Write(c.App.Writer)
}
