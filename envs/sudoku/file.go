package sudoku

import (
	"fmt"

	"gyre/envs"
)

// pair is a puzzle of a file and its solution.
type pair struct{ puzzle, solution *grid }

// readPuzzles reads a file of {"puzzle": [[…]]} with 0 for empty cells, at the top of a row or, as reasoning-gym writes
// them, in its "metadata".
func readPuzzles(path string) ([]pair, error) {
	type row struct {
		Puzzle   [][]int
		Metadata struct{ Puzzle [][]int }
	}
	return envs.ReadRows("puzzles", path, nil, "", func(r row) (pair, error) {
		if r.Puzzle == nil {
			r.Puzzle = r.Metadata.Puzzle
		}
		return readPuzzle(r.Puzzle)
	})
}

func readPuzzle(rows [][]int) (pair, error) {
	n := len(rows)
	if n != 4 && n != 9 && n != 16 {
		return pair{}, fmt.Errorf("a puzzle of %d rows: expected \"puzzle\" to be 4, 9 or 16 lists of numbers", n)
	}
	puzzle := newGrid(n)
	for r, row := range rows {
		if len(row) != n {
			return pair{}, fmt.Errorf("row %d has %d cells, expected %d", r+1, len(row), n)
		}
		for c, v := range row {
			i := r*n + c
			if v == 0 {
				continue
			}
			if v < 0 || v > n || puzzle.open(i)>>v&1 == 0 {
				return pair{}, fmt.Errorf("row %d, column %d: %d cannot stand there", r+1, c+1, v)
			}
			puzzle.set(i, int8(v))
		}
	}
	solution := puzzle.clone()
	if budget := fillBudget; puzzle.empty() == 0 || !solution.complete(first, &budget, true) || budget < 0 {
		return pair{}, fmt.Errorf("the puzzle has no empty cell or no solution could be found")
	}
	return pair{puzzle, solution}, nil
}

// Solves says whether numbers, row by row, fill a puzzle (0 for empty cells) and keep what it gives.
func Solves(rows [][]int, numbers []int) bool {
	g := newGrid(len(rows))
	if g.box*g.box != g.n || g.n > 25 || len(numbers) != g.n*g.n {
		return false
	}
	for i, v := range numbers {
		row := rows[i/g.n]
		if v < 1 || v > g.n || len(row) != g.n || row[i%g.n] != 0 && row[i%g.n] != v || g.open(i)>>v&1 == 0 {
			return false
		}
		g.set(i, int8(v))
	}
	return true
}
