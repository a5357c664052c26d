// Package table holds results as rows under named columns, and writes them for a terminal, for a page, and as CSV or
// JSON for programs.
package table

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"

	"gyre/internal/statistics"
)

// Table is rows of cells under columns. A cell is nil or NaN (not known), a number, a string, or a Cell that has a form
// of its own for people.
type Table struct {
	Columns []Column
	Rows    [][]any
}

// Column names the cells below it.
type Column struct {
	Name   string // in CSV and JSON
	Head   string // for people; Name where it is empty
	Format string // of numbers, for people, as in fmt; "%.4g" where it is empty
}

// Cell is a value with the text that people read in its place.
type Cell struct {
	Value any
	Text  string
}

// New is a table of columns that have the same names for people and for programs.
func New(names ...string) *Table {
	t := &Table{}
	for _, name := range names {
		t.Columns = append(t.Columns, Column{Name: name})
	}
	return t
}

// Add appends a row; cells that it lacks are not known.
func (t *Table) Add(cells ...any) {
	for len(cells) < len(t.Columns) {
		cells = append(cells, nil)
	}
	t.Rows = append(t.Rows, cells)
}

// Percent is a share that people read in percent.
func Percent(share float64) Cell {
	if math.IsNaN(share) {
		return Cell{Value: share}
	}
	return Cell{share, fmt.Sprintf("%.1f %%", 100*share)}
}

// Share is a share of n independent trials, which people read in percent with its 95 % interval (Wilson's); without an
// interval where n is 0.
func Share(share float64, n int) Cell {
	c := Percent(share)
	if n > 0 && !math.IsNaN(share) {
		low, high := statistics.Wilson(share, n, 0.95)
		c.Text += fmt.Sprintf(" [%.1f, %.1f]", 100*low, 100*high)
	}
	return c
}

// Turned is the table with a row for each column, for people: what one result holds, from the top down.
func (t *Table) Turned() *Table {
	out := New("")
	for i, c := range t.Columns {
		if i == 0 {
			continue
		}
		line := []any{cmp.Or(c.Head, c.Name)}
		for _, row := range t.Rows {
			line = append(line, c.text(row[i]))
		}
		out.Add(line...)
	}
	for _, row := range t.Rows {
		out.Columns = append(out.Columns, Column{Name: t.Columns[0].text(row[0])})
	}
	return out
}

// unknown tells whether a cell has no value.
func unknown(cell any) bool {
	switch v := cell.(type) {
	case nil:
		return true
	case float64:
		return math.IsNaN(v)
	case Cell:
		return v.Text == "" && unknown(v.Value)
	}
	return false
}

// value is what programs get of a cell; nil where it is not known.
func value(cell any) any {
	if unknown(cell) {
		return nil
	}
	if c, ok := cell.(Cell); ok {
		return value(c.Value)
	}
	return cell
}

// text is what people get of a cell.
func (c Column) text(cell any) string {
	if unknown(cell) {
		return "-"
	}
	switch v := cell.(type) {
	case Cell:
		return cmp.Or(v.Text, c.text(v.Value))
	case float64:
		return fmt.Sprintf(cmp.Or(c.Format, "%.4g"), v)
	}
	return fmt.Sprint(cell)
}

// isText tells whether a column holds text: it is aligned to the left and its lines may be broken.
func (t *Table) isText(column int) bool {
	for _, row := range t.Rows {
		if text, ok := value(row[column]).(string); ok && text != "" {
			return true
		}
	}
	return false
}

// WriteCSV writes a line of names and a line per row; a cell that is not known is empty.
func (t *Table) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	lines := [][]string{names}
	for _, row := range t.Rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if v := value(cell); v != nil {
				cells[i] = fmt.Sprint(v)
			}
		}
		lines = append(lines, cells)
	}
	return out.WriteAll(lines)
}

// WriteJSON writes an object per line, its keys in the order of the columns; a cell that is not known is null.
func (t *Table) WriteJSON(w io.Writer) error {
	for _, row := range t.Rows {
		line, err := t.object(row)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s\n", line); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSONArray writes the objects of WriteJSON as one list.
func (t *Table) WriteJSONArray(w io.Writer) error {
	list := make([]json.RawMessage, len(t.Rows))
	for i, row := range t.Rows {
		line, err := t.object(row)
		if err != nil {
			return err
		}
		list[i] = line
	}
	return json.NewEncoder(w).Encode(list)
}

func (t *Table) object(row []any) ([]byte, error) {
	line := []byte{'{'}
	for i, cell := range row {
		name, err := json.Marshal(t.Columns[i].Name)
		if err != nil {
			return nil, err
		}
		encoded, err := json.Marshal(value(cell))
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", t.Columns[i].Name, err)
		}
		if i > 0 {
			line = append(line, ',')
		}
		line = append(append(append(line, name...), ':'), encoded...)
	}
	return append(line, '}'), nil
}

// HTML is the table as an element of a page.
func (t *Table) HTML() template.HTML {
	columns := make([]int, len(t.Columns))
	for i := range columns {
		columns[i] = i
	}
	// The library escapes what the cells hold.
	return template.HTML(t.writer(columns, nil).RenderHTML())
}
