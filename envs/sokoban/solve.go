package sokoban

import "gyre/envs/grid"

const (
	maxDepth  = 100       // moves of the longest solution searched for
	maxStates = 1_000_000 // states visited before giving up
)

// solve finds a shortest solution, as indices of directions. Boxes on cells from which no target can be reached are not
// pursued.
func (b *board) solve() ([]int, bool) {
	dead := b.deadCells()
	path, _, ok := grid.Search[*board, string]{
		Moves: len(directions), Depth: maxDepth, Most: maxStates, Key: (*board).key,
		Move: func(s *board, a int) (*board, bool) {
			next, moved := s.move(directions[a])
			beyond := next.player.Add(directions[a])
			pushed := moved && s.boxAt(next.player)
			return next, moved && !(pushed && dead[b.Index(beyond)])
		},
		Goal: func(s *board) bool {
			all, placed := s.boxes()
			return placed == all
		},
	}.Path(b)
	return path, ok
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
	for ; len(queue) > 0; queue = queue[1:] {
		for _, d := range directions {
			from := b.At(queue[0]).Sub(d) // pushed from here by a player who stands behind
			if b.open(from) && b.open(from.Sub(d)) && dead[b.Index(from)] {
				dead[b.Index(from)] = false
				queue = append(queue, b.Index(from))
			}
		}
	}
	return dead
}
