package frozenlake

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"gyre/envs/grid"
)

// lake is a map; holes, start and goal do not move.
type lake struct {
	rows, cols  int
	hole        []bool // rows*cols, row-major
	start, goal grid.Pos
}

var (
	actionNames = []string{"Left", "Down", "Right", "Up"}
	directions  = []grid.Pos{grid.Left, grid.Down, grid.Right, grid.Up}
)

func (l *lake) index(p grid.Pos) int { return p.Row*l.cols + p.Col }

// step is the cell that a move leads to: at the edge the player stays.
func (l *lake) step(p, d grid.Pos) grid.Pos {
	q := p.Add(d)
	if q.Row < 0 || q.Row >= l.rows || q.Col < 0 || q.Col >= l.cols {
		return p
	}
	return q
}

// generate draws maps until one has a path from start to goal. Each cell is frozen with probability frozen.
func generate(rng *rand.Rand, size int, frozen float64) (*lake, error) {
	const tries = 1000
	cell := func() grid.Pos { return grid.Pos{Row: rng.IntN(size), Col: rng.IntN(size)} }
	for range tries {
		l := &lake{rows: size, cols: size, hole: make([]bool, size*size)}
		for i := range l.hole {
			l.hole[i] = rng.Float64() >= frozen
		}
		l.start, l.goal = cell(), cell()
		l.hole[l.index(l.start)], l.hole[l.index(l.goal)] = false, false
		if _, reachable := l.path(l.start); reachable && l.start != l.goal {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no %dx%d map with a path from start to goal in %d tries: raise p (now %g)", size, size,
		tries, frozen)
}

// parse reads a map in Gymnasium's letters: S start, F frozen, H hole, G goal.
func parse(rows []string) (*lake, error) {
	l := &lake{rows: len(rows)}
	starts, goals := 0, 0
	for r, row := range rows {
		if r == 0 {
			l.cols = len(row)
		}
		if len(row) != l.cols || len(row) == 0 {
			return nil, fmt.Errorf("option map: row %d has %d cells, the first has %d: expected equal rows", r,
				len(row), l.cols)
		}
		for c, letter := range []byte(row) {
			switch letter {
			case 'S':
				l.start = grid.Pos{Row: r, Col: c}
				starts++
			case 'G':
				l.goal = grid.Pos{Row: r, Col: c}
				goals++
			case 'F', 'H':
			default:
				return nil, fmt.Errorf("option map: row %d, column %d: expected S, F, H or G, got %q", r, c, letter)
			}
			l.hole = append(l.hole, letter == 'H')
		}
	}
	if starts != 1 || goals != 1 {
		return nil, fmt.Errorf("option map: expected one S and one G, got %d and %d", starts, goals)
	}
	if _, reachable := l.path(l.start); !reachable {
		return nil, fmt.Errorf("option map: the goal cannot be reached from the start without crossing a hole")
	}
	return l, nil
}

// path returns the shortest way to the goal around the holes, as indices of directions, preferring them in order.
func (l *lake) path(from grid.Pos) ([]int, bool) {
	if from == l.goal {
		return nil, true
	}
	if l.hole[l.index(from)] {
		return nil, false
	}
	type step struct {
		at     grid.Pos
		parent int
		action int
	}
	queue := []step{{from, -1, 0}}
	seen := make([]bool, len(l.hole))
	seen[l.index(from)] = true
	for head := 0; head < len(queue); head++ {
		for a, d := range directions {
			p := l.step(queue[head].at, d)
			if seen[l.index(p)] || l.hole[l.index(p)] {
				continue
			}
			seen[l.index(p)] = true
			queue = append(queue, step{p, head, a})
			if p == l.goal {
				var way []int
				for i := len(queue) - 1; i > 0; i = queue[i].parent {
					way = append(way, queue[i].action)
				}
				slices.Reverse(way)
				return way, true
			}
		}
	}
	return nil, false
}
