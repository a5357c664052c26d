package sudoku

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// complete fills the empty cells and says whether it could. Each takes its open numbers in the order in which choose
// picks one of so many, the tightest cell first: in reading order a 16×16 grid would hardly ever be finished. A search
// that visits more than budget cells ends with the answer late.
func (g *grid) complete(choose func(n int) int, budget *int, late bool) bool {
	i, open := g.tightest()
	if i < 0 {
		return true
	}
	if *budget--; *budget < 0 {
		return late
	}
	for choices := numbers(open); len(choices) > 0; {
		k := choose(len(choices))
		g.set(i, choices[k])
		if g.complete(choose, budget, late) {
			return true
		}
		choices = slices.Delete(choices, k, k+1)
	}
	g.set(i, 0)
	return false
}

// first chooses numbers in their order.
func first(int) int { return 0 }

const (
	grids      = 100    // tried per puzzle
	fillBudget = 100000 // cells per try
	openBudget = 400    // cells per question whether a solution is the only one
)

// generate draws a full grid and empties blanks of its cells. With unique, only cells whose number the others still
// force.
func generate(rng *rand.Rand, n, blanks int, unique bool) (pair, error) {
	for range grids {
		solution := newGrid(n)
		if budget := fillBudget; !solution.complete(rng.IntN, &budget, false) {
			continue
		}
		puzzle := solution.clone()
		left := blanks
		for _, i := range rng.Perm(n * n) {
			if left == 0 {
				break
			}
			v := puzzle.cells[i]
			puzzle.set(i, 0)
			if unique && puzzle.otherThan(i, v) {
				puzzle.set(i, v)
				continue
			}
			left--
		}
		if left == 0 {
			return pair{puzzle, solution}, nil
		}
	}
	return pair{}, fmt.Errorf("no %dx%d puzzle with %d empty cells and a single solution in %d grids: lower blanks or "+
		"set unique = false", n, n, blanks, grids)
}

// otherThan says whether the puzzle has a solution with another number than v in the empty cell i. A search that takes
// too long counts as one found, which only makes a puzzle easier.
func (g *grid) otherThan(i int, v int8) bool {
	for _, other := range numbers(g.open(i) &^ (1 << v)) {
		trial := g.clone()
		trial.set(i, other)
		if budget := openBudget; trial.complete(first, &budget, true) {
			return true
		}
	}
	return false
}
