package grid

import (
	"fmt"
	"slices"
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

// Formats are the names of the observation formats.
var Formats = []string{"grid", "coord", "grid_coord"}

// CheckFormat says whether an observation format exists.
func CheckFormat(format string) error {
	if !slices.Contains(Formats, format) {
		return fmt.Errorf("option observation: expected one of %s, got %q", strings.Join(Formats, ", "), format)
	}
	return nil
}

// Objects is one line of the coordinate format. Lines without cells are left out.
type Objects struct {
	Label string
	At    []Pos
}

// Render writes an observation in a valid format from its parts; drawing has no trailing newline.
func Render(format string, rows, cols int, objects []Objects, drawing string) string {
	if format == "grid" {
		return drawing
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Board size: %d rows x %d cols (zero-indexed).", rows, cols)
	for _, o := range objects {
		if len(o.At) == 0 {
			continue
		}
		items := make([]string, len(o.At))
		for i, p := range o.At {
			items[i] = fmt.Sprintf("(%d, %d)", p.Row, p.Col)
		}
		fmt.Fprintf(&b, "\n%s: %s", o.Label, strings.Join(items, ", "))
	}
	if format == "coord" {
		return b.String()
	}
	return "Coordinates:\n" + b.String() + "\nGrid Map:\n" + drawing
}

// Glyphs is the character set of a game, one per meaning.
type Glyphs []rune

// ParseGlyphs reads the option glyphs: one distinct visible character per meaning, in the order of meanings.
func ParseGlyphs(text string, meanings []string) (Glyphs, error) {
	glyphs := Glyphs(text)
	if !utf8.ValidString(text) || len(glyphs) != len(meanings) {
		return nil, fmt.Errorf("option glyphs: expected %d characters (%s), got %q", len(meanings), strings.Join(meanings, ", "), text)
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

// Explain says how an observation in a valid format is read.
func Explain(format string, rows, cols int, legend string) string {
	coordinates := fmt.Sprintf("Positions are (row, column) pairs counted from zero: (0, 0) is the top left corner, "+
		"(%d, %d) the bottom right one; the row grows downwards.", rows-1, cols-1)
	symbols := "The board is drawn with one symbol per cell. Symbols: " + legend
	switch format {
	case "coord":
		return coordinates
	case "grid_coord":
		return coordinates + "\n" + symbols
	default:
		return symbols
	}
}
