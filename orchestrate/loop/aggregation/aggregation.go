// Package aggregation joins the losses of tokens into the loss of a mini-batch: actor.loss_aggregation.
package aggregation

// ways give the weight of a token in a sequence of so many sampled tokens.
var ways = map[string]func(n normaliser, length int) float64{
	"token-mean":          func(n normaliser, _ int) float64 { return 1 / float64(n.tokens) },
	"token-sum":           func(normaliser, int) float64 { return 1 },
	"seq-mean-token-sum":  func(n normaliser, _ int) float64 { return 1 / n.sequences },
	"seq-mean-token-mean": func(n normaliser, length int) float64 { return 1 / n.sequences / float64(length) },
	// Dr.GRPO: the sum over tokens divided by the longest episode possible.
	"seq-mean-token-sum-norm": func(n normaliser, _ int) float64 { return 1 / float64(n.width) },
}

// normaliser counts the sampled tokens of a batch and the sequences that have any, these by what they count.
type normaliser struct {
	tokens, width int
	sequences     float64
}

// Weights are those of the tokens of each sequence, by its number of sampled tokens, such that Σ weight·x is the
// aggregated value of a per-token loss x. width is what seq-mean-token-sum-norm divides by. Each sequence counts as
// counts says; nil: 1.
func Weights(name string, lengths []int, width int, counts []float64) []float64 {
	n := normaliser{width: width}
	for i, length := range lengths {
		n.tokens += length
		if length > 0 {
			n.sequences += countOf(counts, i)
		}
	}
	weights := make([]float64, len(lengths))
	for i, length := range lengths {
		weights[i] = ways[name](n, length) * countOf(counts, i)
	}
	return weights
}

func countOf(counts []float64, i int) float64 {
	if counts == nil {
		return 1
	}
	return counts[i]
}
