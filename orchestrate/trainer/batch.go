package trainer

import (
	"slices"

	"gyre/orchestrate/advantage"
	"gyre/orchestrate/episode"
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
// sample index. The width of seq-mean-token-sum-norm is that of the whole batch as verl lays it out: its longest episode less the first
// token, which is never predicted.
func lossWeights(samples []*Sample, indices []int, mode string) (map[int][]float32, error) {
	width := 0
	for _, s := range samples {
		width = max(width, len(s.IDs)-1)
	}
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

// microBatches cuts sample indices into runs that take at most budget rows. Samples with a common prefix come next to each other, because
// the tokens that they share take one row each and are computed once; equal samples keep their order. A sample longer than the budget gets a
// micro-batch of its own.
func microBatches(samples []*Sample, indices []int, budget int) [][]int {
	sorted := slices.Clone(indices)
	slices.SortStableFunc(sorted, func(a, b int) int { return slices.Compare(samples[a].IDs, samples[b].IDs) })
	var out [][]int
	var current []int
	rows := 0
	for _, i := range sorted {
		ids := samples[i].IDs
		n := len(ids)
		if len(current) > 0 {
			// In this order no other sample of the run has more in common with this one than the last.
			n -= commonPrefix(ids, samples[current[len(current)-1]].IDs)
		}
		if len(current) > 0 && n > 0 && rows+n > budget {
			out = append(out, current)
			current, rows, n = nil, 0, len(ids)
		}
		current = append(current, i)
		rows += n
	}
	if len(current) > 0 {
		out = append(out, current)
	}
	return out
}

// commonPrefix is the number of tokens that a and b begin with together.
func commonPrefix(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// pack lays the chosen samples one after another.
func pack(samples []*Sample, indices []int) torch.Batch {
	ids := make([][]int32, len(indices))
	masks := make([][]bool, len(indices))
	for j, i := range indices {
		ids[j], masks[j] = samples[i].IDs, samples[i].Mask
	}
	return torch.Pack(ids, masks)
}

// gather concatenates one column of the chosen samples.
func gather(samples []*Sample, indices []int, column func(*Sample) []float32) []float32 {
	var out []float32
	for _, i := range indices {
		out = append(out, column(samples[i])...)
	}
	return out
}

// scatter cuts a packed column back into per-sample slices.
func scatter(samples []*Sample, indices []int, packed []float32, assign func(*Sample, []float32)) {
	offset := 0
	for _, i := range indices {
		n := len(samples[i].IDs)
		assign(samples[i], append([]float32(nil), packed[offset:offset+n]...))
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
