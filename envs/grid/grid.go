// Package grid holds what the board games share: directions, glyph sets and the text formats of an observation.
//
//	grid          one character per cell, one line per row
//	coord         the board's size, then one line per kind of object with the zero-based (row, column) of each
//	grid_coord    both, coordinates first
//	surroundings  the cells around player and boxes, and the ways between player, boxes and targets
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
func (p Pos) Distance(q Pos) int {
	return max(p.Row-q.Row, q.Row-p.Row) + max(p.Col-q.Col, q.Col-p.Col)
}

// Unit steps.
var (
	Up    = Pos{-1, 0}
	Down  = Pos{1, 0}
	Left  = Pos{0, -1}
	Right = Pos{0, 1}
)

// Size is that of a board, whose cells are counted row by row.
type Size struct{ Rows, Cols int }

// Cells is how many there are.
func (s Size) Cells() int { return s.Rows * s.Cols }

// Index is the place of a cell in that order, At the cell of a place.
func (s Size) Index(p Pos) int { return p.Row*s.Cols + p.Col }
func (s Size) At(i int) Pos    { return Pos{i / s.Cols, i % s.Cols} }

// Inside says whether a position is on the board.
func (s Size) Inside(p Pos) bool { return p.Row >= 0 && p.Row < s.Rows && p.Col >= 0 && p.Col < s.Cols }

// CheckActions says whether option actions holds a name for each direction: none of them blank or twice.
func CheckActions(names, order []string) error {
	wrong := len(names) != len(order)
	for i, name := range names {
		same := func(other string) bool { return strings.EqualFold(other, name) }
		wrong = wrong || strings.TrimSpace(name) != name || name == "" || slices.ContainsFunc(names[:i], same)
	}
	if wrong {
		return fmt.Errorf("option actions: expected %d different names, for %s", len(order), strings.Join(order, ", "))
	}
	return nil
}

// Objects is one line of the coordinate format and a mark of the surroundings format. Without cells it is left out,
// without a Label by the first, without a Mark by the other. The last group is the ground that the others lie on.
type Objects struct {
	Label  string
	Mark   byte
	Role   Role
	Glyphs []int // of the cells where they lie
	At     []Pos // further cells
}

// Role is what a group of objects is to the surroundings format.
type Role int

const (
	Scenery Role = iota
	Actor        // its surroundings are shown; the last is the player
	Aim          // the way to it is shown
)

// CheckSize says whether the format has a letter for every way on a board.
func CheckSize(format string, size Size) error {
	if format == "surroundings" && max(size.Rows, size.Cols) > farthest {
		return fmt.Errorf("option observation: format surroundings has letters for boards of up to %d x %d cells, "+
			"the board has %d x %d", farthest, farthest, size.Rows, size.Cols)
	}
	return nil
}

// Look is how boards are shown.
type Look struct {
	Format         string // grid, coord, grid_coord or surroundings
	Glyphs         Glyphs
	Separator      string // between the cells of a row
	View           int    // cells on each side of an actor that the surroundings format shows
	Blank, Outside byte   // its marks of a cell without objects and of what lies beyond the board
}

// Board is the same look as a grid of glyphs, which people read.
func (l Look) Board() Look { return Look{Format: "grid", Glyphs: l.Glyphs, Separator: l.Separator} }

// Render writes an observation. glyph gives the index of the glyph that shows a cell, objects are what all formats but
// the grid list.
func (l Look) Render(size Size, glyph func(cell int) int, objects []Objects) string {
	text := make([]byte, 0, 64+size.Rows*(size.Cols*(2+len(l.Separator))+1))
	switch l.Format {
	case "surroundings":
		return string(l.appendSurroundings(text, size, place(size, glyph, objects)))
	case "coord":
		return string(appendCoordinates(text, size, place(size, glyph, objects)))
	case "grid_coord":
		text = append(text, "Coordinates: \n"...)
		text = append(appendCoordinates(text, size, place(size, glyph, objects)), "\nGrid Map: \n"...)
	}
	for i := range size.Cells() {
		switch {
		case i%size.Cols > 0:
			text = append(text, l.Separator...)
		case i > 0:
			text = append(text, '\n')
		}
		text = utf8.AppendRune(text, l.Glyphs[glyph(i)])
	}
	return string(text)
}

// place finds the cells of objects.
func place(size Size, glyph func(cell int) int, objects []Objects) []Objects {
	objects = slices.Clone(objects)
	for i := range size.Cells() {
		shown := glyph(i)
		for k := range objects {
			if slices.Contains(objects[k].Glyphs, shown) {
				objects[k].At = append(objects[k].At, size.At(i))
			}
		}
	}
	return objects
}

func appendCoordinates(text []byte, size Size, groups []Objects) []byte {
	text = fmt.Appendf(text, "Board size: %d rows x %d cols (zero-indexed).", size.Rows, size.Cols)
	for _, group := range groups {
		before := "\n" + group.Label + ": ("
		for _, p := range group.At {
			if group.Label == "" {
				break
			}
			text = append(text, before...)
			text = append(strconv.AppendInt(text, int64(p.Row), 10), ", "...)
			text = append(strconv.AppendInt(text, int64(p.Col), 10), ')')
			before = ", ("
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

// Explain says how an observation is read; meanings are those of the glyphs, marks says what those of the surroundings
// format stand for, rest what a cell without any is.
func (l Look) Explain(size Size, meanings []string, marks, rest string) string {
	coordinates := fmt.Sprintf("Positions are (row, column) pairs counted from zero: (0, 0) is the top left corner, "+
		"(%d, %d) the bottom right one; the row grows downwards.", size.Rows-1, size.Cols-1)
	symbols := "The board is drawn with one symbol per cell. Symbols: " + l.Glyphs.Legend(meanings)
	switch l.Format {
	case "coord":
		return coordinates
	case "grid_coord":
		return coordinates + "\n" + symbols
	case "surroundings":
		return l.explainSurroundings(marks, rest)
	default:
		return symbols
	}
}
