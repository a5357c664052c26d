package episode

import (
	"fmt"
	"math"

	"gyre/envs"
)

// Stops are the reasons for which an episode ends, in Episode.Stop; a hand-written episode may leave it empty.
var Stops = []string{
	Terminated, // the environment said done
	Actions,    // the action budget is spent
	Turns,      // the turn budget is spent
	Length,     // the next turn would not fit in the longest episode allowed
	Timeout,    // an environment call took too long
	Panic,      // an environment call panicked
	Error,      // an environment call returned an error
}

// The values of Episode.Stop.
const (
	Terminated = "terminated"
	Actions    = "actions"
	Turns      = "turns"
	Length     = "length"
	Timeout    = "timeout"
	Panic      = "panic"
	Error      = "error"
)

// Check reports the first thing about e that breaks the format, naming the field and the index.
func (e *Episode) Check() error {
	n := len(e.IDs)
	switch {
	case n == 0:
		return fmt.Errorf("ids is empty, expected at least one token")
	case len(e.Mask) != n:
		return fmt.Errorf("mask has %d entries, expected %d (one per id)", len(e.Mask), n)
	case e.Mask[0]:
		return fmt.Errorf("mask[0] = 1: the first token has nothing before it and cannot be trained on")
	case e.Logprob != nil && len(e.Logprob) != n:
		return fmt.Errorf("logprobs has %d entries, expected %d (one per id)", len(e.Logprob), n)
	case !finite(e.Score):
		return fmt.Errorf("score = %v, expected a finite number", e.Score)
	case e.Group < 0:
		return fmt.Errorf("group = %d, expected 0 or more", e.Group)
	case e.Index < 0:
		return fmt.Errorf("episode = %d, expected 0 or more", e.Index)
	case e.Step < 0:
		return fmt.Errorf("step = %d, expected 0 or more", e.Step)
	}
	for t, id := range e.IDs {
		if id < 0 {
			return fmt.Errorf("ids[%d] = %d, expected 0 or more", t, id)
		}
	}
	for t, v := range e.Logprob {
		if e.Mask[t] && !finite(float64(v)) {
			return fmt.Errorf("logprobs[%d] = %v, expected a finite number where the mask is 1", t, v)
		}
	}
	if err := checkRewards("rewards", e.Rewards, n); err != nil {
		return err
	}
	for name, rewards := range e.Components {
		if err := envs.CheckName(name); err != nil { // it becomes part of metric names and of paths in archives
			return fmt.Errorf("components: %w", err)
		}
		if err := checkRewards("components."+name, rewards, n); err != nil {
			return err
		}
	}
	if err := e.checkContexts(); err != nil {
		return err
	}
	return e.checkTurns()
}

func checkRewards(field string, rewards []Reward, n int) error {
	for i, r := range rewards {
		if r.Token < 0 || r.Token >= n {
			return fmt.Errorf("%s[%d] is for token %d, expected 0 to %d", field, i, r.Token, n-1)
		}
		if !finite(r.Value) {
			return fmt.Errorf("%s[%d] = %v, expected a finite number", field, i, r.Value)
		}
	}
	return nil
}

func (e *Episode) checkContexts() error {
	for i, start := range e.Contexts {
		switch {
		case i == 0 && start != 0:
			return fmt.Errorf("contexts[0] = %d, expected 0", start)
		case i > 0 && (start <= e.Contexts[i-1] || start >= len(e.IDs)):
			return fmt.Errorf("contexts[%d] = %d, expected %d to %d", i, start, e.Contexts[i-1]+1, len(e.IDs)-1)
		case e.Mask[start]:
			return fmt.Errorf("mask[%d] = 1, but contexts[%d] starts there: the first token has nothing before it "+
				"and cannot be trained on", start, i)
		}
	}
	return nil
}

func (e *Episode) checkTurns() error {
	previous := 0
	for i, turn := range e.Turns {
		if turn.Observation < previous || turn.Reply < turn.Observation || turn.End < turn.Reply ||
			turn.End > len(e.IDs) {
			return fmt.Errorf("turns[%d] = [%d, %d, %d], expected %d <= observation <= reply <= end <= %d",
				i, turn.Observation, turn.Reply, turn.End, previous, len(e.IDs))
		}
		previous = turn.End
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
