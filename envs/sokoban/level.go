package sokoban

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"gyre/envs/grid"
)

// Characters of a level's text: the usual XSB set and this game's default glyphs. '-' and '_' are floor too.
const (
	textWalls   = "#"
	textFloors  = " -_"
	textTargets = ".O"
	textPlaced  = "*√" // box on target
	textBoxes   = "$X"
	textPlayers = "@P"
	textArrived = "+S" // player on target
)

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
			p := grid.Pos{Row: r, Col: c}
			is := func(set string) bool { return strings.ContainsRune(set, char) }
			switch {
			case is(textWalls):
				continue
			case is(textTargets), is(textPlaced), is(textArrived):
				b.cells[b.Index(p)] = target
				targets++
			case is(textFloors), is(textBoxes), is(textPlayers):
				b.cells[b.Index(p)] = floor
			default:
				return nil, fmt.Errorf("level row %d, column %d: unknown character %q (XSB: # wall, @ player, + "+
					"player on target, $ box, * box on target, . target, space floor)", r, c, char)
			}
			b.box[b.Index(p)] = is(textBoxes) || is(textPlaced)
			if is(textPlayers) || is(textArrived) {
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
	var rows []string
	first := 1 // line at which rows starts
	finish := func() error {
		if len(rows) == 0 {
			return nil
		}
		b, err := parseLevel(rows)
		if err != nil {
			return fmt.Errorf("%s, level %d at line %d: %w", path, len(levels), first, err)
		}
		levels, rows = append(levels, b), nil
		return nil
	}
	lines := strings.Split(string(text)+"\n\n", "\n") // a blank line ends the last level too
	for n, line := range lines {
		line = strings.TrimRight(line, "\r")
		if len(rows) == 0 {
			first = n + 1
		}
		switch {
		case strings.HasPrefix(line, "{"):
			var level struct{ Rows []string }
			if err := json.Unmarshal([]byte(line), &level); err != nil {
				return nil, fmt.Errorf("%s, line %d: expected {\"rows\": [\"…\"]}: %w", path, n+1, err)
			}
			if rows, first = level.Rows, n+1; len(rows) == 0 {
				return nil, fmt.Errorf("%s, line %d: no rows in this object", path, n+1)
			}
			err = finish()
		case strings.HasPrefix(line, ";") || strings.TrimSpace(line) == "":
			err = finish()
		default:
			rows = append(rows, line)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(levels) == 0 {
		return nil, fmt.Errorf("%s holds no level", path)
	}
	return levels, nil
}
