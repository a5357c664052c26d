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

// readRows hands over every row of the input as it comes, with its place for messages. Blank lines are skipped.
func readRows(c *cli.Context, take func(line []byte, at string) error) error {
	input, source := c.App.Reader, "stdin"
	if path := c.String("input"); path != "" {
		f, err := os.Open(path)
		if err != nil {
			return Usagef("--input: %w", err)
		}
		defer f.Close()
		input, source = f, path
	}
	rows := bufio.NewReader(input)
	for n := 1; ; n++ {
		if err := c.Context.Err(); err != nil {
			return err
		}
		line, ended := rows.ReadBytes('\n')
		if ended != nil && !errors.Is(ended, io.EOF) {
			return fmt.Errorf("reading %s: %w", source, ended)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			if err := take(line, fmt.Sprintf("%s line %d", source, n)); err != nil {
				return err
			}
		}
		if ended != nil {
			return nil
		}
	}
}

// eachRow answers every row of the input with one line of output.
func eachRow(c *cli.Context, answer func(line []byte) (any, error)) error {
	results := lines(c.App.Writer)
	return readRows(c, func(line []byte, at string) error {
		result, err := answer(line)
		if err != nil {
			return Usagef("%s: %w", at, err)
		}
		return write(results, result)
	})
}

// lines writes one JSON value per line.
func lines(w io.Writer) *json.Encoder {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	return out
}

func write(out *json.Encoder, value any) error {
	if err := out.Encode(value); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}

// printJSON prints one value for programs, indented.
func printJSON(c *cli.Context, value any) error {
	out := lines(c.App.Writer)
	out.SetIndent("", "  ")
	return write(out, value)
}

// show prints a table: for people, or as JSON lines with --json.
func show(c *cli.Context, t *table.Table) error {
	if c.Bool("json") {
		return t.WriteJSON(c.App.Writer)
	}
	return t.Write(c.App.Writer)
}

// excerpt shows a value in a message.
func excerpt(value []byte) string {
	const limit = 60
	if len(value) > limit {
		return string(value[:limit]) + "…"
	}
	return string(value)
}
