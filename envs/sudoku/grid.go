package sudoku

import "math/bits"

// grid is a square of n×n cells, n = box×box; 0 is an empty cell. It knows which numbers each row, column and box
// holds.
type grid struct {
	n, box            int
	cells             []int8 // n*n, row by row
	rows, cols, boxes []uint32
}

func newGrid(n int) *grid {
	box := 2
	for box*box < n {
		box++
	}
	g := &grid{n: n, box: box, cells: make([]int8, n*n)}
	sets := make([]uint32, 3*n)
	g.rows, g.cols, g.boxes = sets[:n], sets[n:2*n], sets[2*n:]
	return g
}

// copyFrom makes g equal to a grid of its size.
func (g *grid) copyFrom(o *grid) {
	copy(g.cells, o.cells)
	copy(g.rows, o.rows)
	copy(g.cols, o.cols)
	copy(g.boxes, o.boxes)
}

func (g *grid) boxOf(i int) int { return i/g.n/g.box*g.box + i%g.n/g.box }

// set writes a number that may stand there into an empty cell.
func (g *grid) set(i int, v int8) {
	g.cells[i] = v
	g.flip(i, v)
}

func (g *grid) erase(i int) {
	g.flip(i, g.cells[i])
	g.cells[i] = 0
}

func (g *grid) flip(i int, v int8) {
	bit := uint32(1) << v
	g.rows[i/g.n] ^= bit
	g.cols[i%g.n] ^= bit
	g.boxes[g.boxOf(i)] ^= bit
}

// open is the set of numbers, as bits, that may stand in an empty cell.
func (g *grid) open(i int) uint32 {
	all := uint32(1)<<(g.n+1) - 2
	return all &^ (g.rows[i/g.n] | g.cols[i%g.n] | g.boxes[g.boxOf(i)])
}

// clashes names the units of cell i that hold v in another cell.
func (g *grid) clashes(i int, v int8) []string {
	var row, col, box bool
	for j, w := range g.cells {
		if w != v || j == i {
			continue
		}
		row = row || j/g.n == i/g.n
		col = col || j%g.n == i%g.n
		box = box || g.boxOf(j) == g.boxOf(i)
	}
	var units []string
	for _, u := range []struct {
		clash bool
		name  string
	}{{row, "row"}, {col, "column"}, {box, "box"}} {
		if u.clash {
			units = append(units, u.name)
		}
	}
	return units
}

func (g *grid) empty() int {
	n := 0
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
