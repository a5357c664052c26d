package trainer

import (
	"slices"

	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/loop/episode"
	"gyre/torch"
)

// Sample is one episode on its way through a step, with its token-aligned columns. Columns are nil until the step fills them.
type Sample struct {
	*episode.Episode
	Spread     float64   // reward spread of its group, before filtering
	Old        []float32 // log-probs of the policy that is about to be updated
	Reference  []float32 // log-probs of the KL reference
	Values     []float32
	Advantages []float32
	Returns    []float32
}

// wrap makes samples whose columns are still to be filled.
func wrap(episodes []*episode.Episode) []*Sample {
	out := make([]*Sample, len(episodes))
	for i, e := range episodes {
		out[i] = &Sample{Episode: e}
	}
	return out
}

// miniBatches cuts 0…n-1 into consecutive runs of size; the last may be shorter.
func miniBatches(n, size int) [][]int {
	var out [][]int
	indices := all(n)
	for len(indices) > 0 {
		k := min(size, len(indices))
		out = append(out, indices[:k])
		indices = indices[k:]
	}
	return out
}

// lossWeights gives every token of the chosen samples its weight under the aggregation mode, normalised over all of them, keyed by
// sample index. width is what seq-mean-token-sum-norm divides by: that of the whole rollout as verl lays it out, episodes that the filter
// dropped included.
func lossWeights(samples []*Sample, indices []int, mode string, width int) (map[int][]float32, error) {
	masks := make([][]bool, len(indices))
	for j, i := range indices {
		masks[j] = samples[i].Mask
	}
	weights, err := advantage.LossWeights(mode, masks, width)
	if err != nil {
		return nil, err
	}
	out := make(map[int][]float32, len(indices))
	for j, i := range indices {
		out[i] = weights[j]
	}
	return out, nil
}

// stretch is a run of a sample's tokens that the policy saw as a sequence by itself: all of them, unless its context mode forgets.
type stretch struct{ sample, from, to int }

// whole are the stretches of one sample.
func whole(samples []*Sample, i int) []stretch {
	var out []stretch
	samples[i].Sequences(func(from, to int) { out = append(out, stretch{i, from, to}) })
	return out
}

// microBatches cuts the chosen samples into runs of stretches that take at most budget rows. Stretches with a common prefix come next to
// each other, because the tokens that they share take one row each and are computed once; equal ones keep their order. One that is longer
// than the budget gets a micro-batch of its own.
func microBatches(samples []*Sample, indices []int, budget int) [][]stretch {
	var sorted []stretch
	for _, i := range indices {
		sorted = append(sorted, whole(samples, i)...)
	}
	ids := func(s stretch) []int32 { return samples[s.sample].IDs[s.from:s.to] }
	slices.SortStableFunc(sorted, func(a, b stretch) int { return slices.Compare(ids(a), ids(b)) })
	var out [][]stretch
	var current []stretch
	rows := 0
	for _, s := range sorted {
		n := s.to - s.from
		if len(current) > 0 {
			// In this order no other stretch of the run has more in common with this one than the last.
			n -= commonPrefix(ids(s), ids(current[len(current)-1]))
		}
		if len(current) > 0 && n > 0 && rows+n > budget {
			out = append(out, current)
			current, rows, n = nil, 0, s.to-s.from
		}
		current = append(current, s)
		rows += n
	}
	if len(current) > 0 {
		out = append(out, current)
	}
	return out
}

// begun counts the episodes whose first stretch is among these: over all micro-batches, each episode once, however many turns are sequences of
// their own.
func begun(micro []stretch) (episodes int) {
	for _, s := range micro {
		if s.from == 0 {
			episodes++
		}
	}
	return episodes
}

// commonPrefix is the number of tokens that a and b begin with together.
func commonPrefix(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// pack lays stretches one after another.
func pack(samples []*Sample, micro []stretch) torch.Batch {
	ids := make([][]int32, len(micro))
	masks := make([][]bool, len(micro))
	for j, s := range micro {
		ids[j], masks[j] = samples[s.sample].IDs[s.from:s.to], samples[s.sample].Mask[s.from:s.to]
	}
	return torch.Pack(ids, masks)
}

// gather concatenates what stretches have of one column of their samples, which is given by sample index.
func gather(micro []stretch, column func(i int) []float32) []float32 {
	var out []float32
	for _, s := range micro {
		out = append(out, column(s.sample)[s.from:s.to]...)
	}
	return out
}

// scatter puts a packed column back into the samples', which is given by sample index.
func scatter(samples []*Sample, micro []stretch, packed []float32, column func(i int) *[]float32) {
	offset := 0
	for _, s := range micro {
		n, whole := s.to-s.from, len(samples[s.sample].IDs)
		into := column(s.sample)
		if len(*into) != whole {
			*into = make([]float32, whole)
		}
		copy((*into)[s.from:s.to], packed[offset:offset+n])
		offset += n
	}
}

// all lists 0 … n-1.
func all(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
