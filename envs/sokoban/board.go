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
	rows, cols int
	cells      []cell // rows*cols, row-major
	box        []bool // rows*cols
	player     grid.Pos
}

var (
	actionNames = []string{"Up", "Down", "Left", "Right"}
	directions  = []grid.Pos{grid.Up, grid.Down, grid.Left, grid.Right}
)

func (b *board) clone() *board {
	c := *b
	c.cells, c.box = slices.Clone(b.cells), slices.Clone(b.box)
	return &c
}

func (b *board) index(p grid.Pos) int { return p.Row*b.cols + p.Col }

func (b *board) at(i int) grid.Pos { return grid.Pos{Row: i / b.cols, Col: i % b.cols} }

func (b *board) inside(p grid.Pos) bool {
	return p.Row >= 0 && p.Row < b.rows && p.Col >= 0 && p.Col < b.cols
}

// free says whether a player or a box may enter p.
func (b *board) free(p grid.Pos) bool {
	return b.inside(p) && b.cells[b.index(p)] != wall && !b.box[b.index(p)]
}

// move walks or pushes in a direction and says whether the player moved.
func (b *board) move(d grid.Pos) bool {
	next := b.player.Add(d)
	if b.inside(next) && b.box[b.index(next)] {
		beyond := next.Add(d)
		if !b.free(beyond) {
			return false
		}
		b.box[b.index(next)], b.box[b.index(beyond)] = false, true
	}
	if !b.free(next) {
		return false
	}
	b.player = next
	return true
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
	switch player := b.index(b.player) == i; {
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
func (b *board) render(look grid.Look) string {
	return look.Render(b.rows, b.cols, b.glyph, b.objects)
}

// The marks of the cells and surroundings formats are those of level files, but for the floor's.
const marks = "_: floor, also under what stands there, .: target, $: box, *: box on a target, @: player, +: player " +
	"on a target"

// objects lists what all formats but the grid name.
func (b *board) objects() []grid.Objects {
	list := []grid.Objects{{Label: "Targets", Mark: '.', Role: grid.Aim}, {Label: "Boxes", Mark: '$', Role: grid.Actor},
		{Label: "Boxes on target", Mark: '*', Role: grid.Actor}, {Label: "Player", Mark: '@', Role: grid.Actor},
		{Label: "Player on target", Mark: '+', Role: grid.Actor}, {Mark: '_'}}
	for i, c := range b.cells {
		if c != wall {
			list[5].At = append(list[5].At, b.at(i))
		}
		if c == target {
			list[0].At = append(list[0].At, b.at(i))
		}
		line := 0
		switch b.glyph(i) {
		case glyphBox:
			line = 1
		case glyphBoxOnTarget:
			line = 2
		case glyphPlayer:
			line = 3
		case glyphPlayerOnTarget:
			line = 4
		default:
			continue
		}
		list[line].At = append(list[line].At, b.at(i))
	}
	return list
}
