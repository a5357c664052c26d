package sokoban

import (
	"bufio"
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
	b := &board{rows: len(rows)}
	for _, row := range rows {
		b.cols = max(b.cols, len([]rune(row)))
	}
	if b.rows*b.cols == 0 || b.rows*b.cols > 1<<16 {
		return nil, fmt.Errorf("a level of %d rows and %d columns: expected 1 to 65536 cells", b.rows, b.cols)
	}
	b.cells, b.box = make([]cell, b.rows*b.cols), make([]bool, b.rows*b.cols)
	players, targets := 0, 0
	for r, row := range rows {
		for c, char := range []rune(row) {
			i := r*b.cols + c
			is := func(set string) bool { return strings.ContainsRune(set, char) }
			switch {
			case is(textWalls):
				continue
			case is(textTargets), is(textPlaced), is(textArrived):
				b.cells[i] = target
				targets++
			case is(textFloors), is(textBoxes), is(textPlayers):
				b.cells[i] = floor
			default:
				return nil, fmt.Errorf("level row %d, column %d: unknown character %q (XSB: # wall, @ player, + "+
					"player on target, $ box, * box on target, . target, space floor)", r, c, char)
			}
			b.box[i] = is(textBoxes) || is(textPlaced)
			if is(textPlayers) || is(textArrived) {
				b.player = grid.Pos{Row: r, Col: c}
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

// readLevels reads a file of levels: Boxoban's text ("; name" before each level, blank lines between), or JSON Lines of
// {"rows": ["####", …]}.
func readLevels(path string) ([]*board, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("option levels: %w", err)
	}
	defer file.Close()
	var levels []*board
	var rows []string
	first := 1 // line at which rows starts
	finish := func() error {
		if len(rows) == 0 {
			return nil
		}
		b, err := parseLevel(rows)
		if err != nil {
			return fmt.Errorf("option levels: %s, level %d at line %d: %w", path, len(levels), first, err)
		}
		levels, rows = append(levels, b), nil
		return nil
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimRight(lines.Text(), "\r")
		switch {
		case strings.HasPrefix(line, "{"):
			var level struct{ Rows []string }
			if err := json.Unmarshal([]byte(line), &level); err != nil {
				return nil, fmt.Errorf("option levels: %s, line %d: expected {\"rows\": [\"…\"]}: %w", path, n, err)
			}
			rows, first = level.Rows, n
			if len(rows) == 0 {
				return nil, fmt.Errorf("option levels: %s, line %d: no rows in this object", path, n)
			}
			err = finish()
		case strings.HasPrefix(line, ";") || strings.TrimSpace(line) == "":
			err = finish()
		default:
			if len(rows) == 0 {
				first = n
			}
			rows = append(rows, line)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("option levels: %s: %w", path, err)
	}
	if err := finish(); err != nil {
		return nil, err
	}
	if len(levels) == 0 {
		return nil, fmt.Errorf("option levels: %s holds no level", path)
	}
	return levels, nil
}
