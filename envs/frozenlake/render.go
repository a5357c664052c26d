package frozenlake

import (
	"gyre/envs"
	"gyre/envs/grid"
)

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
	l, player := g.lake, g.lake.index(g.player)
	standing, label := glyphPlayer, "Player"
	switch {
	case g.player == l.goal:
		standing, label = glyphArrived, "Player on goal"
	case l.hole[player]:
		standing, label = glyphFallen, "Player in hole"
	}
	var holes []grid.Pos
	drawing := make([]rune, 0, (l.cols+1)*l.rows)
	for i, hole := range l.hole {
		if i > 0 && i%l.cols == 0 {
			drawing = append(drawing, '\n')
		}
		glyph := glyphIce
		if hole {
			glyph = glyphHole
			holes = append(holes, grid.Pos{Row: i / l.cols, Col: i % l.cols})
		}
		if i == l.index(l.goal) {
			glyph = glyphGoal
		}
		if i == player {
			glyph = standing
		}
		drawing = append(drawing, g.glyphs[glyph])
	}
	return envs.Observation{Text: grid.Render(g.options.Observation, l.rows, l.cols, []grid.Objects{
		{Label: "Start", At: []grid.Pos{l.start}}, {Label: "Goal", At: []grid.Pos{l.goal}},
		{Label: label, At: []grid.Pos{g.player}}, {Label: "Holes", At: holes},
	}, string(drawing))}
}
