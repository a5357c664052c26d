package grid

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// noWay is the letter of a way of length 0; those after it count cells down or right, those before it up or
	// left. No word of a tokenizer's joins two capitals, so each letter stays a token.
	noWay    = 'O'
	farthest = 12 // rows and columns of the largest board that has letters for every way
)

// appendSurroundings writes each actor's mark, its way from the first actor, and what lies around it, then the ways
// to the aims: from the only actor, or from those that the first one moves.
func (l Look) appendSurroundings(text []byte, size Size, groups []Objects) []byte {
	marks := slices.Repeat([]byte{l.Blank}, size.Cells())
	ground := len(groups) - 1
	for _, group := range append([]Objects{groups[ground]}, groups[:ground]...) {
		for _, p := range group.At {
			if group.Mark != 0 {
				marks[size.Index(p)] = group.Mark
			}
		}
	}
	var actors, aims []Pos
	for _, group := range slices.Backward(groups) {
		switch group.Role {
		case Actor:
			actors = append(actors, group.At...)
		case Aim:
			aims = append(aims, group.At...)
		}
	}
	put := func(slots ...byte) {
		for _, slot := range slots {
			if n := len(text); n > 0 && text[n-1] != ' ' {
				text = append(text, l.Separator...)
			}
			text = append(text, slot)
		}
	}
	for i, actor := range actors {
		if i > 0 {
			text = append(text, ' ')
		}
		put(marks[size.Index(actor)])
		if i > 0 {
			down, right := way(actors[0], actor)
			put(down, right)
		}
		for row := actor.Row - l.View; row <= actor.Row+l.View; row++ {
			for col := actor.Col - l.View; col <= actor.Col+l.View; col++ {
				switch p := (Pos{row, col}); {
				case p == actor:
				case !size.Inside(p):
					put(l.Outside)
				default:
					put(marks[size.Index(p)])
				}
			}
		}
		if i > 0 || len(actors) == 1 {
			for _, aim := range aims {
				down, right := way(actor, aim)
				put('.', down, right)
			}
		}
	}
	return text
}

// way is two letters: so many cells down and so many to the right.
func way(from, to Pos) (down, right byte) {
	return byte(noWay + to.Row - from.Row), byte(noWay + to.Col - from.Col)
}

func (l Look) explainSurroundings(marks, rest string) string {
	var s strings.Builder
	side := 2*l.View + 1
	fmt.Fprintf(&s, "What matters is shown from where it stands: its mark and the %d cells around it, %d rows of %d "+
		"without its own, from the top left corner on. The player comes first. What the player moves follows with "+
		"the way to it behind its mark, and with the ways to where it belongs after its surroundings, each behind "+
		"the mark of a target; without such things they are the player's. ", side*side-1, side, side)
	fmt.Fprintf(&s, "A way has two letters, down and to the right: %c is no cell, %c, %c, … are 1, 2, … cells, %c, "+
		"%c, … as many up or to the left. ", noWay, noWay+1, noWay+2, noWay-1, noWay-2)
	fmt.Fprintf(&s, "Marks: %s, %c: %s", marks, l.Blank, rest)
	if l.Outside != l.Blank {
		fmt.Fprintf(&s, ", %c: beyond the edge", l.Outside)
	}
	return s.String()
}
