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
