package sudoku

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
	for choices := numbers(open); len(choices) > 0; {
		k := rng.IntN(len(choices))
		g.set(i, choices[k])
		if g.fill(rng, budget) {
			return true
		}
		choices = slices.Delete(choices, k, k+1)
	}
	g.set(i, 0)
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
	for _, v := range numbers(open) {
		g.set(i, v)
		if g.complete(budget) {
			return true
		}
	}
	g.set(i, 0)
	return false
}

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
		if budget := fillBudget; !solution.fill(rng, &budget) {
			continue
		}
		puzzle, scratch := solution.clone(), newGrid(n)
		left := blanks
		for _, i := range rng.Perm(n * n) {
			if left == 0 {
				break
			}
			v := puzzle.cells[i]
			puzzle.set(i, 0)
			if unique && puzzle.otherThan(i, v, scratch) {
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

// otherThan says whether the puzzle has a solution with another number than v in the empty cell i.
func (g *grid) otherThan(i int, v int8, scratch *grid) bool {
	for _, other := range numbers(g.open(i) &^ (1 << v)) {
		scratch.copyFrom(g)
		scratch.set(i, other)
		if budget := openBudget; scratch.complete(&budget) {
			return true
		}
	}
	return false
}
