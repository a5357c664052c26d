package torch

/*
#include "gyre.h"
*/
import "C"

import (
	"math"
	"slices"
)

// Gradients is one buffer shaped like a model's parameters. Backward passes add into it.
type Gradients struct {
	handle[*C.gyre_gradients]
	parameters int
}

// NewGradients makes a zero buffer for the model.
func NewGradients(m *Model) (*Gradients, error) { return gradientsOf(m, false) }

// NewOwnGradients makes a buffer for what this rank alone adds: [Gradients.Add] to another buffer makes it this rank's
// share of a sum (in the current lane), [Gradients.Sketch] is of it alone, and neither is collective. Everything that
// sums over ranks refuses it, and so does a model with [ShardFull] and without deterministic sums, which keeps no whole
// gradients. Of a model in one process it is [NewGradients].
func NewOwnGradients(m *Model) (*Gradients, error) { return gradientsOf(m, true) }

func gradientsOf(m *Model, own bool) (*Gradients, error) {
	g := &Gradients{}
	g.free = func(h *C.gyre_gradients) { C.gyre_gradients_free(h) }
	err := m.with(func(h *C.gyre_model) code {
		g.parameters = int(C.gyre_model_parameter_count(h))
		return C.gyre_gradients_new(h, C.bool(own), &g.c)
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// Len is the number of parameters that it has a place for.
func (g *Gradients) Len() int { return g.parameters }

// Zero sets every entry to 0.
func (g *Gradients) Zero() error {
	return g.with(func(h *C.gyre_gradients) code { return C.gyre_gradients_zero(h) })
}

// Add adds scale times the other buffer.
func (g *Gradients) Add(other *Gradients, scale float64) error {
	return g.with(func(h *C.gyre_gradients) code {
		return C.gyre_gradients_add(h, other.open(), C.double(scale))
	})
}

// AddWeights adds scale times the parameters of the model that the buffer was made for: taken before an update and
// added after it, they leave what it has changed. It takes no buffer of [NewOwnGradients] of a model over ranks.
func (g *Gradients) AddWeights(m *Model, scale float64) error {
	return g.with(func(h *C.gyre_gradients) code {
		return C.gyre_gradients_add_weights(h, m.open(), C.double(scale))
	})
}

// Dot is the inner product of two buffers in float64, in total and for every parameter in the order of
// [Model.Parameters]. On the CPU the order of summation, hence every bit, is the same for any number of threads.
func (g *Gradients) Dot(other *Gradients) (total float64, perParameter []float64, err error) {
	perParameter = make([]float64, g.parameters)
	err = g.with(func(h *C.gyre_gradients) code {
		return C.gyre_gradients_dot(h, other.open(), (*C.double)(&total), (*C.double)(&perParameter[0]))
	})
	return total, perParameter, err
}

// Products are the inner products of all pairs a <= b of buffers, row by row of the upper triangle, for every
// parameter. They are [Gradients.Dot]'s (on the CPU bit for bit, on tensors but for rounding), but each buffer is read
// once.
func Products(buffers []*Gradients) ([][]float64, error) {
	if len(buffers) == 0 {
		return nil, nil
	}
	pairs, parameters := len(buffers)*(len(buffers)+1)/2, buffers[0].parameters
	flat := make([]float64, pairs*parameters)
	err := invoke(func() code {
		handles := make([]*C.gyre_gradients, len(buffers))
		for i, g := range buffers {
			handles[i] = g.open()
		}
		return C.gyre_gradients_products(&handles[0], C.int32_t(len(handles)), (*C.double)(&flat[0]))
	})
	if err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(flat, parameters)), nil
}

// Sketch is a count sketch of the buffer: inner products of sketches estimate those of gradients without bias, with a
// standard deviation of about |a|·|b|/√dimension, and sketches add up as gradients do. A prime dimension spreads rows
// and columns.
func (g *Gradients) Sketch(dimension int) ([]float32, error) {
	out := make([]float32, max(dimension, 1))
	err := g.with(func(h *C.gyre_gradients) code {
		return C.gyre_gradients_sketch(h, C.int64_t(dimension), (*C.float)(&out[0]))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Norm is the global L2 norm.
func (g *Gradients) Norm() (float64, error) {
	total, _, err := g.Dot(g)
	return math.Sqrt(total), err
}

// Tensor aliases what is held here of the gradient of parameter i in the order of [Model.Parameters], laid out flat.
func (g *Gradients) Tensor(i int) (*Tensor, error) {
	s, err := g.Shard(i)
	return s.Tensor, err
}
