package torch

/*
#include "gyre.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// LossInfo is a policy loss of csrc/train/losses: what a task term measures of a token.
type LossInfo struct {
	Name      string
	Compares  bool // reads advantages and old log-probs; the KL term is off where it does not
	OverBatch OverBatch
	Constants []LossConstant
}

// OverBatch is what a loss reads of a token that only the whole mini-batch tells, and that the caller computes.
type OverBatch int32

// OverBatchMeanLogRatio is the mean of log-prob - old log-prob over the tokens of the token's episode;
// OverBatchClipCov and OverBatchKLCov say whether the token is among those that Clip-Cov and KL-Cov choose (1) or not.
const (
	OverBatchNone         OverBatch = C.GYRE_OVER_BATCH_NONE
	OverBatchMeanLogRatio OverBatch = C.GYRE_OVER_BATCH_MEAN_LOG_RATIO
	OverBatchClipCov      OverBatch = C.GYRE_OVER_BATCH_CLIP_COV
	OverBatchKLCov        OverBatch = C.GYRE_OVER_BATCH_KL_COV
)

// LossConstant is a constant of a loss: a key of [actor] with its default and its legal interval, or the names that it
// takes, which count from 0.
type LossConstant struct {
	Name, Range string
	Default     float64
}

// Losses is the table of policy losses. It panics where the library cannot be loaded, which [Load] says beforehand.
var Losses = sync.OnceValue(func() (all []LossInfo) {
	if err := load(); err != nil {
		panic(err)
	}
	for i := C.int32_t(0); ; i++ {
		loss := C.gyre_loss_at(i)
		if loss.name == nil {
			return all
		}
		info := LossInfo{Name: C.GoString(loss.name), Compares: bool(loss.compares),
			OverBatch: OverBatch(loss.over_batch)}
		for _, c := range loss.constants {
			if c.name != nil {
				info.Constants = append(info.Constants, LossConstant{C.GoString(c.name), C.GoString(c._range),
					float64(c.value)})
			}
		}
		all = append(all, info)
	}
})

// Loss (gyre_task_loss) is a policy loss with its constants.
type Loss struct {
	index     int32
	constants [C.GYRE_LOSS_CONSTANTS]float64
}

// Info is the loss's entry in the table.
func (l Loss) Info() LossInfo { return Losses()[l.index] }

// Constant is the value of a constant; 0 where the loss has none of that name.
func (l Loss) Constant(name string) float64 {
	for k, c := range l.Info().Constants {
		if c.Name == name {
			return l.constants[k]
		}
	}
	return 0
}

// NewLoss is the loss of that name, one of [Losses], with those of the values that are its constants. The others have
// their defaults.
func NewLoss(name string, values map[string]float64) Loss {
	i := slices.IndexFunc(Losses(), func(l LossInfo) bool { return l.Name == name })
	if i < 0 {
		panic(fmt.Sprintf("torch: there is no loss %q", name))
	}
	loss := Loss{index: int32(i)}
	for k, c := range Losses()[i].Constants {
		loss.constants[k] = c.Default
		if value, given := values[c.Name]; given {
			loss.constants[k] = value
		}
	}
	return loss
}

// KLEstimator estimates KL(policy ‖ reference) from the log-probs x and y of the sampled token.
type KLEstimator int32

// KLSupport is no estimator: the divergence of both distributions over PolicyInputs.Support and one outcome beside it.
// The others are the estimators of Schulman, "Approximating KL divergence" (2020), with the clamps of verl: K1 = x-y,
// KLAbs = |x-y|, K2 = (x-y)²/2, K3 = e^z - z - 1 with z = clamp(y-x, ±20), clamped to ±10.
const (
	KLNone KLEstimator = C.GYRE_KL_NONE
	KLK1   KLEstimator = C.GYRE_KL_K1
	KLAbs  KLEstimator = C.GYRE_KL_ABS
	KLK2   KLEstimator = C.GYRE_KL_K2
	KLK3   KLEstimator = C.GYRE_KL_K3

	KLSupport KLEstimator = C.GYRE_KL_SUPPORT
)

// TermKind is what a term of the loss measures of a token.
type TermKind int32

// TermTask is L_t of the task's loss, TermEntropy the entropy H_t of the policy, TermKL its divergence KL_t from the
// reference, TermBalance how unevenly experts are loaded, B_t of csrc/train/balance.h.
const (
	TermTask    TermKind = C.GYRE_TERM_TASK
	TermEntropy TermKind = C.GYRE_TERM_ENTROPY
	TermKL      TermKind = C.GYRE_TERM_KL
	TermBalance TermKind = C.GYRE_TERM_BALANCE
)

// PolicyLoss describes the terms: Σ_t weight[t]·(L_t | -EntropyCoef·H_t | KLCoef·KL_t | BalanceCoef·B_t) over the
// masked tokens.
type PolicyLoss struct {
	Task              Loss
	Temperature       float64 // logits are divided by it; > 0
	EntropyCoef       float64
	KL                KLEstimator
	KLStraightThrough bool // the estimator's value with K2's gradient
	KLCoef            float64
	BalanceCoef       float64
}

// Terms are those that the loss has.
func (l PolicyLoss) Terms() []TermKind {
	kinds := []TermKind{TermTask}
	if l.EntropyCoef != 0 {
		kinds = append(kinds, TermEntropy)
	}
	if l.BalanceCoef != 0 {
		kinds = append(kinds, TermBalance)
	}
	if l.KL != KLNone {
		kinds = append(kinds, TermKL)
	}
	return kinds
}

// PolicyInputs are token-aligned. Weights carry the aggregation mode and its normaliser over the whole batch, so that
// the sum over micro-batches is the batch loss.
type PolicyInputs struct {
	OldLogprobs []float32 // may be nil when the loss does not compare
	Behaviour   []float32 // log-probs of the policy that drew the tokens; nil: OldLogprobs
	OverBatch   []float32 // see LossInfo.OverBatch; may be nil where the loss has none
	Importance  []float32 // weights of the task's loss alone, beside those of its term; nil: 1
	RefLogprobs []float32 // may be nil when KL is KLNone or KLSupport
	Support     Support   // of the reference, when KL is KLSupport
	Dropout     Dropout
	// Of terms that bring none of their own: may be nil when all do. A loss that does not compare needs no
	// advantages.
	Advantages, Weights []float32

	LogprobsOut, EntropiesOut []float32 // filled when not nil
}

// Term is one term of the loss: its kind, what weighs it, and where its gradient goes. Any number of terms share one
// forward pass, and those that share a buffer one backward pass.
type Term struct {
	Name       string // unique in a call
	Kind       TermKind
	Advantages []float32  // token-aligned, of a task term; nil: those of the inputs
	Weights    []float32  // token-aligned; nil: those of the inputs
	Into       *Gradients // the gradient is added; nil: statistics only
}

// Names of the terms that [Terms] makes.
const (
	Task    = "task"
	Entropy = "entropy"
	KL      = "kl"
	Balance = "balance"
)

// Terms are the three terms of the usual loss; nil skips a gradient.
func Terms(task, entropy, kl *Gradients) []Term {
	return []Term{{Name: Task, Kind: TermTask, Into: task}, {Name: Entropy, Kind: TermEntropy, Into: entropy},
		{Name: KL, Kind: TermKL, Into: kl}}
}

// TermStats are sums over the masked tokens of one call.
type TermStats struct {
	Loss                  float64 // what Into holds the gradient of: the term with its weights and its coefficient
	Value                 float64 // Σ weight·(L, H or KL), without the coefficient
	Clipped, ClippedLower float64 // tokens where the clip, the dual clip acted
}

// PolicyStats are sums over the masked tokens of one call.
type PolicyStats struct {
	Tokens        float64
	LogRatio      float64 // Σ clamp(old - new, ±20)
	LogprobGapMax float64 // of |new - old|
	Terms         map[string]TermStats
}

// PolicyBackward runs forward and backward of one micro-batch. Log-probs that are not finite give an error that matches
// [ErrNotFinite]; the gradients may then hold a part of the micro-batch.
func (m *Model) PolicyBackward(b Batch, in PolicyInputs, loss PolicyLoss, terms []Term) (PolicyStats, error) {
	info := loss.Task.Info()
	alone := !info.Compares
	columns := []column{
		{"old log-probs", in.OldLogprobs, alone}, {"behaviour log-probs", in.Behaviour, true},
		{"statistics of the mini-batch", in.OverBatch, info.OverBatch == OverBatchNone},
		{"importance weights", in.Importance, true}, {"advantages", in.Advantages, true},
		{"reference log-probs", in.RefLogprobs, loss.KL == KLNone || loss.KL == KLSupport || alone},
		{"weights", in.Weights, true}, {"log-probs out", in.LogprobsOut, true},
		{"entropies out", in.EntropiesOut, true},
	}
	for _, t := range terms {
		columns = append(columns, column{"advantages of " + t.Name, t.Advantages, true}, column{"weights of " + t.Name,
			t.Weights, true})
	}
	if err := b.aligned(columns...); err != nil {
		return PolicyStats{}, err
	}
	if want := b.support(in.Support.K); loss.KL == KLSupport && !alone && (len(in.Support.IDs) != len(want.IDs) ||
		len(in.Support.Logprobs) != len(want.Logprobs)) {
		return PolicyStats{}, fmt.Errorf("torch: batch: a support of %d tokens and %d log-probs, want %d and %d: %w",
			len(in.Support.IDs), len(in.Support.Logprobs), len(want.IDs), len(want.Logprobs), ErrInvalidArgument)
	}
	var stats PolicyStats
	sums := make([]TermStats, len(terms)+1)
	err := m.withBatch(b, func(h *C.gyre_model, batch *C.gyre_batch) code {
		var pin runtime.Pinner
		defer pin.Unpin()
		view := func(s []float32) *C.float { return pinned[C.float](&pin, s) }
		list := make([]C.gyre_term, len(terms)+1)
		for i, t := range terms {
			list[i] = C.gyre_term{name: pinned[C.char](&pin, append([]byte(t.Name), 0)), kind: C.int32_t(t.Kind),
				advantages: view(t.Advantages), weights: view(t.Weights)}
			if t.Into != nil {
				list[i].into = t.Into.open()
			}
		}
		inputs := C.gyre_policy_inputs{
			old_logprobs: view(in.OldLogprobs), behaviour: view(in.Behaviour), over_batch: view(in.OverBatch),
			importance: view(in.Importance), advantages: view(in.Advantages), ref_logprobs: view(in.RefLogprobs),
			weights: view(in.Weights),
			support: in.Support.c(&pin), dropout: *as[C.gyre_dropout](&in.Dropout),
		}
		return C.gyre_policy_backward(h, batch, &inputs, as[C.gyre_policy_loss](&loss), &list[0], C.int32_t(len(terms)),
			floats(in.LogprobsOut), floats(in.EntropiesOut), as[C.gyre_policy_stats](&stats),
			as[C.gyre_term_stats](&sums[0]))
	})
	if err != nil {
		return PolicyStats{}, err
	}
	stats.Terms = make(map[string]TermStats, len(terms))
	for i, t := range terms {
		stats.Terms[t.Name] = sums[i]
	}
	return stats, nil
}

// ValueInputs are token-aligned.
type ValueInputs struct {
	Returns   []float32
	OldValues []float32 // may be nil when Clip is 0
	Weights   []float32
	Clip      float64 // values are clipped to OldValues ± Clip; 0 = off
	Dropout   Dropout
	ValuesOut []float32 // filled when not nil
}

// ValueStats are sums over the masked tokens of one call.
type ValueStats struct {
	Tokens   float64
	Loss     float64 // Σ weight·½·max((V-R)², (clip(V)-R)²)
	Clipped  float64 // tokens where the clipped branch was larger
	ValueSum float64 // Σ V
}

// ValueBackward runs forward and backward of the critic's clipped value loss on one micro-batch and adds the gradient
// to g. Values that are not finite give an error that matches [ErrNotFinite], with the gradients as they were.
func (m *Model) ValueBackward(b Batch, in ValueInputs, g *Gradients) (ValueStats, error) {
	if err := b.aligned(column{"returns", in.Returns, false}, column{"old values", in.OldValues, in.Clip <= 0},
		column{"weights", in.Weights, false}, column{"values out", in.ValuesOut, true}); err != nil {
		return ValueStats{}, err
	}
	var stats ValueStats
	err := m.withBatch(b, func(h *C.gyre_model, batch *C.gyre_batch) code {
		return C.gyre_value_backward(h, batch, floats(in.Returns), floats(in.OldValues), floats(in.Weights),
			C.double(in.Clip), as[C.gyre_dropout](&in.Dropout), g.open(), floats(in.ValuesOut),
			as[C.gyre_value_stats](&stats))
	})
	return stats, err
}
