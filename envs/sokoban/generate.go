package sokoban

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"gyre/envs"
	"gyre/envs/grid"
)

const (
	levelTries    = 4    // layouts tried per seed
	seedTries     = 1000 // seeds tried per level
	turnChance    = 0.35 // of a new direction at each step of the tunnel walk
	stepsPerSide  = 1.7  // tunnel steps per row and column
	maxFinalSteps = 3    // of the player's last walk
)

// stamps are the shapes that the tunnel walk carves around its position.
var stamps = [][]grid.Pos{
	{{Row: 0, Col: -1}, {}, {Row: 0, Col: 1}},
	{{Row: -1, Col: 0}, {}, {Row: 1, Col: 0}},
	{{Row: 0, Col: -1}, {}, {Row: 1, Col: 0}},
	{{Row: 0, Col: -1}, {}, {Row: 1, Col: -1}, {Row: 1, Col: 0}},
	{{}, {Row: 0, Col: 1}, {Row: 1, Col: 0}},
}

// generate makes the level of a seed. A seed that yields no level is replaced by envs.Reseed of it, so the level is
// still a function of the seed. It also returns the total Manhattan distance of the boxes from their targets.
func generate(seed int64, rows, cols, boxes, depth int) (*board, int, error) {
	next := seed
	for range seedTries {
		rng := envs.Rand("sokoban", next)
		if b, displacement := tryGenerate(rng, rows, cols, boxes, depth); b != nil {
			return b, displacement, nil
		}
		next = envs.Reseed(next)
	}
	return nil, 0, fmt.Errorf("no %dx%d level with %d boxes found for seed %d after %d seeds: "+
		"enlarge size, lower boxes or raise search_depth", rows, cols, boxes, seed, seedTries)
}

// tryGenerate returns nil if the generator's state yields no level.
func tryGenerate(rng *rand.Rand, rows, cols, boxes, depth int) (*board, int) {
	for range levelTries {
		b := &board{Size: grid.Size{Rows: rows, Cols: cols}, cells: carve(rng, rows, cols),
			box: make([]bool, rows*cols)}
		if !place(rng, b, boxes) {
			return nil, 0
		}
		if hardest, displacement := pullApart(b, depth); displacement > 0 {
			lastWalk(rng, hardest, displacement)
			return hardest, displacement
		}
	}
	return nil, 0
}

// carve digs floor along a random walk that keeps its direction for a while.
func carve(rng *rand.Rand, rows, cols int) []cell {
	headings := []grid.Pos{grid.Down, grid.Right, grid.Up, grid.Left}
	cells := make([]cell, rows*cols)
	heading := headings[rng.IntN(4)]
	at := grid.Pos{Row: 1 + rng.IntN(rows-1), Col: 1 + rng.IntN(cols-1)}
	for range int(stepsPerSide * float64(rows+cols)) {
		if rng.Float64() < turnChance {
			heading = headings[rng.IntN(4)]
		}
		at = at.Add(heading)
		at = grid.Pos{Row: min(max(at.Row, 1), rows-2), Col: min(max(at.Col, 1), cols-2)}
		for _, offset := range stamps[rng.IntN(len(stamps))] {
			p := at.Add(offset)
			if p.Row > 0 && p.Row < rows-1 && p.Col > 0 && p.Col < cols-1 {
				cells[p.Row*cols+p.Col] = floor
			}
		}
	}
	return cells
}

// place puts the player and then targets, each with its box on it, on distinct random floor cells. It reports whether
// there is room.
func place(rng *rand.Rand, b *board, boxes int) bool {
	var free []int
	for i, c := range b.cells {
		if c == floor {
			free = append(free, i)
		}
	}
	if len(free) <= boxes+1 {
		return false
	}
	take := func() int {
		k := rng.IntN(len(free))
		defer func() { free = slices.Delete(free, k, k+1) }()
		return free[k]
	}
	b.player = b.At(take())
	for range boxes {
		i := take()
		b.cells[i], b.box[i] = target, true
	}
	return true
}

// lastWalk moves the player a few steps away so that it does not always stand beside the box it pulled last.
func lastWalk(rng *rand.Rand, b *board, displacement int) {
	chance := 0.5
	if displacement == 1 {
		chance = 0.8
	}
	if rng.Float64() >= chance {
		return
	}
	visited := map[grid.Pos]bool{b.player: true}
	for range maxFinalSteps {
		var open []grid.Pos
		for _, d := range directions {
			if p := b.player.Add(d); b.free(p) && !visited[p] {
				open = append(open, p)
			}
		}
		if len(open) == 0 {
			return
		}
		b.player = open[rng.IntN(len(open))]
		visited[b.player] = true
		if rng.Float64() >= 0.5 {
			return
		}
	}
}
