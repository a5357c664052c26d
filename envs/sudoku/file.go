package sudoku

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
)

// pair is a puzzle of a file and its solution.
type pair struct{ puzzle, solution *grid }

// readPuzzles reads a JSON Lines file of {"puzzle": [[…]]} with 0 for empty cells, at the top of a row or, as reasoning-gym
// writes them, in its "metadata".
func readPuzzles(path string) ([]pair, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("option puzzles: %w", err)
	}
	defer file.Close()
	var pairs []pair
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var row struct {
			Puzzle   [][]int
			Metadata struct{ Puzzle [][]int }
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("option puzzles: %s, line %d: %w", path, n, err)
		}
		if row.Puzzle == nil {
			row.Puzzle = row.Metadata.Puzzle
		}
		p, err := readPuzzle(row.Puzzle)
		if err != nil {
			return nil, fmt.Errorf("option puzzles: %s, line %d: %w", path, n, err)
		}
		pairs = append(pairs, p)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("option puzzles: %s: %w", path, err)
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("option puzzles: %s holds no puzzle", path)
	}
	return pairs, nil
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
	solution := newGrid(n)
	solution.copyFrom(puzzle)
	if budget := fillBudget; puzzle.empty() == 0 || !solution.complete(&budget) || budget < 0 {
		return pair{}, fmt.Errorf("the puzzle has no empty cell or no solution could be found")
	}
	return pair{puzzle, solution}, nil
}

// numbers lists the members of a set of bits.
func numbers(set uint32) []int {
	var list []int
	for ; set != 0; set &= set - 1 {
		list = append(list, bits.TrailingZeros32(set))
	}
	return list
}
