package train

import (
	"context"
	"math"
	"slices"

	"gyre/torch"
)

// Support is what a reference policy finds likely at the sampled tokens of one sequence.
type Support struct {
	torch.Support
	Mask []bool // which tokens these were when it was asked: some may have left the update since
}

// Likeliest computes a policy's log-probs as Score does, and the support of its k likeliest tokens.
func (l *Learner) Likeliest(ctx context.Context, b *Batch, temperature float64, k int) ([][]float32, []Support, error) {
	rows, column, supports := l.mine(b), make([][]float32, b.Len()), make([]Support, b.Len())
	for _, row := range rows {
		n := b.Sequences[row].Sampled()
		supports[row] = Support{torch.Support{K: k, IDs: make([]int32, n*k), Logprobs: make([]float32, n*(k+1))},
			b.Sequences[row].Mask}
	}
	passes, err := l.passes(ctx, b, rows)
	if err != nil {
		return nil, nil, err
	}
	for _, micro := range passes {
		logprobs, found, err := l.Model.Likeliest(b.pack(micro), temperature, k)
		if err != nil {
			return nil, nil, err
		}
		b.scatter(micro, logprobs, column)
		for _, s := range micro {
			of := supports[s.row]
			before, n := count(of.Mask[:s.from]), count(of.Mask[s.from:s.to])
			copy(of.IDs[before*k:], found.IDs[:n*k])
			copy(of.Logprobs[before*(k+1):], found.Logprobs[:n*(k+1)])
			found.IDs, found.Logprobs = found.IDs[n*k:], found.Logprobs[n*(k+1):]
		}
		if err := l.between(ctx); err != nil {
			return nil, nil, err
		}
	}
	if err := l.Complete(ctx, rows, column); err != nil {
		return nil, nil, err
	}
	return column, supports, complete(ctx, l, rows, supports)
}

// gatherSupport is what segments have of the batch's support, for the tokens that are still sampled.
func (b *Batch) gatherSupport(micro []segment) (out torch.Support) {
	for _, s := range micro {
		of, mask := b.Support[s.row], b.Sequences[s.row].Mask
		out.K = of.K
		k, place := of.K, count(of.Mask[:s.from])
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

func count(mask []bool) int { return Sequence{Mask: mask}.Sampled() }
