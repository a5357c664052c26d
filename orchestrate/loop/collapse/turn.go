package collapse

import (
	"sort"
	"strings"

	"gyre/orchestrate/loop/episode"
)

const endOfThought = "</think>"

// Turn is one reply of an episode: what the policy was shown, and what it thought before it answered.
type Turn struct {
	Prompt  []int32 // up to the reply, the forced opening of the thought included
	Thought []int32 // empty when the reply holds none that is closed
	Group   int
}

// Turns finds the thoughts of an episode. decode turns tokens into text.
func Turns(e *episode.Episode, decode func(ids []int32) string) []Turn {
	turns := make([]Turn, len(e.Turns))
	for i, t := range e.Turns {
		start := 0 // of the sequence that the policy saw
		e.Sequences(func(from, to int) {
			if from <= t.Reply && t.Reply < to {
				start = from
			}
		})
		turns[i] = Turn{Prompt: e.IDs[start:t.Reply], Thought: thought(e.IDs[t.Reply:t.End], decode), Group: e.Group}
	}
	return turns
}

// thought cuts the tokens before the end of the thought out of a reply, without those at either end that are only white
// space. A token that holds the end's first letters is left out.
func thought(reply []int32, decode func(ids []int32) string) []int32 {
	closed := sort.Search(len(reply)+1, func(n int) bool { return strings.Contains(decode(reply[:n]), endOfThought) })
	if closed > len(reply) {
		return nil
	}
	before := strings.Index(decode(reply[:closed]), endOfThought)
	n := sort.Search(closed, func(n int) bool { return len(decode(reply[:n+1])) > before })
	reply = reply[:n]
	blank := func(id int32) bool { return strings.TrimSpace(decode([]int32{id})) == "" }
	for len(reply) > 0 && blank(reply[0]) {
		reply = reply[1:]
	}
	for len(reply) > 0 && blank(reply[len(reply)-1]) {
		reply = reply[:len(reply)-1]
	}
	return reply
}
