package game2048

import (
	"math"
	"sync"
)

// worth maps a lane, four exponents in four bits each, to what it is worth: free cells and merges to come, tiles in
// order, large ones at an end. It takes 15 ms to make, which a program without an expert shall not spend.
var worth = sync.OnceValue(func() *[1 << 16]float64 {
	var table [1 << 16]float64
	for code := range table {
		lane := [4]float64{float64(code & 15), float64(code >> 4 & 15), float64(code >> 8 & 15), float64(code >> 12)}
		value, up, down := 0.0, 0.0, 0.0
		for i, tile := range lane {
			if tile == 0 {
				value += 270
			}
			value -= 11 * math.Pow(tile, 3.5)
			if i == 0 {
				continue
			}
			before := lane[i-1]
			if tile == before && tile > 0 {
				value += 700
			}
			step := 47 * (math.Pow(before, 4) - math.Pow(tile, 4))
			up, down = up+max(0, step), down+max(0, -step)
		}
		table[code] = value - min(up, down)
	}
	return &table
})

// value is what a board is worth: the sum over its rows and columns. Being stuck is worth nothing.
func (b *board) value() float64 {
	sum, worth := 200_000.0*8, worth()
	for i := range 4 {
		row, column := 0, 0
		for k := range 4 {
			row |= int(min(b[4*i+k], 15)) << (4 * k)
			column |= int(min(b[4*k+i], 15)) << (4 * k)
		}
		sum += worth[row] + worth[column]
	}
	return sum
}

// best is the move of the highest expected value, looking depth tiles ahead; -1 if none is possible.
func (b *board) best(depth int, twoProb float64) (action int, value float64) {
	action = -1
	for a := range actionNames {
		after := *b
		if _, moved := after.slide(a); !moved {
			continue
		}
		if v := after.expected(depth, twoProb); action < 0 || v > value {
			action, value = a, v
		}
	}
	return action, value
}

// expected is the value of a board after a tile has appeared anywhere, and the best move since. With much room
// little can go wrong: one look ahead is enough.
func (b *board) expected(depth int, twoProb float64) float64 {
	free := b.empty()
	if depth == 0 || free > 8 {
		return b.value()
	}
	sum := 0.0
	for k := range free {
		for i, chance := range [2]float64{twoProb, 1 - twoProb} {
			if chance == 0 {
				continue
			}
			after := *b
			after.spawn(k, byte(1+i))
			if a, v := after.best(depth-1, twoProb); a >= 0 {
				sum += chance * v
			}
		}
	}
	return sum / float64(free)
}

// Solve gives the next move of a search over the tiles that may come (expectimax). The moves after it depend on
// those tiles: it is asked again after every one.
func (g *game) Solve() ([]string, bool) {
	if !g.Running() {
		return nil, false
	}
	action, _ := g.board.best(1, g.options.TwoProb)
	if action < 0 {
		return nil, false
	}
	return []string{actionNames[action]}, true
}
