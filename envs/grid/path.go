package grid

import "slices"

// Search is a breadth-first search for a shortest list of moves to a goal. Moves are tried in their order, so the
// result is the same every time.
type Search[State any, Key comparable] struct {
	Moves int                                   // 0 to Moves-1 are tried
	Depth int                                   // moves of the longest list that is looked for
	Most  int                                   // states that may be met; 0 = any number
	Move  func(s State, move int) (State, bool) // false = it cannot be made
	Key   func(s State) Key                     // tells states apart
	Goal  func(s State) bool
}

// Path gives the moves, and the goal that they lead to.
func (s Search[State, Key]) Path(from State) ([]int, State, bool) {
	type node struct {
		state               State
		parent, move, depth int
	}
	var none State
	if s.Goal(from) {
		return nil, from, true
	}
	met := map[Key]struct{}{s.Key(from): {}}
	queue := []node{{state: from}}
	for head := 0; head < len(queue); head++ {
		n := queue[head]
		if n.depth == s.Depth {
			break
		}
		queue[head].state = none // only the way back is needed from here on
		for move := range s.Moves {
			next, possible := s.Move(n.state, move)
			before := len(met)
			if !possible || s.Most > 0 && before >= s.Most {
				continue
			}
			if met[s.Key(next)] = struct{}{}; len(met) == before {
				continue
			}
			queue = append(queue, node{next, head, move, n.depth + 1})
			if s.Goal(next) {
				var path []int
				for i := len(queue) - 1; i > 0; i = queue[i].parent {
					path = append(path, queue[i].move)
				}
				slices.Reverse(path)
				return path, next, true
			}
		}
	}
	return nil, none, false
}
