package sokoban

import "gyre/envs/grid"

const (
	maxDepth  = 100       // moves of the longest solution searched for
	maxStates = 1_000_000 // states visited before giving up
)

// solve finds a shortest solution, as indices of directions, by breadth-first search over player and boxes, trying
// Up, Down, Left, Right in this order, so that the result is the same every time. Boxes on cells from which no
// target can be reached are not pursued.
func (b *board) solve() ([]int, bool) {
	if all, placed := b.boxes(); placed == all {
		return nil, true
	}
	type node struct {
		board  *board
		parent int
		action int
		depth  int
	}
	dead := b.deadCells()
	queue := []node{{board: b, parent: -1}}
	seen := map[string]struct{}{b.key(): {}}
	for head := 0; head < len(queue); head++ {
		n := queue[head]
		queue[head].board = nil // only the way back is needed from here on
		if n.depth == maxDepth {
			return nil, false
		}
		for a, d := range directions {
			next := n.board.player.Add(d)
			pushes := n.board.inside(next) && n.board.box[n.board.index(next)]
			if !pushes && !n.board.free(next) {
				continue
			}
			child := *n.board // a walk shares the boxes
			if pushes {
				if beyond := next.Add(d); !n.board.free(beyond) || dead[n.board.index(beyond)] {
					continue
				}
				child = *n.board.clone()
			}
			child.move(d)
			key := child.key()
			if _, known := seen[key]; known {
				continue
			}
			seen[key] = struct{}{}
			queue = append(queue, node{&child, head, a, n.depth + 1})
			if all, placed := child.boxes(); pushes && placed == all {
				path := make([]int, n.depth+1)
				for i := len(queue) - 1; i > 0; i = queue[i].parent {
					path[queue[i].depth-1] = queue[i].action
				}
				return path, true
			}
			if len(seen) >= maxStates {
				return nil, false
			}
		}
	}
	return nil, false
}

// deadCells marks the cells from which a lone box can reach no target, by pulling boxes away from every target.
func (b *board) deadCells() []bool {
	dead := make([]bool, len(b.cells))
	var queue []int
	for i, c := range b.cells {
		dead[i] = c != target
		if c == target {
			queue = append(queue, i)
		}
	}
	open := func(p grid.Pos) bool { return b.inside(p) && b.cells[b.index(p)] != wall }
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, d := range directions {
			from, player := b.at(i).Sub(d), b.at(i).Sub(d).Sub(d) // pushed from here by a player standing there
			if open(from) && open(player) && dead[b.index(from)] {
				dead[b.index(from)] = false
				queue = append(queue, b.index(from))
			}
		}
	}
	return dead
}
