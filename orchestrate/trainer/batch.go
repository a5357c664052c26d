package trainer

import (
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

// microBatches cuts sample indices into runs of at most budget tokens, keeping the order. A sample longer than the budget gets a
// micro-batch of its own.
func microBatches(samples []*Sample, indices []int, budget int) [][]int {
	var out [][]int
	var current []int
	tokens := 0
	for _, i := range indices {
		n := len(samples[i].IDs)
		if len(current) > 0 && tokens+n > budget {
			out = append(out, current)
			current, tokens = nil, 0
		}
		current = append(current, i)
		tokens += n
	}
	if len(current) > 0 {
		out = append(out, current)
	}
	return out
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
