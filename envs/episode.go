package envs

import (
	"slices"
	"strings"
)

// Episode is the bookkeeping of an environment, which embeds it: whether an episode runs, which actions it has and how
// many it took. It implements Close.
type Episode struct {
	Steps   int // actions that Take has accepted since Begin
	actions []string
	running bool
}

// Begin starts an episode with these rules and legal actions (nil = any text).
func (e *Episode) Begin(rules string, actions []string) Start {
	*e = Episode{actions: actions, running: true}
	return Start{Instruction: rules, Actions: actions}
}

// Running says whether an episode has begun and not ended.
func (e *Episode) Running() bool { return e.running }

// Take counts an action and gives its index among the legal ones, whatever its case. One that is not legal is -1 and
// does not count.
func (e *Episode) Take(action string) (int, error) {
	if !e.running {
		return -1, ErrNotRunning
	}
	same := func(name string) bool { return name == action || strings.EqualFold(name, action) }
	i := slices.IndexFunc(e.actions, same)
	if i >= 0 || e.actions == nil {
		e.Steps++
	}
	return i, nil
}

// End gives the result of an action, and ends the episode with it where it is done.
func (e *Episode) End(r Result) (Result, error) {
	e.running = !r.Done
	return r, nil
}

// Names are the legal actions of these indices.
func (e *Episode) Names(indices []int) []string {
	names := make([]string, len(indices))
	for k, i := range indices {
		names[k] = e.actions[i]
	}
	return names
}

// Close ends the episode.
func (e *Episode) Close() error {
	e.running = false
	return nil
}

// At is the element of a list that a seed chooses: one after the other, and again from the start.
func At[T any](list []T, seed int64) T {
	n := int64(len(list))
	return list[(seed%n+n)%n]
}

// Indicator is 1 for true and 0 for false.
func Indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
