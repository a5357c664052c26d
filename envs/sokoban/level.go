package sokoban

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"gyre/envs/grid"
	"gyre/internal/quote"
)

// square is what a character of a level's text stands for.
type square struct {
	cell        cell
	box, player bool
}

// squares are the usual XSB set and this game's default glyphs. '-' and '_' are floor too.
var squares = map[rune]square{
	'#': {cell: wall}, ' ': {cell: floor}, '-': {cell: floor}, '_': {cell: floor}, '.': {cell: target},
	'O': {cell: target}, '$': {floor, true, false}, 'X': {floor, true, false}, '*': {target, true, false},
	'√': {target, true, false}, '@': {floor, false, true}, 'P': {floor, false, true}, '+': {target, false, true},
	'S': {target, false, true},
}

// parseLevel reads a level from rows of text. Short rows are filled up with wall.
func parseLevel(rows []string) (*board, error) {
	b := &board{}
	b.Rows = len(rows)
	for _, row := range rows {
		b.Cols = max(b.Cols, len([]rune(row)))
	}
	if b.Cells() == 0 || b.Cells() > 1<<16 {
		return nil, fmt.Errorf("a level of %d rows and %d columns: expected 1 to 65536 cells", b.Rows, b.Cols)
	}
	b.cells, b.box = make([]cell, b.Cells()), make([]bool, b.Cells())
	players, targets := 0, 0
	for r, row := range rows {
		for c, char := range []rune(row) {
			is, known := squares[char]
			if !known {
				return nil, fmt.Errorf("level row %d, column %d: unknown character %q (XSB: # wall, @ player, + "+
					"player on target, $ box, * box on target, . target, space floor)", r, c, char)
			}
			p := grid.Pos{Row: r, Col: c}
			b.cells[b.Index(p)], b.box[b.Index(p)] = is.cell, is.box
			if is.cell == target {
				targets++
			}
			if is.player {
				b.player = p
				players++
			}
		}
	}
	boxes, placed := b.boxes()
	switch {
	case players != 1:
		return nil, fmt.Errorf("the level has %d players: expected one", players)
	case boxes == 0 || boxes != targets:
		return nil, fmt.Errorf("the level has %d boxes and %d targets: expected as many boxes as targets, at least one",
			boxes, targets)
	case placed == boxes:
		return nil, fmt.Errorf("the level is solved already: all %d boxes are on targets", boxes)
	}
	return b, nil
}

// Solves says whether moves, letters of U, D, L and R, solve a level in XSB characters, each of them moving something.
func Solves(rows []string, moves string) bool {
	b, err := parseLevel(rows)
	if err != nil {
		return false
	}
	for _, move := range moves {
		a := strings.IndexRune("UDLR", move)
		moved := a >= 0
		if moved {
			b, moved = b.move(directions[a])
		}
		if !moved {
			return false
		}
	}
	all, placed := b.boxes()
	return placed == all
}

// readLevels reads a file of levels: Boxoban's text ("; name" before each level, blank lines between), or JSON Lines of
// {"rows": ["####", …]}.
func readLevels(path string) (levels []*board, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var rows []string                                 // of the text since the last level
	lines := strings.Split(string(text)+"\n\n", "\n") // a blank line ends the last level too
	for n, line := range lines {
		line = strings.TrimRight(line, "\r")
		var level struct{ Rows []string }
		first := n + 1 - len(rows)
		switch {
		case strings.HasPrefix(line, "{"):
			first = n + 1
			err := json.Unmarshal([]byte(line), &level)
			if err == nil && len(level.Rows) == 0 {
				err = errors.New("no rows in this object")
			}
			if err != nil {
				return nil, fmt.Errorf("%s, line %d: expected {\"rows\": [\"…\"]}: %w", path, n+1, quote.JSON(err))
			}
		case strings.HasPrefix(line, ";") || strings.TrimSpace(line) == "":
			level.Rows, rows = rows, nil
		default:
			rows = append(rows, line)
		}
		if level.Rows == nil {
			continue
		}
		b, err := parseLevel(level.Rows)
		if err != nil {
			return nil, fmt.Errorf("%s, level %d at line %d: %w", path, len(levels), first, err)
		}
		levels = append(levels, b)
	}
	if len(levels) == 0 {
		return nil, fmt.Errorf("%s holds no level", path)
	}
	return levels, nil
}
