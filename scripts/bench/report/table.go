package report

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// table is a Markdown table whose columns are padded, so that it can be read as it is. The first columns are texts, aligned to the
// left, the others numbers, aligned to the right.
type table struct {
	texts  int
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	if len(t.rows) == 0 {
		return ""
	}
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 3)
		}
	}
	var b strings.Builder
	line := func(row []string) {
		for i, width := range widths {
			cell := row[i]
			pad := strings.Repeat(" ", width-utf8.RuneCountInString(cell))
			if i < t.texts {
				cell += pad
			} else {
				cell = pad + cell
			}
			b.WriteString("| " + cell + " ")
		}
		b.WriteString("|\n")
	}
	line(t.header)
	for i, width := range widths {
		if i < t.texts {
			b.WriteString("|" + strings.Repeat("-", width+2))
		} else {
			b.WriteString("|" + strings.Repeat("-", width+1) + ":")
		}
	}
	b.WriteString("|\n")
	for _, row := range t.rows {
		line(row)
	}
	return b.String()
}

// number has three digits that matter, and is empty for what was not measured.
func number(v float64) string {
	switch {
	case math.IsNaN(v) || v == 0:
		return ""
	case math.Abs(v) >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func percent(v float64) string {
	if math.IsNaN(v) || v == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*v)
}

func (s Spread) String() string {
	switch {
	case math.IsNaN(s.Median):
		return ""
	case number(s.Min) == number(s.Max):
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s … %s)", number(s.Median), number(s.Min), number(s.Max))
}
