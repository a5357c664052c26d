// Package aggregation joins the losses of tokens into the loss of a mini-batch: actor.loss_aggregation.
package aggregation

// ways give the weight of a token in a sequence of so many sampled tokens.
var ways = map[string]func(n normaliser, length int) float64{
	"token-mean":          func(n normaliser, _ int) float64 { return 1 / float64(n.tokens) },
	"token-sum":           func(normaliser, int) float64 { return 1 },
	"seq-mean-token-sum":  func(n normaliser, _ int) float64 { return 1 / float64(n.sequences) },
	"seq-mean-token-mean": func(n normaliser, length int) float64 { return 1 / float64(n.sequences) / float64(length) },
	// Dr.GRPO: the sum over tokens divided by the longest episode possible.
	"seq-mean-token-sum-norm": func(n normaliser, _ int) float64 { return 1 / float64(n.width) },
}

// normaliser counts the sampled tokens of a batch and the sequences that have any.
type normaliser struct{ tokens, sequences, width int }

// Weights are those of the tokens of each sequence, by its number of sampled tokens, such that Σ weight·x is the
// aggregated value of a per-token loss x. width is what seq-mean-token-sum-norm divides by.
func Weights(name string, lengths []int, width int) []float64 {
	n := normaliser{width: width}
	for _, length := range lengths {
		n.tokens += length
		n.sequences += min(length, 1)
	}
	weights := make([]float64, len(lengths))
	for i, length := range lengths {
		weights[i] = ways[name](n, length)
	}
	return weights
}
