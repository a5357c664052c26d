package sudoku

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// grid is a square of n×n cells, n = box×box; 0 is an empty cell. It knows which numbers each row, column and box
// holds.
type grid struct {
	n, box int
	cells  []int8   // row by row
	held   []uint32 // numbers as bits: of the n rows, then of the columns, then of the boxes
}

func newGrid(n int) *grid {
	box := 2
	for box*box < n {
		box++
	}
	return &grid{n: n, box: box, cells: make([]int8, n*n), held: make([]uint32, 3*n)}
}

func (g *grid) clone() *grid {
	return &grid{g.n, g.box, slices.Clone(g.cells), slices.Clone(g.held)}
}

// units are the places in held of a cell's row, column and box.
func (g *grid) units(i int) (row, col, box int) {
	row, col = i/g.n, i%g.n
	return row, g.n + col, 2*g.n + row/g.box*g.box + col/g.box
}

// set writes a number that may stand there, 0 for none, in the place of what the cell holds. Bit 0 of held means nothing.
func (g *grid) set(i int, v int8) {
	row, col, box := g.units(i)
	change := uint32(1)<<v ^ uint32(1)<<g.cells[i]
	g.held[row] ^= change
	g.held[col] ^= change
	g.held[box] ^= change
	g.cells[i] = v
}

// open is the set of numbers, as bits, that may stand in a cell in the place of what it holds.
func (g *grid) open(i int) uint32 {
	row, col, box := g.units(i)
	all := uint32(1)<<(g.n+1) - 2
	return all &^ ((g.held[row] | g.held[col] | g.held[box]) &^ (1 << g.cells[i]))
}

// clashes names the units of cell i that hold v in another cell.
func (g *grid) clashes(i int, v int8) []string {
	row, col, box := g.units(i)
	var names []string
	for k, unit := range []int{row, col, box} {
		if g.held[unit]>>v&1 == 1 {
			names = append(names, []string{"row", "column", "box"}[k])
		}
	}
	return names
}

// empty counts the cells without a number.
func (g *grid) empty() (n int) {
	for _, v := range g.cells {
		if v == 0 {
			n++
		}
	}
	return n
}

// tightest returns the first empty cell with the fewest open numbers, and these; -1 when no cell is empty.
func (g *grid) tightest() (cell int, open uint32) {
	cell, fewest := -1, 99
	for i, v := range g.cells {
		if v != 0 {
			continue
		}
		set := g.open(i)
		if k := bits.OnesCount32(set); k < fewest {
			if cell, open, fewest = i, set, k; k <= 1 {
				break
			}
		}
	}
	return cell, open
}

// numbers lists the members of a set of bits.
func numbers(set uint32) []int8 {
	var list []int8
	for ; set != 0; set &= set - 1 {
		list = append(list, int8(bits.TrailingZeros32(set)))
	}
	return list
}

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
