package train

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"gyre/internal/masks"
	"gyre/internal/statistics"
	"gyre/torch"
)

// logRatioLimit bounds log-ratios of policies, as in csrc/train/losses.
const logRatioLimit = 20

// place is a token of a batch.
type place struct{ row, token int }

// places are the sampled tokens of a batch, in order.
func (b *Batch) places() (all []place) {
	for i, t := range masks.Places(b.Masks()) {
		all = append(all, place{i, t})
	}
	return all
}

// blank is a column of zeros.
func (b *Batch) blank() [][]float32 {
	column := make([][]float32, b.Len())
	for i, s := range b.Sequences {
		column[i] = make([]float32, len(s.Mask))
	}
	return column
}

// FillOverBatch fills OverBatch: what the task's loss reads of the whole of this mini-batch, given the log-probs of the
// policy as it is now. draw decides which tokens Clip-Cov draws, so it must be the same on all ranks.
func (b *Batch) FillOverBatch(task torch.Loss, current [][]float32, draw *rand.Rand) {
	switch task.Info().OverBatch {
	case torch.OverBatchMeanLogRatio:
		b.OverBatch = b.meanLogRatios(current)
	case torch.OverBatchClipCov:
		b.OverBatch = b.mark(b.drawCovariant(task, current, draw))
	case torch.OverBatchKLCov:
		b.OverBatch = b.mark(b.mostCovariant(task.Constant("kl_cov_ratio"), current))
	}
}

// meanLogRatios gives every token the mean of log-prob - old log-prob over the sampled tokens of its sequence (GSPO).
func (b *Batch) meanLogRatios(current [][]float32) [][]float32 {
	column := b.blank()
	for i, s := range b.Sequences {
		sum := 0.0
		for t := range masks.Tokens(s.Mask) {
			sum += float64(current[i][t]) - float64(b.Old[i][t])
		}
		mean := float32(sum / float64(max(s.Sampled(), 1)))
		for t := range masks.Tokens(s.Mask) {
			column[i][t] = mean
		}
	}
	return column
}

// mark is a column with 1 at some tokens.
func (b *Batch) mark(tokens []place) [][]float32 {
	column := b.blank()
	for _, p := range tokens {
		column[p.row][p.token] = 1
	}
	return column
}

// covariances are (A - mean A)(x - mean x) of the sampled tokens, where x are the current log-probs.
func (b *Batch) covariances(tokens []place, current [][]float32) []float64 {
	advantages, logprobs := make([]float64, len(tokens)), make([]float64, len(tokens))
	for k, p := range tokens {
		advantages[k], logprobs[k] = float64(b.Advantages[p.row][p.token]), float64(current[p.row][p.token])
	}
	a, x := statistics.Mean(advantages), statistics.Mean(logprobs)
	for k := range tokens {
		advantages[k] = (advantages[k] - a) * (logprobs[k] - x)
	}
	return advantages
}

// drawCovariant draws tokens whose covariance is inside the bounds of Clip-Cov and which PPO's clip leaves alone.
func (b *Batch) drawCovariant(task torch.Loss, current [][]float32, draw *rand.Rand) []place {
	tokens := b.places()
	var eligible []place
	low, high := 1-task.Constant("clip_low"), 1+task.Constant("clip_high")
	for k, c := range b.covariances(tokens, current) {
		p := tokens[k]
		a := float64(b.Advantages[p.row][p.token])
		away := float64(current[p.row][p.token]) - float64(b.Old[p.row][p.token])
		ratio := math.Exp(min(max(away, -logRatioLimit), logRatioLimit))
		clipped := -a*min(max(ratio, low), high) > -a*ratio
		if !clipped && c > task.Constant("clip_cov_low") && c < task.Constant("clip_cov_high") {
			eligible = append(eligible, p)
		}
	}
	n := min(len(eligible), atLeastOne(task.Constant("clip_cov_ratio"), len(tokens)))
	draw.Shuffle(len(eligible), func(i, j int) { eligible[i], eligible[j] = eligible[j], eligible[i] })
	return eligible[:n]
}

// mostCovariant are the tokens of the largest covariances (KL-Cov); of equal ones the earlier.
func (b *Batch) mostCovariant(ratio float64, current [][]float32) []place {
	tokens := b.places()
	covariances, order := b.covariances(tokens, current), All(len(tokens))
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(covariances[j], covariances[i]) })
	return Rows(tokens, order[:min(len(tokens), atLeastOne(ratio, len(tokens)))])
}

func atLeastOne(ratio float64, n int) int { return max(1, int(ratio*float64(n))) }

// KeepEntropyTop sets the importance of tokens to 0 whose entropy is below the (1 - share) quantile of this mini-batch
// (Wang et al. 2025, arXiv 2506.01939). Weights of the other tokens stay.
func (b *Batch) KeepEntropyTop(share float64, entropies [][]float32) {
	var all []float64
	tokens := b.places()
	for _, p := range tokens {
		all = append(all, float64(entropies[p.row][p.token]))
	}
	least, column := statistics.Quantile(1-share, all), b.blank()
	for k, p := range tokens {
		if all[k] < least {
			continue
		}
		column[p.row][p.token] = 1
		if b.Importance != nil {
			column[p.row][p.token] = b.Importance[p.row][p.token]
		}
	}
	b.Importance = column
}
