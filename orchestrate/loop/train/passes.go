package train

import (
	"context"
	"slices"

	"gyre/orchestrate/loop/ranks"
	"gyre/torch"
)

// Placement says over what a model's passes are dealt.
type Placement struct {
	World      *ranks.World // [ranks.Alone] unless it is given
	PassTokens int          // that a forward pass takes at most
	// InStep: the weights are in shards, so that every pass takes all ranks.
	InStep bool
	// Lanes fix the order of sums over ranks, whose bits then do not depend on how many there are; 0: they may.
	Lanes int
}

// InStep reports whether every pass takes all ranks.
func (l *Learner) InStep() bool { return l.on.InStep }

// OneByOne reports whether the gradient of a single sequence takes a pass of all ranks: shards hold sums over ranks
// only, unless these have a fixed order.
func (l *Learner) OneByOne() bool { return l.InStep() && l.on.Lanes == 0 }

// Complete fills a column, of which every rank knows some rows, on all ranks.
func (l *Learner) Complete(ctx context.Context, rows []int, column [][]float32) error {
	return complete(ctx, l, rows, column)
}

func complete[T any](ctx context.Context, l *Learner, rows []int, column []T) error {
	known := map[int]T{}
	for _, row := range rows {
		known[row] = column[row]
	}
	all, err := ranks.Gather(ctx, l.on.World, known)
	for _, own := range all {
		for row, values := range own {
			column[row] = values
		}
	}
	return err
}

// mine are this rank's rows of a batch.
func (l *Learner) mine(b *Batch) []int {
	return b.partition(l.on.World.Size())[l.on.World.Rank()]
}

// deal gives run this rank's rows of a batch, whose gradients run adds to the buffers: they become those of all ranks
// when they are first looked at. Where sums have a fixed order, the rows are dealt to lanes, and run is called for
// each lane of this rank in turn.
func (l *Learner) deal(b *Batch, into []*torch.Gradients, run func(lane int, rows []int) error) error {
	if l.on.Lanes == 0 || !l.Model.Sharded() {
		return run(0, l.mine(b))
	}
	first, n := l.Model.Lanes()
	for k, rows := range b.partition(l.on.Lanes)[first:][:n] {
		for _, g := range slices.Compact(slices.Clone(into)) {
			if g == nil {
				continue
			}
			if err := g.BeginLane(first + k); err != nil {
				return err
			}
		}
		if err := run(first+k, rows); err != nil {
			return err
		}
	}
	return nil
}

// each runs f on each pass that rows of a batch, this rank's, are cut into: f packs it, has the model compute, and
// scatters what comes back. After each pass whoever shares the model gets a turn.
func (l *Learner) each(ctx context.Context, b *Batch, rows []int, f func(pass) error) error {
	passes := b.microBatches(rows, l.on.PassTokens)
	// Where passes take all ranks, each gets as many as the rank with most: the last ones of the others are empty.
	most, err := l.most(ctx, len(passes))
	if err != nil {
		return err
	}
	for _, segments := range append(passes, make([][]segment, most-len(passes))...) {
		if err := f(pass{b, segments}); err != nil {
			return err
		}
		if l.Colocated == nil {
			continue
		}
		if err := l.Colocated.Between(ctx); err != nil {
			return err
		}
	}
	return nil
}

// most is the largest n of all ranks where passes take all of them.
func (l *Learner) most(ctx context.Context, n int) (int, error) {
	if !l.InStep() {
		return n, nil
	}
	most, err := l.on.World.Max(ctx, float64(n))
	return max(int(most), n), err
}

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

// pass is what one forward pass takes of a batch: segments, one after another. It has none on a rank that only goes
// along with the others.
type pass struct {
	batch    *Batch
	segments []segment
}

// begun counts the sequences whose first segment is in the pass: over all passes each sequence counts once.
func (p pass) begun() (sequences int) {
	for _, s := range p.segments {
		if s.from == 0 {
			sequences++
		}
	}
	return sequences
}

// pack lays the segments one after another.
func (p pass) pack() torch.Batch {
	b := p.batch
	ids, masks := make([][]int32, len(p.segments)), make([][]bool, len(p.segments))
	for j, s := range p.segments {
		ids[j], masks[j] = b.ids(s), b.Sequences[s.row].Mask[s.from:s.to]
	}
	packed := torch.Pack(ids, masks)
	if slices.ContainsFunc(p.segments, func(s segment) bool { return b.Sequences[s.row].Targets != nil }) {
		for j, s := range p.segments {
			targets := ids[j]
			if of := b.Sequences[s.row].Targets; of != nil {
				targets = of[s.from:s.to]
			}
			packed.Targets = append(packed.Targets, targets...)
		}
	}
	return packed
}

// gather concatenates what the segments have of a column; nil where it is not filled.
func (p pass) gather(column [][]float32) []float32 {
	if column == nil {
		return nil
	}
	var out []float32
	for _, s := range p.segments {
		out = append(out, column[s.row][s.from:s.to]...)
	}
	return out
}

// scatter puts a packed column back into that of the batch.
func (p pass) scatter(packed []float32, column [][]float32) {
	for _, s := range p.segments {
		if column[s.row] == nil {
			column[s.row] = make([]float32, len(p.batch.Sequences[s.row].IDs))
		}
		copy(column[s.row][s.from:s.to], packed)
		packed = packed[s.to-s.from:]
	}
}
