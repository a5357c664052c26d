package torch

/*
#include "gyre.h"
*/
import "C"

// ValueInputs are token-aligned.
type ValueInputs struct {
	Returns   []float32
	OldValues []float32 // may be nil when Clip is 0
	Weights   []float32
	Clip      float64   // values are clipped to OldValues ± Clip; 0 = off
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
			C.double(in.Clip), g.open(), floats(in.ValuesOut), as[C.gyre_value_stats](&stats))
	})
	return stats, err
}
