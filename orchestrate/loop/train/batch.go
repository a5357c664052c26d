// Package train is one training step's arithmetic over one process or many: a batch of sequences, the columns of
// numbers that belong to its tokens, and the policy that scores them, takes gradients of them and steps. It knows
// nothing of environments, files, metrics or configurations, so that a server can offer the same to other programs'
// training loops.
//
//	Batch ──Compute──▶ log-probs, entropies, values ──(advantages)──▶ Columns ──Backward──▶ Gradients ──Step──▶ weights
//
// Compute (compute.go) and Backward (backward.go) are one flow: rows are dealt to ranks and cut into passes, a pass is
// packed, the model computes, and what comes back is scattered (passes.go).
package train

import (
	"slices"

	"gyre/internal/masks"
	"gyre/orchestrate/loop/aggregation"
)

// Sequence is one episode as the policy saw it.
type Sequence struct {
	IDs    []int32
	Mask   []bool // true where the policy sampled the token
	Starts []int  // where the segments begin that the policy saw by themselves; nil: the sequence is one segment
	// Targets are the tokens whose log-probs are meant where Mask is true, given the ids before them; nil: the ids.
	Targets []int32
}

// Sampled counts the tokens that the policy sampled.
func (s Sequence) Sampled() int { return masks.Count(s.Mask) }

// Batch is sequences with token-aligned columns: entry i of a column is as long as sequence i. A column is nil until
// somebody fills it.
type Batch struct {
	Sequences  []Sequence
	Old        [][]float32 // log-probs of the policy that is about to be updated
	Behaviour  [][]float32 // log-probs of the policy that drew the tokens; nil: Old
	Importance [][]float32 // weights of the policy loss of the tokens; nil: 1
	OverBatch  [][]float32 // what a policy loss reads of the whole mini-batch: see Learner.OverBatch
	Reference  [][]float32 // log-probs of the reference policy
	Support    []Support   // its likeliest tokens, where the KL term is over them
	Values     [][]float32 // of the value network before its update
	Advantages [][]float32
	Returns    [][]float32
	Weights    [][]float32 // of the tokens in the loss: see Weigh
	Counts     []float64   // what each sequence counts in it; nil: 1

	// Current, if not nil, receives the log-probs that Backward finds.
	Current [][]float32

	// Progress, if not nil, hears how many sequences each pass has begun, those of other ranks included.
	Progress func(sequences int)
}

// Len is the number of sequences.
func (b *Batch) Len() int { return len(b.Sequences) }

// Sampled counts the sampled tokens of all sequences.
func (b *Batch) Sampled() (n int) {
	for _, s := range b.Sequences {
		n += s.Sampled()
	}
	return n
}

// Masks are those of the sequences.
func (b *Batch) Masks() [][]bool {
	rows := make([][]bool, b.Len())
	for i, s := range b.Sequences {
		rows[i] = s.Mask
	}
	return rows
}

// Take is the batch of some rows, which shares their columns with this one.
func (b *Batch) Take(rows []int) *Batch {
	return &Batch{
		Sequences: Rows(b.Sequences, rows), Progress: b.Progress,
		Behaviour: Rows(b.Behaviour, rows), Importance: Rows(b.Importance, rows), OverBatch: Rows(b.OverBatch, rows),
		Old: Rows(b.Old, rows), Reference: Rows(b.Reference, rows), Support: Rows(b.Support, rows),
		Values: Rows(b.Values, rows), Advantages: Rows(b.Advantages, rows), Returns: Rows(b.Returns, rows),
		Weights: Rows(b.Weights, rows), Counts: Rows(b.Counts, rows),
	}
}

// Rows picks rows of a column; of a column that is not filled there are none.
func Rows[T any](column []T, rows []int) []T {
	if column == nil {
		return nil
	}
	out := make([]T, len(rows))
	for i, row := range rows {
		out[i] = column[row]
	}
	return out
}

// All lists 0 … n-1.
func All(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// MiniBatches cuts 0 … n-1 into consecutive runs of size; the last may be shorter.
func MiniBatches(n, size int) [][]int { return slices.Collect(slices.Chunk(All(n), size)) }

// SampledMean is the mean of a column over all sampled tokens.
func (b *Batch) SampledMean(column [][]float32) float64 {
	sum, n := 0.0, 0
	for i, t := range masks.Places(b.Masks()) {
		sum += float64(column[i][t])
		n++
	}
	return sum / float64(max(n, 1))
}

// Weigh fills Weights: a weight per token such that Σ weight·x is the aggregated value of a per-token loss x. The
// normaliser is that of this whole batch, which should be a mini-batch however it is later cut into passes. width is
// what seq-mean-token-sum-norm divides by.
func (b *Batch) Weigh(how string, width int) {
	lengths := make([]int, b.Len())
	for i, s := range b.Sequences {
		lengths[i] = s.Sampled()
	}
	weights := aggregation.Weights(how, lengths, width, b.Counts)
	b.Weights = make([][]float32, b.Len())
	for i, s := range b.Sequences {
		b.Weights[i] = make([]float32, len(s.Mask))
		for t := range masks.Tokens(s.Mask) {
			b.Weights[i][t] = float32(weights[i])
		}
	}
}
