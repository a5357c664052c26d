package tinker

import (
	"cmp"
	"context"
	"math"
	"slices"

	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
	"gyre/torch"
)

const (
	maxLogits   = 1 << 28 // numbers of one matrix of logits
	noCandidate = -99999  // the log-prob in rows that have none
)

// top makes a TopkLogprobs of the tokens of a sequence from position first on: the k most likely tokens in the place of
// each, at temperature 1, most likely first and of equal ones the lower id. The first token of a sequence has none.
func (s *Server) top(ctx context.Context, h *host.Host, policy *torch.Model, ids []int32,
	first, k int) (*topLogprobs, error) {
	vocabulary := int(h.Model().Shape.VocabSize)
	if len(ids)*vocabulary > maxLogits {
		return nil, serve.Bad("topk_prompt_logprobs", "the most likely tokens of %d positions are asked for, "+
			"expected at most %d", len(ids), maxLogits/vocabulary)
	}
	var logits []float32
	err := h.Do(ctx, func() (err error) {
		logits, err = policy.Logits(ids)
		return err
	})
	if err != nil {
		return nil, err
	}
	k = min(k, vocabulary)
	var best []int32
	var scores []float32
	for t := first; t < len(ids); t++ {
		if t == 0 {
			best = append(best, make([]int32, k)...)
			scores = append(scores, slices.Repeat([]float32{noCandidate}, k)...)
			continue
		}
		row := logits[(t-1)*vocabulary : t*vocabulary]
		sum := logSum(row)
		for _, id := range mostLikely(row, k) {
			best, scores = append(best, id), append(scores, float32(float64(row[id])-sum))
		}
	}
	return &topLogprobs{bytesOf(best), bytesOf(scores), uint32(k), uint32(len(ids) - first)}, nil
}

// logSum is the logarithm of the sum of e to each.
func logSum(row []float32) float64 {
	highest, sum := float64(slices.Max(row)), 0.0
	for _, x := range row {
		sum += math.Exp(float64(x) - highest)
	}
	return highest + math.Log(sum)
}

// mostLikely are the k ids of the largest logits, in order.
func mostLikely(row []float32, k int) []int32 {
	before := func(a, b int32) int { return cmp.Or(cmp.Compare(row[b], row[a]), cmp.Compare(a, b)) }
	var best []int32 // in order
	for id := range int32(len(row)) {
		if len(best) == k && before(id, best[k-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, id, before)
		best = slices.Insert(best, at, id)
		best = best[:min(len(best), k)]
	}
	return best
}
