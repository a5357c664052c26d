package sudoku

import (
	"math/bits"
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

// set writes a number that may stand there, 0 for none, in the place of what the cell holds. Bit 0 of held means
// nothing.
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
