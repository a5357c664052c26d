package sudoku

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"gyre/envs"
)

// Observe draws the grid. with_feedback adds what the latest move did, what is left to choose from when little is,
// and how far the game has come.
func (g *game) Observe() envs.Observation {
	text := make([]byte, 0, 1024)
	if g.options.Format == "simple" {
		return envs.Observation{Text: string(g.drawPlain(text))}
	}
	text = g.draw(text)
	if g.options.Format == "detailed" {
		return envs.Observation{Text: string(text)}
	}
	text = append(text, '\n')
	if g.feedback != "" {
		text = append(text, '\n')
		text = append(text, g.feedback...)
	}
	empty := g.grid.empty()
	if empty > 0 && (g.options.Candidates || g.options.Numbers && empty <= 10) {
		text = append(text, "\nValid numbers:"...)
		for i, v := range g.grid.cells {
			if v == 0 {
				text = fmt.Appendf(text, " (%d,%d): %s;", i/g.grid.n+1, i%g.grid.n+1, list(g.grid.open(i)))
			}
		}
		text = text[:len(text)-1]
	}
	total := len(g.grid.cells)
	text = fmt.Appendf(text, "\nProgress: %d/%d cells filled (%d initial, %d placed)\nSteps: %d/%d",
		total-empty, total, g.initial, total-empty-g.initial, g.Steps, g.options.MaxSteps)
	return envs.Observation{Text: string(text)}
}

// list prints a set of numbers.
func list(set uint32) string {
	var words []string
	for _, v := range numbers(set) {
		words = append(words, strconv.Itoa(int(v)))
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

// appendCell writes a number, or a dot for an empty cell, to the right of its width.
func appendCell(text []byte, v int8, width int) []byte {
	number := "."
	if v > 0 {
		number = strconv.Itoa(int(v))
	}
	for range width - len(number) {
		text = append(text, ' ')
	}
	return append(text, number...)
}

// drawPlain writes numbers and dots.
func (g *game) drawPlain(text []byte) []byte {
	for i, v := range g.grid.cells {
		switch {
		case i%g.grid.n > 0:
			text = append(text, ' ')
		case i > 0:
			text = append(text, '\n')
		}
		text = appendCell(text, v, 1)
	}
	return text
}

// draw writes [5] for an initial cell, " 5 " for a placed one and " . " for an empty one, with lines between boxes.
func (g *game) draw(text []byte) []byte {
	n, box := g.grid.n, g.grid.box
	width := len(strconv.Itoa(n))
	rule := strings.Repeat("-", n*(width+2)+2*(box-1))
	for i, v := range g.grid.cells {
		row, col := i/n, i%n
		if col == 0 && row > 0 {
			text = append(text, '\n')
			if row%box == 0 {
				text = append(text, rule...)
				text = append(text, '\n')
			}
		} else if col > 0 && col%box == 0 {
			text = append(text, "| "...)
		}
		left, right := byte(' '), byte(' ')
		if g.fixed[i] {
			left, right = '[', ']'
		}
		text = append(appendCell(append(text, left), v, width), right)
	}
	return text
}
