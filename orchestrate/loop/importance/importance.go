package importance

import (
	"math"
	"slices"

	"gyre/internal/masks"
	"gyre/orchestrate/config"
)

// limit bounds exponents, as in verl.
const limit = 20

// Options are the keys of [importance], which say how tokens are corrected. The zero value corrects nothing.
type Options config.Importance

// Weights are those of the sampled tokens of one episode, 0 elsewhere. Without a correction they are the ratios
// themselves, unbounded.
func (o Options) Weights(proximal, behaviour []float32, mask []bool) []float64 {
	weights := ratios(o.Level, proximal, behaviour, mask, math.Inf(1))
	for t := range masks.Tokens(mask) {
		switch w := weights[t]; {
		case o.Correction == "truncate":
			weights[t] = min(max(w, o.Low), o.High)
		case o.Correction == "mask" && (w < o.Low || w > o.High):
			weights[t] = 0
		}
	}
	return weights
}

// Kept is the mask of one episode without what is rejected: single tokens at the level "token", otherwise all or none.
func (o Options) Kept(proximal, behaviour []float32, mask []bool) []bool {
	kept := slices.Clone(mask)
	switch {
	case !config.Importance(o).Rejects():
		return kept
	case o.Reject == "k3":
		if divergence(proximal, behaviour, mask) > o.RejectHigh {
			clear(kept)
		}
		return kept
	}
	for t, r := range ratios(o.Reject, proximal, behaviour, mask, limit) {
		kept[t] = mask[t] && r >= o.RejectLow && r <= o.RejectHigh
	}
	return kept
}

// ratios are W at a level. The log-ratio of each token is clamped to ±bound before it is summed.
func ratios(level string, proximal, behaviour []float32, mask []bool, bound float64) []float64 {
	out, sum, n := make([]float64, len(mask)), 0.0, 0
	for t := range masks.Tokens(mask) {
		out[t] = clamp(float64(proximal[t])-float64(behaviour[t]), bound)
		sum += out[t]
		n++
	}
	if level == "geometric" {
		sum /= float64(max(n, 1))
	}
	for t := range masks.Tokens(mask) {
		if level != "token" {
			out[t] = sum
		}
		out[t] = math.Exp(clamp(out[t], limit))
	}
	return out
}

// divergence is the k3 estimate of KL(behaviour ‖ proximal) over the sampled tokens.
func divergence(proximal, behaviour []float32, mask []bool) float64 {
	sum, n := 0.0, 0
	for t := range masks.Tokens(mask) {
		z := clamp(float64(proximal[t])-float64(behaviour[t]), limit)
		sum += math.Exp(z) - 1 - z
		n++
	}
	return sum / float64(max(n, 1))
}

func clamp(x, bound float64) float64 { return min(max(x, -bound), bound) }
