package rubikscube

import (
	"slices"
	"strings"
	"sync"
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
func (c cube) solve() ([]string, bool) {
	type node struct {
		cube   cube
		parent int
		action int
	}
	table := goals()
	queue := []node{{cube: normalize(c), parent: -1}}
	seen := map[key]struct{}{queue[0].cube.key(): {}}
	levelEnd, depth := 1, 0
	for head := 0; head < len(queue); head++ {
		if head == levelEnd {
			levelEnd, depth = len(queue), depth+1
		}
		n := queue[head].cube
		if _, near := table[n.key()]; near {
			var way []string
			for i := head; i > 0; i = queue[i].parent {
				way = append(way, actionNames[queue[i].action])
			}
			slices.Reverse(way)
			for a := table[n.key()]; a >= 0; a = table[n.key()] {
				way = append(way, actionNames[a])
				n.turn(int(a))
			}
			return way, true
		}
		if depth == half {
			continue
		}
		for _, a := range searched {
			child := n
			child.turn(a)
			k := child.key()
			if _, known := seen[k]; !known {
				seen[k] = struct{}{}
				queue = append(queue, node{child, head, a})
			}
		}
	}
	return nil, false // not a state of a real cube
}

// actionIndex finds an action by its name.
func actionIndex(name string) int {
	return slices.IndexFunc(actionNames, func(n string) bool { return strings.EqualFold(n, name) })
}
