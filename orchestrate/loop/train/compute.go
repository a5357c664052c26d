package train

import (
	"context"
	"math"
	"slices"

	"gyre/internal/masks"
	"gyre/torch"
)

// Compute implements Policy.
func (l *Learner) Compute(ctx context.Context, b *Batch, what What) ([][]float32, error) {
	rows, column := l.mine(b), make([][]float32, b.Len())
	err := l.each(ctx, b, rows, func(p pass) error {
		values, err := l.forward(p.pack(), what)
		if err == nil {
			p.scatter(values, column)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return column, l.Complete(ctx, rows, column)
}

// forward runs one forward pass.
func (l *Learner) forward(packed torch.Batch, what What) ([]float32, error) {
	if l.Model.Config.Head == torch.HeadValue {
		return l.Model.Values(packed)
	}
	if what.Entropy {
		return l.Model.Entropies(packed, what.Temperature)
	}
	return l.Model.Logprobs(packed, what.Temperature)
}

// ComputeBy computes a column by a function that another program may answer: of each segment by itself.
func (l *Learner) ComputeBy(ctx context.Context, b *Batch,
	compute func(ctx context.Context, segments [][]int32) ([][]float32, error)) ([][]float32, error) {
	rows, column, p := l.mine(b), make([][]float32, b.Len()), pass{batch: b}
	var ids [][]int32
	for _, row := range rows {
		for _, s := range b.segments(row) {
			p.segments, ids = append(p.segments, s), append(ids, b.ids(s))
		}
	}
	found, err := compute(ctx, ids)
	if err != nil {
		return nil, err
	}
	p.scatter(slices.Concat(found...), column)
	return column, l.Complete(ctx, rows, column)
}

// Support is what a reference policy finds likely at the sampled tokens of one sequence.
type Support struct {
	torch.Support
	Mask []bool // which tokens these were when it was asked: some may have left the update since
}

// Likeliest computes a policy's log-probs as Compute does, and the support of its k likeliest tokens.
func (l *Learner) Likeliest(ctx context.Context, b *Batch, temperature float64, k int) ([][]float32, []Support, error) {
	rows, column, supports := l.mine(b), make([][]float32, b.Len()), make([]Support, b.Len())
	for _, row := range rows {
		n := b.Sequences[row].Sampled()
		supports[row] = Support{torch.Support{K: k, IDs: make([]int32, n*k), Logprobs: make([]float32, n*(k+1))},
			b.Sequences[row].Mask}
	}
	err := l.each(ctx, b, rows, func(p pass) error {
		logprobs, found, err := l.Model.Likeliest(p.pack(), temperature, k)
		if err != nil {
			return err
		}
		p.scatter(logprobs, column)
		for _, s := range p.segments {
			of := supports[s.row]
			before, n := masks.Count(of.Mask[:s.from]), masks.Count(of.Mask[s.from:s.to])
			copy(of.IDs[before*k:], found.IDs[:n*k])
			copy(of.Logprobs[before*(k+1):], found.Logprobs[:n*(k+1)])
			found.IDs, found.Logprobs = found.IDs[n*k:], found.Logprobs[n*(k+1):]
		}
		return nil
	})
	if err == nil {
		err = l.Complete(ctx, rows, column)
	}
	if err != nil {
		return nil, nil, err
	}
	return column, supports, complete(ctx, l, rows, supports)
}

// support is what the pass has of the batch's support, for the tokens that are still sampled.
func (p pass) support() (out torch.Support) {
	b := p.batch
	for _, s := range p.segments {
		of, mask := b.Support[s.row], b.Sequences[s.row].Mask
		out.K = of.K
		k, place := of.K, masks.Count(of.Mask[:s.from])
		for t := s.from; t < s.to; t++ {
			if mask[t] {
				out.IDs = append(out.IDs, of.IDs[place*k:][:k]...)
				out.Logprobs = append(out.Logprobs, of.Logprobs[place*(k+1):][:k+1]...)
			}
			if of.Mask[t] {
				place++
			}
		}
	}
	return out
}

// SupportMass is the share of the reference's probability that its support has, over all sampled tokens.
func (b *Batch) SupportMass() float64 {
	sum, n := 0.0, 0
	for _, s := range b.Support {
		for others := range slices.Chunk(s.Logprobs, s.K+1) {
			sum, n = sum+1-math.Exp(float64(others[s.K])), n+1
		}
	}
	return sum / float64(max(n, 1))
}
