package frozenlake

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"gyre/envs"
	"gyre/envs/grid"
)

// lake is a map; holes, start and goal do not move.
type lake struct {
	grid.Size
	hole        []bool // row by row
	start, goal grid.Pos
}

var (
	actionNames = []string{"Left", "Down", "Right", "Up"}
	directions  = []grid.Pos{grid.Left, grid.Down, grid.Right, grid.Up}
)

// step is the cell that a move leads to: at the edge the player stays.
func (l *lake) step(p, d grid.Pos) grid.Pos {
	if q := p.Add(d); l.Inside(q) {
		return q
	}
	return p
}

// generate draws maps until one has a path from start to goal. Each cell is frozen with probability frozen.
func generate(rng *rand.Rand, size int, frozen float64) (*lake, error) {
	const tries = 1000
	cell := func() grid.Pos { return grid.Pos{Row: rng.IntN(size), Col: rng.IntN(size)} }
	for range tries {
		l := &lake{Size: grid.Size{Rows: size, Cols: size}, hole: make([]bool, size*size)}
		for i := range l.hole {
			l.hole[i] = rng.Float64() >= frozen
		}
		l.start, l.goal = cell(), cell()
		l.hole[l.Index(l.start)], l.hole[l.Index(l.goal)] = false, false
		if _, reachable := l.path(l.start); reachable && l.start != l.goal {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no %dx%d map with a path from start to goal in %d tries: raise p (now %g)", size, size,
		tries, frozen)
}

// parse reads a map in Gymnasium's letters: S start, F frozen, H hole, G goal.
func parse(rows []string) (*lake, error) {
	l := &lake{}
	letters := strings.Join(rows, "")
	for r, row := range rows {
		l.Size = grid.Size{Rows: len(rows), Cols: len(rows[0])}
		if len(row) != l.Cols || row == "" {
			return nil, fmt.Errorf("option map: row %d has %d cells, the first has %d: expected equal rows", r,
				len(row), l.Cols)
		}
		if c := strings.IndexFunc(row, func(r rune) bool { return !strings.ContainsRune("SFHG", r) }); c >= 0 {
			return nil, fmt.Errorf("option map: row %d, column %d: expected S, F, H or G, got %q", r, c, row[c])
		}
	}
	if starts, goals := strings.Count(letters, "S"), strings.Count(letters, "G"); starts != 1 || goals != 1 {
		return nil, fmt.Errorf("option map: expected one S and one G, got %d and %d", starts, goals)
	}
	l.start, l.goal = l.At(strings.Index(letters, "S")), l.At(strings.Index(letters, "G"))
	for _, letter := range letters {
		l.hole = append(l.hole, letter == 'H')
	}
	if _, reachable := l.path(l.start); !reachable {
		return nil, fmt.Errorf("option map: the goal cannot be reached from the start without crossing a hole")
	}
	return l, nil
}

// path returns the shortest way to the goal around the holes, as indices of directions, preferring them in order.
func (l *lake) path(from grid.Pos) ([]int, bool) {
	if l.hole[l.Index(from)] {
		return nil, false
	}
	way, _, ok := grid.Search[grid.Pos, grid.Pos]{
		Moves: len(directions), Depth: l.Cells(),
		Move: func(p grid.Pos, a int) (grid.Pos, bool) {
			next := l.step(p, directions[a])
			return next, !l.hole[l.Index(next)]
		},
		Key:  func(p grid.Pos) grid.Pos { return p },
		Goal: func(p grid.Pos) bool { return p == l.goal },
	}.Path(from)
	return way, ok
}

// Indices of the glyphs, in the order of option glyphs.
const (
	glyphPlayer = iota
	glyphIce
	glyphHole
	glyphGoal
	glyphFallen
	glyphArrived
)

var meanings = []string{"player", "ice", "hole", "goal", "player in a hole", "player on the goal"}

// Observe draws the lake; the start looks like any other ice in the grid.
func (g *game) Observe() envs.Observation {
	return envs.Observation{Text: g.look.Render(g.lake.Size, g.glyph, g.objects())}
}

// Board implements envs.Pictured.
func (g *game) Board() string { return g.look.Board().Render(g.lake.Size, g.glyph, g.objects()) }

// glyph returns the index of the glyph that shows a cell.
func (g *game) glyph(cell int) int {
	l := g.lake
	player, goal, hole := cell == l.Index(g.player), cell == l.Index(l.goal), l.hole[cell]
	switch {
	case player && goal:
		return glyphArrived
	case player && hole:
		return glyphFallen
	case player:
		return glyphPlayer
	case goal:
		return glyphGoal
	case hole:
		return glyphHole
	}
	return glyphIce
}

const marks = "#: hole, @: player, +: player on the goal, -: player in a hole, .: goal"

// objects are what all formats but the grid name.
func (g *game) objects() []grid.Objects {
	return []grid.Objects{
		{Label: "Start", At: []grid.Pos{g.lake.start}},
		{Label: "Goal", Mark: '.', Role: grid.Aim, Glyphs: []int{glyphGoal, glyphArrived}},
		{Label: "Player", Mark: '@', Role: grid.Actor, Glyphs: []int{glyphPlayer}},
		{Label: "Player on goal", Mark: '+', Role: grid.Actor, Glyphs: []int{glyphArrived}},
		{Label: "Player in hole", Mark: '-', Role: grid.Actor, Glyphs: []int{glyphFallen}},
		{Label: "Holes", Mark: '#', Glyphs: []int{glyphHole, glyphFallen}},
	}
}
