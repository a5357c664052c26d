package grid

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Pos is a zero-based cell.
type Pos struct{ Row, Col int }

// Add moves a position by d.
func (p Pos) Add(d Pos) Pos { return Pos{p.Row + d.Row, p.Col + d.Col} }

// Sub is the way from d to p.
func (p Pos) Sub(d Pos) Pos { return Pos{p.Row - d.Row, p.Col - d.Col} }

// Distance is the Manhattan distance.
func (p Pos) Distance(q Pos) int { return abs(p.Row-q.Row) + abs(p.Col-q.Col) }

func abs(x int) int { return max(x, -x) }

// Unit steps.
var (
	Up    = Pos{-1, 0}
	Down  = Pos{1, 0}
	Left  = Pos{0, -1}
	Right = Pos{0, 1}
)

// CheckActions says whether option actions holds a name for each direction: none of them blank or twice.
func CheckActions(names, order []string) error {
	for i, name := range names {
		same := func(other string) bool { return strings.EqualFold(other, name) }
		if strings.TrimSpace(name) != name || name == "" || slices.ContainsFunc(names[:i], same) ||
			len(names) != len(order) {
			names = nil
			break
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("option actions: expected %d different names, for %s", len(order), strings.Join(order, ", "))
	}
	return nil
}

// Objects is one line of the coordinate format, one group of the cells format and a mark of the surroundings
// format. Without cells it is left out, without a Label by the first, without a Mark by the others. The last group
// is the ground that the others lie on.
type Objects struct {
	Label string
	Mark  byte
	Role  Role
	At    []Pos
}

// Role is what a group of objects is to the surroundings format.
type Role int

const (
	Scenery Role = iota
	Actor        // its surroundings are shown; the first in the order of the cells format is the player
	Aim          // the way to it is shown
)

// names are those of the cells format, one for each cell row by row. Capitals come first: no word of a tokenizer's
// joins two of them.
const names = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdefghijklmnopqrstuvwxyz"

// CheckSize says whether the format has a name for every cell of a board, or a letter for every way on it.
func CheckSize(format string, rows, cols int) error {
	switch {
	case format == "surroundings" && max(rows, cols) > farthest:
		return fmt.Errorf("option observation: format surroundings has letters for boards of up to %d x %d cells, "+
			"the board has %d x %d",
			farthest, farthest, rows, cols)
	case format == "cells" && rows*cols > len(names):
		return fmt.Errorf("option observation: format cells has names for %d cells, the board has %d x %d", len(names),
			rows, cols)
	}
	return nil
}

// Look is how boards are shown.
type Look struct {
	Format         string // grid, coord, grid_coord, cells or surroundings
	Glyphs         Glyphs
	Separator      string // between the cells of a row
	View           int    // cells on each side of an actor that the surroundings format shows
	Blank, Outside byte   // its marks of a cell without objects and of what lies beyond the board
}

// Board is the same look as a grid of glyphs, which people read.
func (l Look) Board() Look { return Look{Format: "grid", Glyphs: l.Glyphs, Separator: l.Separator} }

// Render writes an observation. glyph gives the index of the glyph that shows a cell, objects what the coordinate
// formats list; it is asked by them only.
func (l Look) Render(rows, cols int, glyph func(cell int) int, objects func() []Objects) string {
	text := make([]byte, 0, 64+rows*(cols*(2+len(l.Separator))+1))
	if l.Format == "cells" {
		return string(appendCells(text, cols, objects()))
	}
	if l.Format == "surroundings" {
		return string(l.appendSurroundings(text, rows, cols, objects()))
	}
	if l.Format != "grid" {
		if l.Format == "grid_coord" {
			text = append(text, "Coordinates: \n"...)
		}
		text = fmt.Appendf(text, "Board size: %d rows x %d cols (zero-indexed).", rows, cols)
		for _, o := range objects() {
			for i, p := range o.At {
				if o.Label == "" {
					break
				}
				if i == 0 {
					text = append(text, "\n"+o.Label+": "...)
				} else {
					text = append(text, ", "...)
				}
				text = append(text, '(')
				text = strconv.AppendInt(text, int64(p.Row), 10)
				text = append(text, ", "...)
				text = strconv.AppendInt(text, int64(p.Col), 10)
				text = append(text, ')')
			}
		}
		if l.Format == "coord" {
			return string(text)
		}
		text = append(text, "\nGrid Map: \n"...)
	}
	for i := range rows * cols {
		switch {
		case i%cols > 0:
			text = append(text, l.Separator...)
		case i > 0:
			text = append(text, '\n')
		}
		text = utf8.AppendRune(text, l.Glyphs[glyph(i)])
	}
	return string(text)
}

// appendCells writes each group as its mark and the names of its cells. The last group comes first: it is the
// longest, and what moves is at the same distance from the end of every observation.
func appendCells(text []byte, cols int, groups []Objects) []byte {
	for _, group := range slices.Backward(groups) {
		if group.Mark == 0 || len(group.At) == 0 {
			continue
		}
		if len(text) > 0 {
			text = append(text, ' ')
		}
		text = append(text, group.Mark)
		for _, p := range group.At {
			text = append(text, names[p.Row*cols+p.Col])
		}
	}
	return text
}

// Glyphs is the character set of a game, one per meaning.
type Glyphs []rune

// ParseGlyphs reads the option glyphs: one distinct visible character per meaning, in the order of meanings.
func ParseGlyphs(text string, meanings []string) (Glyphs, error) {
	glyphs := Glyphs(text)
	if !utf8.ValidString(text) || len(glyphs) != len(meanings) {
		return nil, fmt.Errorf("option glyphs: expected %d characters (%s), got %q", len(meanings),
			strings.Join(meanings, ", "), text)
	}
	for i, g := range glyphs {
		if g <= ' ' || slices.Contains(glyphs[:i], g) {
			return nil, fmt.Errorf("option glyphs: expected distinct visible characters, got %q", text)
		}
	}
	return glyphs, nil
}

// Legend explains the glyphs: "#: wall, _: floor, …".
func (g Glyphs) Legend(meanings []string) string {
	items := make([]string, len(g))
	for i, glyph := range g {
		items[i] = fmt.Sprintf("%c: %s", glyph, meanings[i])
	}
	return strings.Join(items, ", ")
}

// Explain says how an observation is read; meanings are those of the glyphs, marks says what those of the cells and
// surroundings formats stand for, rest what a cell without any is.
func (l Look) Explain(rows, cols int, meanings []string, marks, rest string) string {
	coordinates := fmt.Sprintf("Positions are (row, column) pairs counted from zero: (0, 0) is the top left corner, "+
		"(%d, %d) the bottom right one; the row grows downwards.", rows-1, cols-1)
	symbols := "The board is drawn with one symbol per cell. Symbols: " + l.Glyphs.Legend(meanings)
	switch l.Format {
	case "coord":
		return coordinates
	case "grid_coord":
		return coordinates + "\n" + symbols
	case "cells":
		return fmt.Sprintf("The %d x %d cells of the board are named row by row: %s. A mark stands before the cells "+
			"that it says something about. Marks: %s; cells without a mark are %s", rows, cols, names[:rows*cols],
			marks, rest)
	case "surroundings":
		return l.explainSurroundings(marks, rest)
	default:
		return symbols
	}
}
