package rubikscube

import (
	"strings"
	"sync"

	"gyre/envs/grid"
)

// half is how far the search goes from either end: no state of the pocket cube is more than 14 quarter turns from
// solved.
const half = 7

// searched are the actions of the search. They leave the corner between D, B and L where it is, which decides how the
// solved cube is held; a turn of the opposite face is the same but for the way of holding, so no solution gets longer.
var searched = []int{0, 1, 6, 7, 8, 9}

// key packs the stickers that searched actions move.
type key uint64

// goals maps every state within half turns of the solved cube to the action that brings it nearer, -1 for the
// solved one.
var goals = sync.OnceValue(func() map[key]int8 {
	start := normalize(solvedCube())
	table := map[key]int8{start.key(): -1}
	level := []cube{start}
	for range half {
		var next []cube
		for _, c := range level {
			for _, a := range searched {
				child := c
				child.turn(a)
				if _, known := table[child.key()]; !known {
					table[child.key()] = int8(a ^ 1) // the inverse is its neighbour in actionNames
					next = append(next, child)
				}
			}
		}
		level = next
	}
	return table
})

// normalize replaces each colour by the number of the face that it belongs on, as the corner between D, B and L tells.
func normalize(c cube) cube {
	opposite := map[byte]byte{'W': 'Y', 'Y': 'W', 'O': 'R', 'R': 'O', 'G': 'B', 'B': 'G'}
	down, back, left := c[22], c[19], c[6]
	var face [256]byte
	for f, colour := range []byte{opposite[down], left, opposite[back], opposite[left], back, down} {
		face[colour] = byte(f)
	}
	for i := range c {
		c[i] = face[c[i]]
	}
	return c
}

// key of a normalized cube: three bits for each sticker but those of the corner that stays.
func (c *cube) key() key {
	var k key
	for i, f := range c {
		if i != 22 && i != 19 && i != 6 {
			k = k<<3 | key(f)
		}
	}
	return k
}

// solve finds a shortest list of actions.
func (c cube) solve() ([]int, bool) {
	table := goals()
	seen := map[key]struct{}{}
	path, met, ok := grid.Search[cube]{
		Moves: len(searched), Depth: half,
		Move: func(c cube, move int) (cube, bool) {
			c.turn(searched[move])
			return c, true
		},
		Fresh: func(c cube) bool {
			before := len(seen)
			seen[c.key()] = struct{}{}
			return len(seen) > before
		},
		Goal: func(c cube) bool {
			_, near := table[c.key()]
			return near
		},
	}.Path(normalize(c))
	if !ok {
		return nil, false // not a state of a real cube
	}
	var way []int
	for _, move := range path {
		way = append(way, searched[move])
	}
	for a := table[met.key()]; a >= 0; a = table[met.key()] {
		way = append(way, int(a))
		met.turn(int(a))
	}
	return way, true
}

// cube is the colour of each sticker. Faces follow each other as U L F R B D; a face's four stickers are read like
// a line of text by somebody who looks at it: L, F, R and B stand upright, U is seen with F below it, D with F
// above it.
type cube [24]byte

const (
	faces   = "ULFRBD"
	colours = "WOGRBY" // of the solved cube's faces, in the same order
)

var (
	actionNames = []string{"U", "U'", "D", "D'", "L", "L'", "R", "R'", "F", "F'", "B", "B'"}
	// turns[k][i] is where the sticker comes from that action k brings to place i.
	turns = makeTurns()
)

// cycles are the clockwise turns of faces. A face's own stickers go round, and so do four pairs on its neighbours: each
// pair comes from the one after it, the last from the first.
var cycles = []struct {
	face  byte
	pairs [4][2]int
}{
	{'U', [4][2]int{{8, 9}, {12, 13}, {16, 17}, {4, 5}}},
	{'D', [4][2]int{{10, 11}, {6, 7}, {18, 19}, {14, 15}}},
	{'L', [4][2]int{{0, 2}, {19, 17}, {20, 22}, {8, 10}}},
	{'R', [4][2]int{{1, 3}, {9, 11}, {21, 23}, {18, 16}}},
	{'F', [4][2]int{{2, 3}, {7, 5}, {21, 20}, {12, 14}}},
	{'B', [4][2]int{{1, 0}, {15, 13}, {22, 23}, {4, 6}}},
}

func makeTurns() [12][24]int {
	var list [12][24]int
	for k, c := range cycles {
		clockwise, back := &list[2*k], &list[2*k+1]
		for i := range clockwise {
			clockwise[i] = i
		}
		base := 4 * strings.IndexByte(faces, c.face)
		for i, from := range [4]int{2, 0, 3, 1} {
			clockwise[base+i] = base + from
		}
		for p, pair := range c.pairs {
			from := c.pairs[(p+1)%4]
			clockwise[pair[0]], clockwise[pair[1]] = from[0], from[1]
		}
		for i, from := range clockwise {
			back[from] = i
		}
	}
	return list
}

func solvedCube() cube {
	var c cube
	for i := range c {
		c[i] = colours[i/4]
	}
	return c
}

// turn carries out an action, given by its index in actionNames.
func (c *cube) turn(action int) {
	before := *c
	for i, from := range &turns[action] {
		c[i] = before[from]
	}
}

// solved says whether every face shows one colour, whichever way the cube is held.
func (c *cube) solved() bool {
	for f := 0; f < len(c); f += 4 {
		if c[f+1] != c[f] || c[f+2] != c[f] || c[f+3] != c[f] {
			return false
		}
	}
	return true
}
