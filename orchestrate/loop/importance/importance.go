package importance

import (
	"math"
	"slices"
)

// limit bounds exponents, as in verl.
const limit = 20

// Options say how tokens are corrected. The zero value corrects nothing.
type Options struct {
	Correction            string // "none" or "", "truncate", "mask"
	Level                 string // "token", "sequence", "geometric"
	Low, High             float64
	Reject                string // "none" or "", "token", "sequence", "geometric", "k3"
	RejectLow, RejectHigh float64
}

// Weighs reports whether tokens get weights.
func (o Options) Weighs() bool { return o.Correction != "" && o.Correction != "none" }

// Rejects reports whether tokens may be left out.
func (o Options) Rejects() bool { return o.Reject != "" && o.Reject != "none" }

// Weights are those of the sampled tokens of one episode, 0 elsewhere. Without a correction they are the ratios
// themselves, unbounded.
func (o Options) Weights(proximal, behaviour []float32, mask []bool) []float64 {
	weights := ratios(o.Level, proximal, behaviour, mask, math.Inf(1))
	for t, w := range weights {
		switch {
		case !mask[t]:
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
	case !o.Rejects():
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
	for t, sampled := range mask {
		if sampled {
			out[t] = clamp(float64(proximal[t])-float64(behaviour[t]), bound)
			sum += out[t]
			n++
		}
	}
	if level == "geometric" {
		sum /= float64(max(n, 1))
	}
	for t, sampled := range mask {
		switch {
		case !sampled:
		case level == "token":
			out[t] = math.Exp(clamp(out[t], limit))
		default:
			out[t] = math.Exp(clamp(sum, limit))
		}
	}
	return out
}

// divergence is the k3 estimate of KL(behaviour ‖ proximal) over the sampled tokens.
func divergence(proximal, behaviour []float32, mask []bool) float64 {
	sum, n := 0.0, 0
	for t, sampled := range mask {
		if sampled {
			z := clamp(float64(proximal[t])-float64(behaviour[t]), limit)
			sum += math.Exp(z) - 1 - z
			n++
		}
	}
	return sum / float64(max(n, 1))
}

func clamp(x, bound float64) float64 { return min(max(x, -bound), bound) }
