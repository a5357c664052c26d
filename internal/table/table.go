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
	"slices"

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
	// Low and High name the columns of CSV and JSON that hold the intervals' ends; people read those beside the value.
	Low, High string
	Hidden    bool // from people
}

// Cell is a value with the text that people read in its place.
type Cell struct {
	Value     any
	Text      string
	Low, High any // ends of its interval
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
	return Cell{Value: share, Text: fmt.Sprintf("%.1f %%", 100*share)}
}

// PercentBetween is a share with its interval, which is left out where it is NaN.
func PercentBetween(share statistics.Estimate) Cell {
	c := Between(share)
	if c.Text = Percent(share.Value).Text; c.Text != "" && !math.IsNaN(share.Low) {
		c.Text += fmt.Sprintf(" [%.1f, %.1f]", 100*share.Low, 100*share.High)
	}
	return c
}

// Between is an estimate with its interval.
func Between(e statistics.Estimate) Cell { return Cell{Value: e.Value, Low: e.Low, High: e.High} }

// Share is a share of n independent trials, which people read in percent with its 95 % interval (Wilson's); without an
// interval where n is 0.
func Share(share float64, n int) Cell {
	if n == 0 || math.IsNaN(share) {
		return Percent(share)
	}
	return PercentBetween(statistics.Wilson(share, n, 0.95))
}

// Values are the numbers of a column with the ends of their intervals; NaN where there is none.
func (t *Table) Values(name string) (values, low, high []float64) {
	at := t.column(name)
	for _, row := range t.Rows {
		cell, _ := row[at].(Cell)
		values, low, high = append(values, number(row[at])), append(low, number(cell.Low)),
			append(high, number(cell.High))
	}
	return values, low, high
}

// column is the place of a column that the table has.
func (t *Table) column(name string) int {
	return slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == name })
}

func number(cell any) float64 {
	switch v := value(cell).(type) {
	case float64:
		return v
	case int:
		return float64(v)
	}
	return math.NaN()
}

// Where is the table's rows in which a column has a value.
func (t *Table) Where(name string, is any) *Table {
	at := t.column(name)
	return &Table{t.Columns, slices.DeleteFunc(slices.Clone(t.Rows), func(row []any) bool { return row[at] != is })}
}

// Turned is the table with a row for each column, for people: what one result holds, from the top down.
func (t *Table) Turned() *Table {
	out := New("")
	for i, c := range t.Columns[1:] {
		line := []any{cmp.Or(c.Head, c.Name)}
		for _, row := range t.Rows {
			line = append(line, c.text(row[1+i]))
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
		if v.Text == "" && !unknown(v.Low) {
			return fmt.Sprintf("%s [%s, %s]", c.text(v.Value), c.text(v.Low), c.text(v.High))
		}
		return cmp.Or(v.Text, c.text(v.Value))
	case float64:
		return fmt.Sprintf(cmp.Or(c.Format, "%.4g"), v)
	}
	return fmt.Sprint(cell)
}

// isText tells whether a column holds text: it is aligned to the left and its lines may be broken.
func (t *Table) isText(column int) bool {
	return slices.ContainsFunc(t.Rows, func(row []any) bool {
		text, ok := value(row[column]).(string)
		return ok && text != ""
	})
}

// flat is the table for programs: values under names, with the ends of intervals in columns of their own.
func (t *Table) flat() (names []string, rows [][]any) {
	for _, c := range t.Columns {
		if names = append(names, c.Name); c.Low != "" {
			names = append(names, c.Low, c.High)
		}
	}
	for _, cells := range t.Rows {
		row := make([]any, 0, len(names))
		for i, c := range t.Columns {
			if row = append(row, value(cells[i])); c.Low != "" {
				cell, _ := cells[i].(Cell)
				row = append(row, value(cell.Low), value(cell.High))
			}
		}
		rows = append(rows, row)
	}
	return names, rows
}

// WriteCSV writes a line of names and a line per row; a cell that is not known is empty.
func (t *Table) WriteCSV(w io.Writer) error {
	names, rows := t.flat()
	lines := [][]string{names}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, v := range row {
			if v != nil {
				cells[i] = fmt.Sprint(v)
			}
		}
		lines = append(lines, cells)
	}
	return csv.NewWriter(w).WriteAll(lines)
}

// WriteJSON writes an object per line, its keys in the order of the columns; a cell that is not known is null.
func (t *Table) WriteJSON(w io.Writer) error {
	objects, err := t.objects()
	for _, object := range objects {
		if _, err := fmt.Fprintf(w, "%s\n", object); err != nil {
			return err
		}
	}
	return err
}

// WriteJSONList writes the objects of tables as one list.
func WriteJSONList(w io.Writer, tables ...*Table) error {
	list := []json.RawMessage{}
	for _, t := range tables {
		objects, err := t.objects()
		if err != nil {
			return err
		}
		list = append(list, objects...)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(list)
}

func (t *Table) objects() (list []json.RawMessage, err error) {
	names, rows := t.flat()
	for _, row := range rows {
		line := []byte{'{'}
		for i, v := range row {
			name, _ := json.Marshal(names[i]) // a string
			encoded, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", names[i], err)
			}
			if i > 0 {
				line = append(line, ',')
			}
			line = append(append(append(line, name...), ':'), encoded...)
		}
		list = append(list, append(line, '}'))
	}
	return list, nil
}

// HTML is the table as an element of a page; "" without rows.
func (t *Table) HTML() template.HTML {
	if len(t.Rows) == 0 {
		return ""
	}
	return template.HTML(t.writer(t.shown(), nil).RenderHTML()) // the library escapes what the cells hold
}

// Markdown is the table for a document.
func (t *Table) Markdown() string { return t.writer(t.shown(), nil).RenderMarkdown() + "\n" }

// shown are the columns for people.
func (t *Table) shown() (columns []int) {
	for i, c := range t.Columns {
		if !c.Hidden {
			columns = append(columns, i)
		}
	}
	return columns
}
