package train

import (
	"slices"

	"gyre/torch"
)

// segment is a run of a sequence's tokens that the policy saw by itself.
type segment struct{ row, from, to int }

// segments are those of one row.
func (b *Batch) segments(row int) []segment {
	var out []segment
	from := 0
	for _, start := range b.Sequences[row].Starts {
		if start > from {
			out = append(out, segment{row, from, start})
			from = start
		}
	}
	return append(out, segment{row, from, len(b.Sequences[row].IDs)})
}

func (b *Batch) ids(s segment) []int32 { return b.Sequences[s.row].IDs[s.from:s.to] }

// microBatches cuts rows into runs of segments that take at most budget tokens. Segments with a common prefix come
// next to each other, because the tokens that they share are computed once; equal ones keep their order. One that is
// longer than the budget is a micro-batch by itself.
func (b *Batch) microBatches(rows []int, budget int) [][]segment {
	var sorted []segment
	for _, row := range rows {
		sorted = append(sorted, b.segments(row)...)
	}
	slices.SortStableFunc(sorted, func(x, y segment) int { return slices.Compare(b.ids(x), b.ids(y)) })
	var out [][]segment
	var current []segment
	tokens := 0
	for _, s := range sorted {
		n := s.to - s.from
		if len(current) > 0 {
			// In this order no other segment of the run has more in common with this one than the last.
			n -= commonPrefix(b.ids(s), b.ids(current[len(current)-1]))
		}
		if len(current) > 0 && n > 0 && tokens+n > budget {
			out = append(out, current)
			current, tokens, n = nil, 0, s.to-s.from
		}
		current = append(current, s)
		tokens += n
	}
	if len(current) > 0 {
		out = append(out, current)
	}
	return out
}

// begun counts the sequences whose first segment is among these: over all micro-batches each sequence counts once.
func begun(micro []segment) (sequences int) {
	for _, s := range micro {
		if s.from == 0 {
			sequences++
		}
	}
	return sequences
}

// commonPrefix is the number of tokens that both begin with.
func commonPrefix(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// partition deals the rows to n ranks or lanes, about as many tokens to each. Sequences that begin alike come next to
// each other, so that tokens which they share are computed once where one rank has them. The partition depends on the
// sequences alone, so every rank finds the same.
func (b *Batch) partition(n int) [][]int {
	rows, out := All(b.Len()), make([][]int, n)
	if n == 1 {
		out[0] = rows
		return out
	}
	slices.SortStableFunc(rows, func(x, y int) int { return slices.Compare(b.Sequences[x].IDs, b.Sequences[y].IDs) })
	tokens, total := make([]int, len(rows)), 0
	for k, row := range rows {
		tokens[k] = len(b.Sequences[row].IDs)
		if k > 0 {
			tokens[k] -= commonPrefix(b.Sequences[row].IDs, b.Sequences[rows[k-1]].IDs)
		}
		tokens[k] = max(tokens[k], 1)
		total += tokens[k]
	}
	before := 0
	for k, row := range rows {
		to := min(n*(2*before+tokens[k])/(2*total), n-1) // where the sequence's middle falls
		out[to] = append(out[to], row)
		before += tokens[k]
	}
	for _, own := range out {
		slices.Sort(own)
	}
	return out
}

// pack lays segments one after another.
func (b *Batch) pack(micro []segment) torch.Batch {
	ids, masks := make([][]int32, len(micro)), make([][]bool, len(micro))
	for j, s := range micro {
		ids[j], masks[j] = b.ids(s), b.Sequences[s.row].Mask[s.from:s.to]
	}
	packed := torch.Pack(ids, masks)
	if slices.ContainsFunc(micro, func(s segment) bool { return b.Sequences[s.row].Targets != nil }) {
		for j, s := range micro {
			targets := ids[j]
			if of := b.Sequences[s.row].Targets; of != nil {
				targets = of[s.from:s.to]
			}
			packed.Targets = append(packed.Targets, targets...)
		}
	}
	return packed
}

// gather concatenates what segments have of a column; nil where it is not filled.
func gather(micro []segment, column [][]float32) []float32 {
	if column == nil {
		return nil
	}
	var out []float32
	for _, s := range micro {
		out = append(out, column[s.row][s.from:s.to]...)
	}
	return out
}

// scatter puts a packed column back into that of the batch.
func (b *Batch) scatter(micro []segment, packed []float32, column [][]float32) {
	for _, s := range micro {
		if column[s.row] == nil {
			column[s.row] = make([]float32, len(b.Sequences[s.row].IDs))
		}
		copy(column[s.row][s.from:s.to], packed)
		packed = packed[s.to-s.from:]
	}
}
