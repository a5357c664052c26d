package sokoban

import (
	"slices"

	"gyre/envs/grid"
)

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
			s.homes = append(s.homes, solved.At(i))
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
		covered = covered || n.board.boxAt(home) || n.board.player == home
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
	player := n.board.player
	to, behind := player.Add(d), player.Sub(d)
	if !n.board.free(to) {
		return n, false
	}
	walked := *n.board
	n.board = &walked
	if walked.boxAt(behind) {
		n.board = walked.push(behind, player)
		i := slices.Index(n.at, behind)
		n.at = slices.Clone(n.at)
		n.at[i] = player
		if n.last != i {
			n.last = i
			n.swaps++
		}
	}
	n.board.player = to
	return n, true
}
