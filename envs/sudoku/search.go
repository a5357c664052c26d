package sudoku

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
)

// fill completes the grid at random and says whether it could. Each cell takes its open numbers in random order, the
// tightest cell first: in reading order a 16×16 grid would hardly ever be finished.
func (g *grid) fill(rng *rand.Rand, budget *int) bool {
	i, open := g.tightest()
	if i < 0 {
		return true
	}
	if *budget--; *budget < 0 {
		return false
	}
	for open != 0 {
		skip := rng.IntN(bits.OnesCount32(open))
		rest := open
		for range skip {
			rest &= rest - 1
		}
		v := bits.TrailingZeros32(rest)
		open &^= 1 << v
		g.set(i, int8(v))
		if g.fill(rng, budget) {
			return true
		}
		g.erase(i)
	}
	return false
}

// complete finds the first solution in a fixed order and says whether there is one. A search that takes too long
// counts as a solution found, which only makes a puzzle easier.
func (g *grid) complete(budget *int) bool {
	i, open := g.tightest()
	if i < 0 {
		return true
	}
	if *budget--; *budget < 0 {
		return true
	}
	for ; open != 0; open &= open - 1 {
		g.set(i, int8(bits.TrailingZeros32(open)))
		if g.complete(budget) {
			return true
		}
		g.erase(i)
	}
	return false
}

const (
	grids      = 100    // tried per puzzle
	fillBudget = 100000 // cells per try
	openBudget = 400    // cells per question whether a solution is the only one
)

// make draws a full grid and empties blanks of its cells. With unique, only cells whose number the others still force.
func generate(rng *rand.Rand, n, blanks int, unique bool) (puzzle, solution *grid, err error) {
	for range grids {
		solution = newGrid(n)
		if budget := fillBudget; !solution.fill(rng, &budget) {
			continue
		}
		puzzle, scratch := newGrid(n), newGrid(n)
		puzzle.copyFrom(solution)
		left := blanks
		for _, i := range rng.Perm(n * n) {
			if left == 0 {
				break
			}
			v := puzzle.cells[i]
			puzzle.erase(i)
			if unique && puzzle.otherThan(i, v, scratch) {
				puzzle.set(i, v)
				continue
			}
			left--
		}
		if left == 0 {
			return puzzle, solution, nil
		}
	}
	return nil, nil, fmt.Errorf("no %dx%d puzzle with %d empty cells and a single solution in %d grids: lower blanks "+
		"or set unique = false",
		n, n, blanks, grids)
}

// otherThan says whether the puzzle has a solution with another number than v in the empty cell i.
func (g *grid) otherThan(i int, v int8, scratch *grid) bool {
	for open := g.open(i) &^ (1 << v); open != 0; open &= open - 1 {
		scratch.copyFrom(g)
		scratch.set(i, int8(bits.TrailingZeros32(open)))
		if budget := openBudget; scratch.complete(&budget) {
			return true
		}
	}
	return false
}
