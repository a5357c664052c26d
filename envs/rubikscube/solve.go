package rubikscube

import (
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
func (c cube) key() key {
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
	path, met, ok := grid.Search[cube, key]{
		Moves: len(searched), Depth: half, Key: cube.key,
		Move: func(c cube, move int) (cube, bool) {
			c.turn(searched[move])
			return c, true
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
