// Package episode defines a played episode and its JSONL form, the file format between playing, updating and analysing.
//
// One episode is one line, one JSON object:
//
//	{"step": 7, "group": 3, "episode": 50, "tag": "sokoban", "seed": 10059, "ids": [1, 319, 88], "mask": [0, 0, 1],
//	 "logprobs": [null, null, -0.31], "rewards": [[2, 10.9]], "score": 10.9, "success": true, "stop": "terminated",
//	 "turns": [[0, 2, 3]]}
//
// A line may go on with "contexts": [0, 57], the starts of the sequences that ids holds one after another (absent: it
// is one sequence), and with "components": {"correctness": [[2, 1.0]], "format": [[2, 0.5]]}, the named components of
// the reward as (token index, reward) pairs, unweighted. score stays the number that training uses. "versions":
// [[12, 6], [40, 7]] says that the weights after 6 training steps drew from token 12 on, and those after 7 from token
// 40 on. "cut": [1] says that the second turn's reply was cut off by rollout.max_tokens. "states": [77, 5, 77] says
// that the third turn began in the state in which the first did. "weight": 0.5 says that the episode counts half in the
// loss, because its group has twice as many as it would have by itself.
//
// ids, mask, group and rewards are required. The rest may be absent in hand-written files and then means: logprobs
// unknown (nil), turns one per run of policy tokens, score the sum of the rewards, episode the line's position in the
// file, success unknown (null says the same), and zero values for step, seed, tag and stop. A log-prob is null where
// the mask is 0; a number there is read and ignored.
package episode

import (
	"fmt"

	"gyre/envs"
	"gyre/internal/masks"
	"gyre/internal/statistics"
)

// Reward is an amount credited to one token.
type Reward struct {
	Token int
	Value float64
}

// Run says from which token on a version of the weights drew.
type Run struct{ Token, Version int }

// Turn locates one turn in the token list: observation [Observation, Reply), reply [Reply, End).
type Turn struct {
	Observation, Reply, End int
}

// Episode is one played episode: tokens, who wrote them, and what they earned. All per-token slices are as long as IDs
// (token-aligned: entry t speaks of token t given the tokens before it).
type Episode struct {
	Step    int    // training step, 0 for hand-written ones
	Group   int    // members of a group started from the same state
	Index   int    // position in the step's batch
	Tag     string // environment tag
	Label   string // what the environment calls the episode (the problem of a data set); may be empty
	Gold    string // the right answer, where there is one and it is known
	Seed    int64  // environment seed
	IDs     []int32
	Mask    []bool    // true where the policy sampled the token
	Logprob []float32 // under the policy being trained at rollout temperature; 0 where Mask is false. nil = unknown
	Rewards []Reward
	// Components are the named components of the reward, unweighted, in the order of their tokens; nil = none are
	// known.
	Components map[string][]Reward
	// Score is the sum of rewards after penalties and normalisation: what filters, buckets and group advantages use.
	Score float64
	// Weight of the episode in the loss, where the sizes of groups follow a budget; 0 = 1.
	Weight  float64
	Success bool
	// Unjudged says that nobody knows whether the episode was a success: Success is false then (see Verdict).
	Unjudged bool
	Stop     string // terminated | actions | turns | length | timeout | panic | error
	Turns    []Turn
	Cut      []int // the turns, from 0, whose reply was cut off because it was as long as replies may be
	// States are numbers of what the environment showed before each turn, equal where that was; nil = unknown.
	States []uint32
	// Contexts are the starts of the token sequences that IDs holds one after another, each of which the policy saw
	// by itself; nil = one sequence. A context mode that forgets makes one for every prompt that does not extend the
	// one before.
	Contexts []int
	// Versions are the versions of the weights that drew the tokens, in runs: each holds from its token on until the
	// next. A version counts the training steps before; nil = unknown.
	Versions []Run
	// Mixed are the tokens, from one to before another, that were drawn with keys and values of older weights than the
	// version's: their log-probs are not the ones that the version alone would give.
	Mixed [][2]int
	// Metrics are those of the environment (means over turns) and of the episode, not saved; sums of components are
	// not among them.
	Metrics map[string]float64
}

// Verdict says whether an episode was a success, to people.
func Verdict(success, unjudged bool) string {
	switch {
	case unjudged:
		return "success unknown"
	case success:
		return "solved"
	}
	return "not solved"
}

// SequenceStart is where the sequence begins that holds a token.
func (e *Episode) SequenceStart(token int) (start int) {
	for _, next := range e.Contexts {
		if next <= token {
			start = next
		}
	}
	return start
}

// PolicyTokens counts the tokens the policy sampled.
func (e *Episode) PolicyTokens() int { return masks.Count(e.Mask) }

// Return is the sum of the rewards: the score before normalisation.
func (e *Episode) Return() float64 { return Sum(e.Rewards) }

// Sum adds up rewards in their order.
func Sum(rewards []Reward) float64 {
	sum := 0.0
	for _, r := range rewards {
		sum += r.Value
	}
	return sum
}

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
	case !statistics.Finite(e.Score):
		return fmt.Errorf("score = %v, expected a finite number", e.Score)
	case !statistics.Finite(e.Weight) || e.Weight < 0:
		return fmt.Errorf("weight = %v, expected a finite number of 0 or more", e.Weight)
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
		if e.Mask[t] && !statistics.Finite(float64(v)) {
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
	for i, run := range e.Versions {
		if run.Token < 0 || run.Token >= n || run.Version < 0 || i > 0 && run.Token <= e.Versions[i-1].Token {
			return fmt.Errorf("versions[%d] = [%d, %d], expected a token behind that of the entry before and below "+
				"%d, and a version of 0 or more", i, run.Token, run.Version, n)
		}
	}
	for i, part := range e.Mixed {
		if part[0] < 0 || part[0] >= part[1] || part[1] > n {
			return fmt.Errorf("mixed[%d] = %v, expected tokens of the episode: from 0 or more to before %d or fewer", i,
				part, n)
		}
	}
	return e.checkTurns()
}

func checkRewards(field string, rewards []Reward, n int) error {
	for i, r := range rewards {
		if r.Token < 0 || r.Token >= n {
			return fmt.Errorf("%s[%d] is for token %d, expected 0 to %d", field, i, r.Token, n-1)
		}
		if !statistics.Finite(r.Value) {
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
	if e.States != nil && len(e.States) != len(e.Turns) {
		return fmt.Errorf("states has %d entries, expected %d (one per turn)", len(e.States), len(e.Turns))
	}
	for i, turn := range e.Cut {
		if turn < 0 || turn >= len(e.Turns) {
			return fmt.Errorf("cut[%d] = %d, expected one of the %d turns, from 0", i, turn, len(e.Turns))
		}
	}
	return nil
}
