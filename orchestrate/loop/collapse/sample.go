package collapse

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
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

// Measure returns a batch's metrics. score gives the log-prob of each sequence's thought, summed over its tokens.
func (m *Meter) Measure(episodes []*episode.Episode, decode func(ids []int32) string,
	score func([]Sequence) ([]float64, error),
	c config.Collapse, rng *rand.Rand) (out Metrics, err error) {
	var valid [][]Turn // with a thought, by episode
	var first []Turn
	turns, starts := 0, 0
	for _, e := range episodes {
		var kept []Turn
		for _, t := range Turns(e, decode) {
			turns++
			if t.First {
				starts++
			}
			if len(t.Thought) == 0 {
				continue
			}
			kept = append(kept, t)
			if t.First {
				first = append(first, t)
			}
		}
		if kept != nil {
			valid = append(valid, kept)
		}
	}
	if turns == 0 {
		return out, nil
	}
	thoughts := 0
	for _, kept := range valid {
		thoughts += len(kept)
	}
	of := func(v float64) *float64 { return &v }
	out.Valid, out.FirstShare = of(float64(thoughts)/float64(turns)), of(float64(len(first))/float64(max(starts, 1)))
	out.Starts, out.FirstValid = of(float64(starts)), of(float64(len(first)))
	measure := func(name string, rows []Turn, columns [][]int32, own []int) (*Estimate, error) {
		if len(columns) < 2 {
			return nil, nil
		}
		matrix, err := fill(rows, columns, score)
		if err != nil {
			return nil, err
		}
		return m.estimate(name, matrix, rows, columns, own, c), nil
	}
	if c.FirstTurn {
		rows := pick(first, c.Samples, rng)
		columns, own, err := byGroup(rows)
		if err != nil {
			return out, err
		}
		if out.FirstTurn, err = measure("collapse_first_turn_sample", rows, columns, own); err != nil {
			return out, err
		}
	}
	if c.MultiTurn && len(valid) > 0 {
		rows := make([]Turn, min(c.Samples, thoughts))
		columns, own := make([][]int32, len(rows)), make([]int, len(rows))
		for i := range rows {
			kept := valid[rng.IntN(len(valid))]
			rows[i] = kept[rng.IntN(len(kept))]
			columns[i], own[i] = rows[i].Prompt, i
		}
		if out.Trajectory, err = measure("collapse_trajectory_sample", rows, columns, own); err != nil {
			return out, err
		}
	}
	return out, nil
}

// pick draws at most n turns without replacement, in their order.
func pick(turns []Turn, n int, rng *rand.Rand) []Turn {
	if len(turns) <= n {
		return turns
	}
	indices := rng.Perm(len(turns))[:n]
	slices.Sort(indices)
	out := make([]Turn, n)
	for i, k := range indices {
		out[i] = turns[k]
	}
	return out
}

// byGroup makes one column per group, whose members must have seen the same prompt.
func byGroup(rows []Turn) (columns [][]int32, own []int, err error) {
	index := map[int]int{}
	for _, t := range rows {
		j, known := index[t.Group]
		if !known {
			j = len(columns)
			index[t.Group] = j
			columns = append(columns, t.Prompt)
		}
		if !slices.Equal(columns[j], t.Prompt) {
			return nil, nil, fmt.Errorf("the members of group %d have seen different first prompts: set "+
				"collapse.first_turn = false for this environment", t.Group)
		}
		own = append(own, j)
	}
	return columns, own, nil
}

// fill scores every thought under every prompt: matrix[i][j] is the log-prob of thought i after prompt j.
func fill(rows []Turn, columns [][]int32, score func([]Sequence) ([]float64, error)) ([][]float64, error) {
	sequences := make([]Sequence, 0, len(rows)*len(columns))
	for _, t := range rows {
		for _, prompt := range columns {
			sequences = append(sequences, Sequence{IDs: slices.Concat(prompt, t.Thought), From: len(prompt)})
		}
	}
	sums, err := score(sequences)
	if err != nil {
		return nil, err
	}
	matrix := make([][]float64, len(rows))
	for i := range rows {
		matrix[i] = sums[i*len(columns) : (i+1)*len(columns)]
		for _, s := range matrix[i] {
			if math.IsNaN(s) || math.IsInf(s, 0) {
				return nil, fmt.Errorf("a thought's log-prob is %g", s)
			}
		}
	}
	return matrix, nil
}
