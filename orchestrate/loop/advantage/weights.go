package advantage

import "fmt"

// LossWeights returns a weight per token such that Σ weight·x over all episodes is the aggregated value of a per-token
// loss x. The normaliser is that of all the episodes given, so they should be a whole mini-batch however it is later cut
// into forward passes. Over the sampled tokens:
//
//	token-mean               mean over tokens
//	token-sum                sum over tokens
//	seq-mean-token-sum       mean over episodes of the sum over tokens
//	seq-mean-token-mean      mean over episodes of the mean over tokens
//	seq-mean-token-sum-norm  sum over tokens / width (the longest episode possible), as in Dr.GRPO
//
// Episodes without sampled tokens do not count.
func LossWeights(mode string, masks [][]bool, width int) ([][]float32, error) {
	tokens, sequences := 0, 0
	lengths := make([]int, len(masks))
	for i, mask := range masks {
		for _, sampled := range mask {
			if sampled {
				lengths[i]++
			}
		}
		tokens += lengths[i]
		sequences += min(lengths[i], 1)
	}
	var weight func(length int) float64
	switch mode {
	case "token-mean":
		weight = func(int) float64 { return 1 / float64(tokens) }
	case "token-sum":
		weight = func(int) float64 { return 1 }
	case "seq-mean-token-sum":
		weight = func(int) float64 { return 1 / float64(sequences) }
	case "seq-mean-token-mean":
		weight = func(length int) float64 { return 1 / float64(sequences) / float64(length) }
	case "seq-mean-token-sum-norm":
		if width <= 0 {
			return nil, fmt.Errorf("advantage: %s needs a positive width, got %d", mode, width)
		}
		weight = func(int) float64 { return 1 / float64(width) }
	default:
		return nil, fmt.Errorf("actor.loss_aggregation: unknown mode %q", mode)
	}
	weights := make([][]float32, len(masks))
	for i, mask := range masks {
		weights[i] = make([]float32, len(mask))
		for t, sampled := range mask {
			if sampled {
				weights[i][t] = float32(weight(lengths[i]))
			}
		}
	}
	return weights, nil
}
