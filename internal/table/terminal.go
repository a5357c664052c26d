package table

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// UnknownWidth is the number of columns of a terminal that does not tell.
const UnknownWidth = 80

// Width is the number of columns of the terminal behind w; else of $COLUMNS; else UnknownWidth.
func Width(w io.Writer) int { return widthOr(w, UnknownWidth) }

// Room is the number of columns that a table may take: Width, but what it needs where no terminal shows it, so that
// programs find a row in one line and its words whole.
func Room(w io.Writer) int { return widthOr(w, math.MaxInt32) }

func widthOr(w io.Writer, unknown int) int {
	if file, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		} else if term.IsTerminal(int(file.Fd())) {
			unknown = UnknownWidth
		}
	}
	if width, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && width > 0 {
		return width
	}
	return unknown
}

const (
	gap         = 2  // spaces between columns
	longestWord = 24 // longer ones are broken where a column has to become narrower
)

// Write lays the table out for the terminal behind w; without one each row is a line. Where it is too wide, columns of
// text are broken into several lines; where that is not enough, further columns follow below, each time after the first
// one.
func (t *Table) Write(w io.Writer) error {
	_, err := io.WriteString(w, t.Text(Room(w)))
	return err
}

// Text is the table in lines of at most width characters, as far as its columns can be broken.
func (t *Table) Text(width int) string {
	natural, least := t.widths()
	var out strings.Builder
	columns := t.shown()
	for from := 0; from < len(columns); {
		block, used := []int{columns[from]}, least[columns[from]]
		if from > 0 {
			block, used = []int{columns[0], columns[from]}, least[columns[0]]+gap+used
			out.WriteByte('\n')
		}
		for from++; from < len(columns) && used+gap+least[columns[from]] <= width; from++ {
			block, used = append(block, columns[from]), used+gap+least[columns[from]]
		}
		rendered := t.writer(block, shrink(block, natural, least, width)).Render()
		for line := range strings.Lines(rendered) {
			fmt.Fprintln(&out, strings.TrimRight(line, " \n"))
		}
	}
	return out.String()
}

// widths are those of the columns as they are, and the least that they can be broken to.
func (t *Table) widths() (natural, least []int) {
	for i, c := range t.Columns {
		head := text.StringWidthWithoutEscSequences(cmp.Or(c.Head, c.Name))
		width := head
		for _, row := range t.Rows {
			width = max(width, text.LongestLineLen(c.text(row[i])))
		}
		natural, least = append(natural, width), append(least, width)
		if t.isText(i) {
			word := 0
			for _, row := range t.Rows {
				for _, w := range strings.Fields(c.text(row[i])) {
					word = max(word, text.StringWidthWithoutEscSequences(w))
				}
			}
			least[i] = min(width, max(min(word, longestWord), head))
		}
	}
	return natural, least
}

// shrink takes from the widest of the columns that can be broken until all of them fit.
func shrink(block, natural, least []int, width int) map[int]int {
	widths, used := map[int]int{}, -gap
	for _, i := range block {
		widths[i] = natural[i]
		used += gap + natural[i]
	}
	for ; used > width; used-- {
		widest := -1
		for _, i := range block {
			if widths[i] > least[i] && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

// writer gives columns of the table to the library that draws it, broken to widths where there are any.
func (t *Table) writer(columns []int, widths map[int]int) table.Writer {
	out := table.NewWriter()
	style := table.StyleDefault
	style.Box.PaddingLeft, style.Box.PaddingRight, style.Box.MiddleVertical = "", "", strings.Repeat(" ", gap)
	style.Options = table.Options{SeparateColumns: true}
	style.Format = table.FormatOptions{Header: text.FormatDefault, Row: text.FormatDefault}
	style.HTML = table.HTMLOptions{EscapeText: true, Newline: "<br>"}
	out.SetStyle(style)
	row := func(cell func(column int) string) (cells table.Row) {
		for _, i := range columns {
			cells = append(cells, cell(i))
		}
		return cells
	}
	var configs []table.ColumnConfig
	for at, i := range columns {
		config := table.ColumnConfig{Number: at + 1, Align: text.AlignRight, AlignHeader: text.AlignRight,
			WidthMax: widths[i], WidthMaxEnforcer: text.WrapSoft}
		if i == 0 || t.isText(i) {
			config.Align, config.AlignHeader = text.AlignLeft, text.AlignLeft
		}
		configs = append(configs, config)
	}
	out.SetColumnConfigs(configs)
	out.AppendHeader(row(func(i int) string { return cmp.Or(t.Columns[i].Head, t.Columns[i].Name) }))
	for _, cells := range t.Rows {
		out.AppendRow(row(func(i int) string { return t.Columns[i].text(cells[i]) }))
	}
	return out
}
