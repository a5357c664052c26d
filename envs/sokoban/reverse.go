package sokoban

import "gyre/envs/grid"

// maxExplored bounds the states of one reverse search.
const maxExplored = 300_000

// reverseSearch plays a solved board backwards, depth first. It keeps the state whose score is highest: the number of
// times the pulled box changed, times the boxes' total distance from their targets.
type reverseSearch struct {
	homes    []grid.Pos // target of each box
	explored map[string]struct{}
	best     *board
	score    int // of best
	distance int // of best
}

// pulled is a node of the search: a board, where each box is, and how it came there.
type pulled struct {
	board *board
	at    []grid.Pos // of each box
	last  int        // the box pulled last, -1 before the first pull
	swaps int
}

// pullApart returns the hardest state found within depth moves of the solved board, and its boxes' total distance from
// their targets (0: no box could be moved away).
func pullApart(solved *board, depth int) (*board, int) {
	s := &reverseSearch{explored: map[string]struct{}{}, score: -1}
	for i, box := range solved.box {
		if box {
			s.homes = append(s.homes, solved.at(i))
		}
	}
	s.visit(pulled{board: solved, at: s.homes, last: -1}, depth)
	if s.best == nil {
		return nil, 0
	}
	return s.best, s.distance
}

func (s *reverseSearch) visit(n pulled, depth int) {
	depth--
	if depth <= 0 || len(s.explored) >= maxExplored {
		return
	}
	key := n.board.key()
	if _, seen := s.explored[key]; seen {
		return
	}
	s.explored[key] = struct{}{}
	s.rate(n)
	for _, d := range directions {
		if child, moved := n.pull(d); moved {
			s.visit(child, depth)
		}
	}
}

// rate keeps n if it is better than the best so far. A state counts only if every target is in view, covered neither by
// a box nor by the player.
func (s *reverseSearch) rate(n pulled) {
	distance, covered := 0, false
	for i, home := range s.homes {
		distance += n.at[i].Distance(home)
		covered = covered || n.board.box[n.board.index(home)] || n.board.player == home
	}
	score := n.swaps * distance
	if covered {
		score = 0
	}
	if score > s.score {
		s.score, s.distance, s.best = score, distance, n.board
	}
}

// pull steps in a direction and drags along a box that stands right behind. Nodes share what a move does not change.
func (n pulled) pull(d grid.Pos) (pulled, bool) {
	to, behind := n.board.player.Add(d), n.board.player.Sub(d)
	if !n.board.free(to) {
		return n, false
	}
	child := n
	b := *n.board
	child.board = &b
	b.player = to
	if n.board.inside(behind) && n.board.box[b.index(behind)] {
		b = *n.board.clone()
		b.player = to
		b.box[b.index(behind)], b.box[b.index(n.board.player)] = false, true
		child.at = append([]grid.Pos(nil), n.at...)
		for i, p := range n.at {
			if p != behind {
				continue
			}
			child.at[i] = n.board.player
			if n.last != i {
				child.last = i
				child.swaps++
			}
		}
	}
	return child, true
}

// key identifies boxes and player on a fixed layout.
func (b *board) key() string {
	k := make([]byte, 0, 2*8)
	put := func(i int) { k = append(k, byte(i>>8), byte(i)) }
	put(b.index(b.player))
	for i, box := range b.box {
		if box {
			put(i)
		}
	}
	return string(k)
}
