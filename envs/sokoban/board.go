package sokoban

import (
	"slices"

	"gyre/envs/grid"
)

// cell is what a place is made of, whoever stands on it.
type cell byte

const (
	wall cell = iota
	floor
	target
)

// board is the full state of a level: immovable cells, boxes, player.
type board struct {
	grid.Size
	cells  []cell // row by row
	box    []bool
	player grid.Pos
}

var (
	actionNames = []string{"Up", "Down", "Left", "Right"}
	directions  = []grid.Pos{grid.Up, grid.Down, grid.Left, grid.Right}
)

// push is a copy of the board in which the box at from has come to to. What does not move is shared.
func (b *board) push(from, to grid.Pos) *board {
	after := *b
	after.box = slices.Clone(b.box)
	after.box[b.Index(from)], after.box[b.Index(to)] = false, true
	return &after
}

func (b *board) boxAt(p grid.Pos) bool { return b.Inside(p) && b.box[b.Index(p)] }

// open says whether p is no wall, free whether a player or a box may enter it now.
func (b *board) open(p grid.Pos) bool { return b.Inside(p) && b.cells[b.Index(p)] != wall }
func (b *board) free(p grid.Pos) bool { return b.open(p) && !b.box[b.Index(p)] }

// move walks or pushes in a direction; ok is false, and the board the same, where neither is possible.
func (b *board) move(d grid.Pos) (after *board, ok bool) {
	next := b.player.Add(d)
	switch beyond := next.Add(d); {
	case b.boxAt(next) && b.free(beyond):
		after = b.push(next, beyond)
	case b.free(next):
		walked := *b
		after = &walked
	default:
		return b, false
	}
	after.player = next
	return after, true
}

// boxes counts all boxes, onTarget those that are where they belong.
func (b *board) boxes() (all, onTarget int) {
	for i, box := range b.box {
		if box {
			all++
			if b.cells[i] == target {
				onTarget++
			}
		}
	}
	return all, onTarget
}

// key identifies boxes and player on a fixed layout.
func (b *board) key() string {
	k := make([]byte, 0, 2*8)
	put := func(i int) { k = append(k, byte(i>>8), byte(i)) }
	put(b.Index(b.player))
	for i, box := range b.box {
		if box {
			put(i)
		}
	}
	return string(k)
}

// Indices of the glyphs, in the order of option glyphs.
const (
	glyphWall = iota
	glyphFloor
	glyphTarget
	glyphBoxOnTarget
	glyphBox
	glyphPlayer
	glyphPlayerOnTarget
)

var meanings = []string{"wall", "floor", "target", "box on a target", "box", "player", "player on a target"}

// glyph returns the index of the glyph that shows cell i.
func (b *board) glyph(i int) int {
	onTarget := b.cells[i] == target
	switch player := b.Index(b.player) == i; {
	case player && onTarget:
		return glyphPlayerOnTarget
	case player:
		return glyphPlayer
	case b.box[i] && onTarget:
		return glyphBoxOnTarget
	case b.box[i]:
		return glyphBox
	}
	return [...]int{wall: glyphWall, floor: glyphFloor, target: glyphTarget}[b.cells[i]]
}

// render draws the board.
func (b *board) render(look grid.Look) string { return look.Render(b.Size, b.glyph, objects) }

// The marks of the cells and surroundings formats are those of level files, but for the floor's.
const marks = "_: floor, also under what stands there, .: target, $: box, *: box on a target, @: player, +: player " +
	"on a target"

// objects are what all formats but the grid name.
var objects = []grid.Objects{
	{Label: "Targets", Mark: '.', Role: grid.Aim, Glyphs: []int{glyphTarget, glyphBoxOnTarget, glyphPlayerOnTarget}},
	{Label: "Boxes", Mark: '$', Role: grid.Actor, Glyphs: []int{glyphBox}},
	{Label: "Boxes on target", Mark: '*', Role: grid.Actor, Glyphs: []int{glyphBoxOnTarget}},
	{Label: "Player", Mark: '@', Role: grid.Actor, Glyphs: []int{glyphPlayer}},
	{Label: "Player on target", Mark: '+', Role: grid.Actor, Glyphs: []int{glyphPlayerOnTarget}},
	{Mark: '_', Glyphs: []int{glyphFloor, glyphTarget, glyphBoxOnTarget, glyphBox, glyphPlayer, glyphPlayerOnTarget}},
}
