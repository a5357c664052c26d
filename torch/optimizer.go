package torch

/*
#include "gyre.h"
*/
import "C"

// AdamW (gyre_adamw_config) holds the hyper-parameters of AdamW with decoupled weight decay (Loshchilov and Hutter
// 2019), applied to every parameter as torch.optim.AdamW does.
type AdamW struct {
	Beta1, Beta2, Eps, WeightDecay float64
}

// Optimizer updates one model's parameters.
type Optimizer struct {
	handle[*C.gyre_optimizer]
}

// NewOptimizer makes an optimizer with zero moments. The model stays in memory until the optimizer is closed.
func NewOptimizer(m *Model, config AdamW) (*Optimizer, error) {
	o := &Optimizer{}
	o.model, o.free = m, func(h *C.gyre_optimizer) { C.gyre_optimizer_free(h) }
	err := m.with(func(h *C.gyre_model) code {
		return C.gyre_optimizer_new(h, as[C.gyre_adamw_config](&config), &o.c)
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// StepResult says what a step did.
type StepResult struct {
	GradNorm float64 // global L2 norm before clipping
	Applied  bool    // false when the norm is not finite: nothing was changed
}

// Step updates the parameters with the gradients scaled to a global norm of at most maxNorm (<= 0: not scaled; the
// buffer itself is left as it is) and touches the model.
func (o *Optimizer) Step(g *Gradients, lr, maxNorm float64) (StepResult, error) {
	var result StepResult
	err := o.with(func(h *C.gyre_optimizer) code {
		return C.gyre_optimizer_step(h, g.open(), C.double(lr), C.double(maxNorm), (*C.double)(&result.GradNorm),
			(*C.bool)(&result.Applied))
	})
	return result, err
}

// Steps counts the steps applied; 0 after Close.
func (o *Optimizer) Steps() int64 {
	var steps int64
	execute(func() {
		if o.c != nil {
			steps = int64(C.gyre_optimizer_steps(o.c))
		}
	})
	return steps
}

// SetSteps restores the step count of a checkpoint, which bias correction depends on.
func (o *Optimizer) SetSteps(steps int64) error {
	return o.with(func(h *C.gyre_optimizer) code { return C.gyre_optimizer_set_steps(h, C.int64_t(steps)) })
}

// Configure changes the hyper-parameters of the steps to come.
func (o *Optimizer) Configure(config AdamW) error {
	return o.with(func(h *C.gyre_optimizer) code {
		return C.gyre_optimizer_configure(h, as[C.gyre_adamw_config](&config))
	})
}

// Moment names a running average of AdamW.
type Moment int

// The first moment averages gradients, the second their squares.
const (
	FirstMoment  Moment = 0
	SecondMoment Moment = 1
)
