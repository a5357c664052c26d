package advantage

import (
	"math"
	"strings"

	"gyre/internal/masks"
)

// divergences are estimators of a divergence, from d = reference − policy.
var divergences = map[string]func(d float64) float64{
	"k1":  func(d float64) float64 { return -d },
	"abs": math.Abs,
	"k2":  func(d float64) float64 { return d * d / 2 },
	"k3": func(d float64) float64 {
		d = min(max(d, -20), 20)
		return min(max(math.Exp(d)-d-1, -10), 10)
	},
}

// KL estimates the divergence of the policy from the reference at each sampled token from the two log-probs alone
// (Schulman, "Approximating KL divergence", 2020), 0 elsewhere. With d = reference − policy:
//
//	k1 −d (unbiased)   abs |d|   k2 ½d²   k3 e^d − d − 1 (d clipped to ±20, the result to ±10)
//
// A trailing + names the same value (it concerns the gradient in the loss only).
func KL(estimator string, policy, reference []float32, mask []bool) []float64 {
	estimate, out := divergences[strings.TrimSuffix(estimator, "+")], make([]float64, len(mask))
	for t := range masks.Tokens(mask) {
		out[t] = estimate(float64(reference[t]) - float64(policy[t]))
	}
	return out
}

// Penalize subtracts coef times the per-token divergences from the sampled tokens of rows (rewards or advantages), in
// place, and returns the mean over the episodes of the mean divergence of their sampled tokens: what Controller.Update
// takes.
func Penalize(rows [][]float64, sampled [][]bool, divergences [][]float64, coef float64) float64 {
	mean := 0.0
	for i, mask := range sampled {
		sum, n := 0.0, 0
		for t := range masks.Tokens(mask) {
			rows[i][t] -= coef * divergences[i][t]
			sum += divergences[i][t]
			n++
		}
		mean += sum / float64(max(n, 1)) / float64(len(sampled))
	}
	return mean
}

// Controller holds the coefficient of the divergence in the rewards. Fixed when Horizon is 0, otherwise adapted to keep
// the divergence near Target (Ziegler et al., 2019). Coef is all the state there is to save.
type Controller struct {
	Coef    float64
	Target  float64
	Horizon float64 // in episodes
}

// Update adapts Coef after a batch of n episodes that measured the given mean divergence. A nil controller has
// nothing to adapt.
func (c *Controller) Update(divergence float64, n int) {
	if c == nil || c.Horizon <= 0 {
		return
	}
	proportional := min(max(divergence/c.Target-1, -0.2), 0.2)
	c.Coef *= 1 + proportional*float64(n)/c.Horizon
}
