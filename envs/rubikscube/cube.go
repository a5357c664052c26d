package rubikscube

import "strings"

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
