package torch

/*
#include "gyre.h"
*/
import "C"

import "runtime"

// Objective is the task term of the policy loss.
type Objective int

// ObjectivePPO is the clipped surrogate with asymmetric and dual clip; ObjectiveNLL minus the log-prob (supervised fine-tuning),
// which ignores advantages, old and reference log-probs.
const (
	ObjectivePPO Objective = C.GYRE_POLICY_PPO
	ObjectiveNLL Objective = C.GYRE_POLICY_NLL
)

// KLEstimator estimates KL(policy ‖ reference) from the log-probs x and y of the sampled token.
type KLEstimator int

// The estimators of Schulman, "Approximating KL divergence" (2020), with the clamps of verl: K1 = x-y, KLAbs = |x-y|,
// K2 = (x-y)²/2, K3 = e^z - z - 1 with z = clamp(y-x, ±20), clamped to ±10.
const (
	KLNone KLEstimator = C.GYRE_KL_NONE
	KLK1   KLEstimator = C.GYRE_KL_K1
	KLAbs  KLEstimator = C.GYRE_KL_ABS
	KLK2   KLEstimator = C.GYRE_KL_K2
	KLK3   KLEstimator = C.GYRE_KL_K3
)

// PolicyLoss describes Σ_t weight[t]·(L_t - EntropyCoef·H_t + KLCoef·KL_t) over the masked tokens.
type PolicyLoss struct {
	Objective         Objective
	Temperature       float64 // logits are divided by it; > 0
	ClipLow, ClipHigh float64 // the ratio is clipped to [1-ClipLow, 1+ClipHigh]
	ClipDual          float64 // c > 1: for negative advantages A the loss is at most -A·c; 0 = off
	EntropyCoef       float64
	KL                KLEstimator
	KLStraightThrough bool // the estimator's value with K2's gradient
	KLCoef            float64
}

// PolicyInputs are token-aligned. Weights carry the aggregation mode and its normaliser over the whole batch, so that the sum over
// micro-batches is the batch loss.
type PolicyInputs struct {
	OldLogprobs, Advantages []float32 // may be nil for ObjectiveNLL
	RefLogprobs             []float32 // may be nil when KL is KLNone
	Weights                 []float32

	LogprobsOut, EntropiesOut []float32 // filled when not nil
}

// Components says where each term's gradient is added; nil skips it. Terms that share a buffer share one backward pass.
type Components struct{ Task, Entropy, KL *Gradients }

// PolicyStats are sums over the masked tokens of one call.
type PolicyStats struct {
	Tokens                       float64
	PolicyLoss                   float64 // Σ weight·L
	EntropyLoss                  float64 // Σ -weight·EntropyCoef·H
	KLLoss                       float64 // Σ weight·KLCoef·KL
	Entropy, KL                  float64 // Σ weight·H, Σ weight·KL
	Clipped, ClippedLower        float64 // tokens where the clip, the dual clip acted
	LogRatio                     float64 // Σ old - new
	LogprobGapMax, LogprobGapSum float64 // of |new - old|
}

// PolicyBackward runs forward and backward of one micro-batch. Log-probs that are not finite give an error that matches
// [ErrNotFinite]; the gradients may then hold a part of the micro-batch.
func (m *Model) PolicyBackward(b Batch, in PolicyInputs, loss PolicyLoss, out Components) (PolicyStats, error) {
	nll := loss.Objective == ObjectiveNLL
	for _, s := range []struct {
		name     string
		values   []float32
		optional bool
	}{
		{"old log-probs", in.OldLogprobs, nll}, {"advantages", in.Advantages, nll},
		{"reference log-probs", in.RefLogprobs, loss.KL == KLNone || nll}, {"weights", in.Weights, false},
		{"log-probs out", in.LogprobsOut, true}, {"entropies out", in.EntropiesOut, true},
	} {
		if err := b.aligned(s.name, s.values, s.optional); err != nil {
			return PolicyStats{}, err
		}
	}
	var stats C.gyre_policy_stats
	err := m.withBatch(b, func(h *C.gyre_model, batch *C.gyre_batch, err *C.gyre_error) (C.gyre_status, error) {
		var buffers [3]*C.gyre_gradients
		for i, g := range []*Gradients{out.Task, out.Entropy, out.KL} {
			var closed error
			if buffers[i], closed = g.optional(); closed != nil {
				return 0, closed
			}
		}
		var pin runtime.Pinner
		defer pin.Unpin()
		view := func(s []float32) *C.float {
			if len(s) > 0 {
				pin.Pin(&s[0])
			}
			return floats(s)
		}
		inputs := C.gyre_policy_inputs{
			old_logprobs: view(in.OldLogprobs), advantages: view(in.Advantages),
			ref_logprobs: view(in.RefLogprobs), weights: view(in.Weights),
		}
		c := C.gyre_policy_loss{
			objective: C.int32_t(loss.Objective), temperature: C.double(loss.Temperature),
			clip_low: C.double(loss.ClipLow), clip_high: C.double(loss.ClipHigh), clip_dual: C.double(loss.ClipDual),
			entropy_coef: C.double(loss.EntropyCoef),
			kl:           C.int32_t(loss.KL), kl_straight_through: flag(loss.KLStraightThrough), kl_coef: C.double(loss.KLCoef),
		}
		return C.gyre_policy_backward(h, batch, &inputs, &c, buffers[0], buffers[1], buffers[2],
			floats(in.LogprobsOut), floats(in.EntropiesOut), &stats, err), nil
	})
	if err != nil {
		return PolicyStats{}, err
	}
	return PolicyStats{
		Tokens: float64(stats.tokens), PolicyLoss: float64(stats.policy_loss), EntropyLoss: float64(stats.entropy_loss),
		KLLoss: float64(stats.kl_loss), Entropy: float64(stats.entropy), KL: float64(stats.kl),
		Clipped: float64(stats.clipped), ClippedLower: float64(stats.clipped_lower), LogRatio: float64(stats.log_ratio),
		LogprobGapMax: float64(stats.logprob_gap_max), LogprobGapSum: float64(stats.logprob_gap_sum),
	}, nil
}
