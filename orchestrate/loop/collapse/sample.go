package collapse

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"

	"gyre/internal/statistics"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/train"
)

// Sequence is a thought after some prompt; the thought starts at From.
type Sequence struct {
	IDs  []int32
	From int
}

// Meter measures batches of one run. Its averages travel in the checkpoint.
type Meter struct {
	// moving averages of the marginals' standard deviations, by metric
	Deviations map[string]float64 `json:"deviations"`
}

// Measure returns a batch's metrics, nil where nobody took a turn. score gives the log-prob of each sequence's thought,
// summed over its tokens.
func (m *Meter) Measure(episodes []*episode.Episode, decode func(ids []int32) string,
	score func([]Sequence) ([]float64, error), c config.Collapse, rng *rand.Rand) (out *Metrics, err error) {
	var valid [][]Turn // with a thought, by episode
	var first []Turn
	turns, starts, thoughts := 0, 0, 0
	for _, e := range episodes {
		var kept []Turn
		for i, t := range Turns(e, decode) {
			turns++
			if i == 0 {
				starts++
			}
			if len(t.Thought) == 0 {
				continue
			}
			kept = append(kept, t)
			if i == 0 {
				first = append(first, t)
			}
		}
		if thoughts += len(kept); kept != nil {
			valid = append(valid, kept)
		}
	}
	if turns == 0 {
		return nil, nil
	}
	out = &Metrics{Valid: float64(thoughts) / float64(turns), Starts: starts, FirstValid: len(first),
		FirstShare: float64(len(first)) / float64(max(starts, 1))}
	measure := func(name string, s *sample) (*Estimate, error) {
		if len(s.prompts) < 2 {
			return nil, nil
		}
		if err := s.fill(score); err != nil {
			return nil, err
		}
		return m.estimate(name, s, c), nil
	}
	if c.FirstTurn {
		s, err := byGroup(pick(first, c.Samples, rng))
		if err != nil {
			return nil, err
		}
		if out.FirstTurn, err = measure("collapse_first_turn_sample", s); err != nil {
			return nil, err
		}
	}
	if c.MultiTurn && len(valid) > 0 {
		s := &sample{}
		for i := range min(c.Samples, thoughts) {
			kept := valid[rng.IntN(len(valid))]
			s.add(kept[rng.IntN(len(kept))], i)
		}
		out.Trajectory, err = measure("collapse_trajectory_sample", s)
	}
	return out, err
}

// pick draws at most n turns without replacement, in their order.
func pick(turns []Turn, n int, rng *rand.Rand) []Turn {
	if len(turns) <= n {
		return turns
	}
	indices := rng.Perm(len(turns))[:n]
	slices.Sort(indices)
	return train.Rows(turns, indices)
}

// sample is turns and the prompts that their thoughts are scored under.
type sample struct {
	rows    []Turn
	prompts [][]int32
	own     []int       // index of each row's prompt
	sums    [][]float64 // of log-probs, by row and prompt
}

// add adds a turn whose prompt has the index own, the next one if it is new.
func (s *sample) add(t Turn, own int) {
	if s.rows, s.own = append(s.rows, t), append(s.own, own); own == len(s.prompts) {
		s.prompts = append(s.prompts, t.Prompt)
	}
}

// byGroup has one prompt per group, whose members must have seen the same one.
func byGroup(rows []Turn) (*sample, error) {
	s, index := &sample{}, map[int]int{}
	for _, t := range rows {
		j, known := index[t.Group]
		if !known {
			j = len(index)
			index[t.Group] = j
		}
		s.add(t, j)
		if !slices.Equal(s.prompts[j], t.Prompt) {
			return nil, fmt.Errorf("the members of group %d have seen different first prompts: set "+
				"collapse.first_turn = false for this environment", t.Group)
		}
	}
	return s, nil
}

// fill scores every thought under every prompt.
func (s *sample) fill(score func([]Sequence) ([]float64, error)) error {
	var sequences []Sequence
	for _, t := range s.rows {
		for _, prompt := range s.prompts {
			sequences = append(sequences, Sequence{IDs: slices.Concat(prompt, t.Thought), From: len(prompt)})
		}
	}
	sums, err := score(sequences)
	if err != nil {
		return err
	}
	for _, sum := range sums {
		if !statistics.Finite(sum) {
			return fmt.Errorf("a thought's log-prob is %g", sum)
		}
	}
	s.sums = slices.Collect(slices.Chunk(sums, len(s.prompts)))
	return nil
}

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
		turns[i] = Turn{Prompt: e.IDs[e.SequenceStart(t.Reply):t.Reply], Group: e.Group,
			Thought: thought(e.IDs[t.Reply:t.End], decode)}
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
