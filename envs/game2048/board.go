package game2048

import "bytes"

// board holds the exponents of the tiles, row by row; 0 is an empty cell and 11 the tile 2048.
type board [16]byte

var actionNames = []string{"Up", "Right", "Down", "Left"}

// lanes[a] lists, for each of the four lanes of action a, its cells from the side that tiles move to.
var lanes = makeLanes()

func makeLanes() [4][4][4]int {
	var list [4][4][4]int
	for lane := range 4 {
		for i := range 4 {
			list[0][lane][i] = 4*i + lane
			list[1][lane][i] = 4*lane + 3 - i
			list[2][lane][i] = 4*(3-i) + lane
			list[3][lane][i] = 4*lane + i
		}
	}
	return list
}

// slide moves all tiles to a side. A tile that has merged does not merge again in the same move. It returns the sum
// of the merged tiles and whether anything moved.
func (b *board) slide(action int) (points int, moved bool) {
	before := *b
	for _, lane := range &lanes[action] {
		free := 0 // the next place in the lane
		merged := true
		for _, cell := range lane {
			tile := before[cell]
			if tile == 0 {
				continue
			}
			if !merged && b[lane[free-1]] == tile {
				b[lane[free-1]]++
				points += 1 << (tile + 1)
				merged = true
				continue
			}
			b[lane[free]] = tile
			free++
			merged = false
		}
		for ; free < 4; free++ {
			b[lane[free]] = 0
		}
	}
	return points, *b != before
}

// stuck says whether no move is possible.
func (b *board) stuck() bool {
	for i, tile := range b {
		if tile == 0 || i%4 < 3 && b[i+1] == tile || i < 12 && b[i+4] == tile {
			return false
		}
	}
	return true
}

// spawn puts a tile on the k-th empty cell.
func (b *board) spawn(k int, tile byte) {
	for i := range b {
		if b[i] == 0 {
			if k == 0 {
				b[i] = tile
				return
			}
			k--
		}
	}
}

func (b *board) empty() int { return bytes.Count(b[:], []byte{0}) }
