package episode

import (
	"fmt"
	"hash/fnv"
	"slices"
)

// TokenRewards places an episode's rewards: by default its whole score on the last token that the policy sampled, with
// turn rewards each amount on its own token, or, where that was not sampled, on the sampled token before it (the first
// one if there is none).
func (e *Episode) TokenRewards(perTurn bool) []float64 {
	out := make([]float64, len(e.IDs))
	if !perTurn {
		if last := e.sampledBefore(len(e.Mask)); last >= 0 {
			out[last] = e.Score
		}
		return out
	}
	for _, r := range e.Rewards {
		at := e.sampledBefore(r.Token + 1)
		if at < 0 {
			at = slices.Index(e.Mask, true)
		}
		if at >= 0 {
			out[at] += r.Value
		}
	}
	return out
}

// TurnEnds lists the last sampled token of each turn in which the policy said something, with the state in which the
// turn began: that of States or, where that is nil, of an agent outside say, a number of the tokens before the reply.
func (e *Episode) TurnEnds() (ends, states []int) {
	for i, turn := range e.Turns {
		last := e.sampledBefore(turn.End)
		if last < turn.Reply {
			continue
		}
		ends = append(ends, last)
		state := StateOf(fmt.Sprint(e.IDs[turn.Observation:turn.Reply]))
		if e.States != nil {
			state = e.States[i]
		}
		states = append(states, int(state))
	}
	return ends, states
}

// StateOf is the number of a state that an environment shows.
func StateOf(shown string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(shown))
	return h.Sum32()
}

// sampledBefore is the last sampled token before end, -1 if there is none.
func (e *Episode) sampledBefore(end int) int {
	for i := end - 1; i >= 0; i-- {
		if e.Mask[i] {
			return i
		}
	}
	return -1
}
