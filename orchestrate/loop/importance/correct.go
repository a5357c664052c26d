package importance

import (
	"math"

	"gyre/internal/masks"
	"gyre/internal/statistics"
)

// Ratios say how far the policy that drew the tokens of a batch is from the one that learns from them, before any
// bound.
type Ratios struct {
	Mean float64 `metric:"ratio/mean" doc:"mean of proximal over behaviour policy over sampled tokens, at the level of importance.level: around 1. In runs with rollout.staleness that correct nothing: of the present over the behaviour policy, in the step's first mini-batch"`
	P99  float64 `metric:"ratio/p99" doc:"its 0.99 quantile"`
	ESS  float64 `metric:"ratio/ess" unit:"share" doc:"effective sample size (Σw)²/(n Σw²) of the tokens' weights: near 1; 0.1 means that a tenth of the tokens decides"`
}

// Correction is what is done about it.
type Correction struct {
	Ratios
	Bounded  float64 `metric:"ratio/bounded" unit:"share" doc:"of tokens whose weight importance.correction has changed"`
	Rejected float64 `metric:"ratio/rejected" unit:"share" doc:"of tokens that importance.reject has left out of the update"`

	Weights [][]float64 // of the sampled tokens, 0 elsewhere
	Kept    [][]bool    // the masks without what is rejected
}

// Correct weighs the sampled tokens of a batch and leaves out those that are too far away. Entry i of each column is
// of one episode.
func (o Options) Correct(proximal, behaviour [][]float32, sampled [][]bool) (c Correction) {
	free := o
	free.Correction = "none"
	var ratios []float64
	var sum, squares float64
	for i, mask := range sampled {
		plain, weights := free.Weights(proximal[i], behaviour[i], mask), o.Weights(proximal[i], behaviour[i], mask)
		kept := o.Kept(proximal[i], behaviour[i], mask)
		for t := range masks.Tokens(mask) {
			ratios = append(ratios, plain[t])
			if weights[t] != plain[t] {
				c.Bounded++
			}
			if !kept[t] {
				c.Rejected++
				continue
			}
			sum, squares = sum+weights[t], squares+weights[t]*weights[t]
		}
		c.Weights, c.Kept = append(c.Weights, weights), append(c.Kept, kept)
	}
	tokens := float64(len(ratios))
	c.Mean, c.P99 = statistics.Mean(ratios), statistics.Quantile(0.99, ratios)
	c.Bounded, c.Rejected = c.Bounded/max(tokens, 1), c.Rejected/max(tokens, 1)
	if squares > 0 {
		c.ESS = sum * sum / (tokens - c.Rejected*tokens) / squares
	}
	return c
}

// Drift compares a policy with the one that drew the tokens of a batch.
func Drift(current, behaviour [][]float32, sampled [][]bool) (m Ratios) {
	var ratios []float64
	var sum, squares float64
	for i, t := range masks.Places(sampled) {
		ratio := math.Exp(clamp(float64(current[i][t])-float64(behaviour[i][t]), limit))
		ratios, sum, squares = append(ratios, ratio), sum+ratio, squares+ratio*ratio
	}
	m.Mean, m.P99 = statistics.Mean(ratios), statistics.Quantile(0.99, ratios)
	m.ESS = sum * sum / (float64(len(ratios)) * squares)
	return m
}
