package train

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/model/checkpoint"
	"gyre/torch"
)

// Learner is a model on the ranks of a run: a policy, a value network, or a reference that only scores. It belongs to
// one goroutine.
type Learner struct {
	Model     *torch.Model
	Trains    checkpoint.Trainable // what of it learns where something changes the weights
	Optimizer *torch.Optimizer     // nil where nothing changes the weights
	gradients *torch.Gradients     // nil where nothing changes the weights
	clip      float64
	dropout   float64
	seed      uint64
	moved     float64 // bytes that an optimizer step reads and writes at least
	on        Placement
	// Colocated, if not nil, shares the model's device and weights.
	Colocated Colocated
}

// Colocated is a sampler that uses a model between the passes of those who train it. Its methods are called by the
// learner's goroutine.
type Colocated interface {
	// Between is called after a pass: the weights are those of before.
	Between(ctx context.Context) error
	// Changing is called before the weights change.
	Changing() error
}

// Optimization says how a model's weights change.
type Optimization struct {
	torch.AdamW
	ClipGrad float64 // the largest norm of a gradient; longer ones are scaled down
	Dropout  float64 // of an adapter's inputs
	Seed     uint64  // that what is dropped follows from
}

// NewLearner takes over a model. Without an optimization it only computes. Close it; after an error the model is
// still the caller's.
func NewLearner(model *torch.Model, on Placement, how *Optimization) (l *Learner, err error) {
	on.World = cmp.Or(on.World, ranks.Alone())
	l = &Learner{Model: model, on: on}
	if how == nil {
		return l, nil
	}
	l.clip, l.dropout, l.seed = how.ClipGrad, how.Dropout, how.Seed
	if l.Optimizer, err = torch.NewOptimizer(model, how.AdamW); err != nil {
		return nil, fmt.Errorf("creating the optimizer: %w", err)
	}
	if l.gradients, err = torch.NewGradients(model); err != nil {
		l.Optimizer.Close()
		return nil, fmt.Errorf("creating the gradient buffer: %w", err)
	}
	if l.moved, err = traffic(l.Optimizer, l.gradients.Len()); err != nil {
		return nil, errors.Join(err, l.gradients.Close(), l.Optimizer.Close())
	}
	return l, nil
}

// traffic is how many bytes a step of an optimizer for so many parameters reads and writes at least on this rank: it
// reads weights, gradients and both moments, and writes all but the gradients, in float32.
func traffic(o *torch.Optimizer, parameters int) (bytes float64, err error) {
	for i := range parameters {
		held, err := o.Shard(torch.FirstMoment, i)
		if err != nil {
			return 0, err
		}
		shape, err := held.Tensor.Shape()
		held.Tensor.Close()
		if err != nil {
			return 0, err
		}
		bytes += 7 * 4 * float64(torch.Parameter{Shape: shape}.Elements())
	}
	return bytes, nil
}

// Work is what has been computed with the model, and the memory traffic of its optimizer's steps.
func (l *Learner) Work() torch.Work {
	work := l.Model.Work()
	if l.Optimizer != nil {
		work.Bytes += l.moved * float64(l.Optimizer.Steps())
	}
	return work
}

// Close frees model, optimizer and gradients; nil is closed already.
func (l *Learner) Close() {
	if l == nil {
		return
	}
	if l.Optimizer != nil {
		l.gradients.Close()
		l.Optimizer.Close()
	}
	l.Model.Close()
}

// Gradients implements Policy.
func (l *Learner) Gradients() *torch.Gradients { return l.gradients }

// Step implements Policy.
func (l *Learner) Step(lr float64) (torch.StepResult, error) {
	if l.Colocated != nil {
		if err := l.Colocated.Changing(); err != nil {
			return torch.StepResult{}, err
		}
	}
	result, err := l.Optimizer.Step(l.gradients, lr, l.clip)
	if err != nil {
		return result, err
	}
	return result, l.gradients.Zero()
}

// Dropout is what the passes of the next optimizer step drop. It follows from a seed and the steps before, so that a
// resumed run goes on with it.
func (l *Learner) Dropout() torch.Dropout {
	if l.dropout == 0 {
		return torch.Dropout{}
	}
	key := sha256.Sum256(fmt.Appendf(nil, "dropout/%d/%d", l.seed, l.Optimizer.Steps()))
	return torch.Dropout{Probability: l.dropout, Key: binary.LittleEndian.Uint64(key[:])}
}

// Configure changes the hyper-parameters of the steps to come.
func (l *Learner) Configure(how Optimization) error {
	l.clip = how.ClipGrad
	return l.Optimizer.Configure(how.AdamW)
}
