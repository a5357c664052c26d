package sudoku

import (
	"regexp"
	"strconv"
	"strings"
)

// move is a number and where to write it, counted from 1 as the player counts.
type move struct{ row, col, value int }

// forms are the ways to write a move, and which of their groups are row, column and number. The first that is found
// counts.
var forms = []struct {
	pattern         *regexp.Regexp
	row, col, value int
}{
	{regexp.MustCompile(`place\s+(\d+)\s+at\s+row\s+(\d+)\s+col(?:umn)?\s+(\d+)`), 2, 3, 1},
	{regexp.MustCompile(`(?:place\s+)?(\d+)\s+at\s+\(\s*(\d+)\s*,\s*(\d+)\s*\)`), 2, 3, 1},
	{regexp.MustCompile(`(?:place\s+)?(\d+)\s+at\s+(\d+)\s*,\s*(\d+)`), 2, 3, 1},
	{regexp.MustCompile(`\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)`), 1, 2, 3},
	{regexp.MustCompile(`(\d+)\s*,\s*(\d+)\s*,\s*(\d+)`), 1, 2, 3},
}

func parseMove(text string) (move, bool) {
	text = strings.ToLower(text)
	for _, f := range forms {
		match := f.pattern.FindStringSubmatch(text)
		if match == nil {
			continue
		}
		// Digits beyond an int are out of every grid's range too.
		row, _ := strconv.Atoi(match[f.row])
		col, _ := strconv.Atoi(match[f.col])
		value, _ := strconv.Atoi(match[f.value])
		return move{row, col, value}, true
	}
	return move{}, false
}
