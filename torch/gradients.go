package torch

/*
#include "gyre.h"
*/
import "C"

import "math"

// Gradients is one buffer shaped like a model's parameters. Backward passes add into it.
type Gradients struct {
	handle     *C.gyre_gradients // executor thread only; nil after Close
	parameters int
}

// NewGradients makes a zero buffer for the model.
func NewGradients(m *Model) (*Gradients, error) {
	return gradientsOf(m, func(h *C.gyre_model, out **C.gyre_gradients, err *C.gyre_error) C.gyre_status {
		return C.gyre_gradients_new(h, out, err)
	})
}

func gradientsOf(m *Model, make func(*C.gyre_model, **C.gyre_gradients, *C.gyre_error) C.gyre_status) (*Gradients, error) {
	g := new(Gradients)
	err := m.with(func(h *C.gyre_model, err *C.gyre_error) C.gyre_status {
		g.parameters = int(C.gyre_model_parameter_count(h))
		return make(h, &g.handle, err)
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// open gives the C handle. Executor thread only.
func (g *Gradients) open() (*C.gyre_gradients, error) {
	if g == nil || g.handle == nil {
		return nil, ErrClosed
	}
	return g.handle, nil
}

// optional is open for an argument that may be left out: nil gives NULL. Executor thread only.
func (g *Gradients) optional() (*C.gyre_gradients, error) {
	if g == nil {
		return nil, nil
	}
	return g.open()
}

func (g *Gradients) with(f func(h *C.gyre_gradients, err *C.gyre_error) C.gyre_status) error {
	return invoke(func(err *C.gyre_error) (C.gyre_status, error) {
		h, closed := g.open()
		if closed != nil {
			return 0, closed
		}
		return f(h, err), nil
	})
}

// Close frees the buffer.
func (g *Gradients) Close() error {
	execute(func() {
		C.gyre_gradients_free(g.handle)
		g.handle = nil
	})
	return nil
}

// Zero sets every entry to 0.
func (g *Gradients) Zero() error {
	return g.with(func(h *C.gyre_gradients, err *C.gyre_error) C.gyre_status { return C.gyre_gradients_zero(h, err) })
}

// Add adds scale times the other buffer.
func (g *Gradients) Add(other *Gradients, scale float64) error {
	return g.pair(other, func(a, b *C.gyre_gradients, err *C.gyre_error) C.gyre_status {
		return C.gyre_gradients_add(a, b, C.double(scale), err)
	})
}

// pair runs f with the open handles of both buffers.
func (g *Gradients) pair(other *Gradients, f func(a, b *C.gyre_gradients, err *C.gyre_error) C.gyre_status) error {
	return invoke(func(err *C.gyre_error) (C.gyre_status, error) {
		a, closed := g.open()
		if closed != nil {
			return 0, closed
		}
		b, closed := other.open()
		if closed != nil {
			return 0, closed
		}
		return f(a, b, err), nil
	})
}

// Dot is the inner product of two buffers in float64, in total and for every parameter in the order of [Model.Parameters]. On the CPU
// the order of summation, hence every bit, is the same for any number of threads.
func (g *Gradients) Dot(other *Gradients) (total float64, perParameter []float64, err error) {
	perParameter = make([]float64, g.parameters)
	err = g.pair(other, func(a, b *C.gyre_gradients, err *C.gyre_error) C.gyre_status {
		return C.gyre_gradients_dot(a, b, (*C.double)(&total), (*C.double)(&perParameter[0]), err)
	})
	return total, perParameter, err
}

// Products are the inner products of all pairs a <= b of buffers, row by row of the upper triangle, for every parameter. They
// are [Gradients.Dot]'s (on the CPU bit for bit, on tensors but for rounding), but each buffer is read once.
func Products(buffers []*Gradients) ([][]float64, error) {
	var products [][]float64
	err := invoke(func(err *C.gyre_error) (C.gyre_status, error) {
		handles := make([]*C.gyre_gradients, len(buffers))
		for i, g := range buffers {
			var closed error
			if handles[i], closed = g.open(); closed != nil {
				return 0, closed
			}
		}
		if len(buffers) == 0 {
			return 0, nil
		}
		pairs, parameters := len(buffers)*(len(buffers)+1)/2, buffers[0].parameters
		flat := make([]float64, pairs*parameters)
		for p := range pairs {
			products = append(products, flat[p*parameters:(p+1)*parameters])
		}
		return C.gyre_gradients_products(&handles[0], C.int32_t(len(handles)), (*C.double)(&flat[0]), err), nil
	})
	if err != nil {
		return nil, err
	}
	return products, nil
}

// Sketch is a count sketch of the buffer: inner products of sketches estimate those of gradients without bias, with a standard
// deviation of about |a|·|b|/√dimension, and sketches add up as gradients do. A prime dimension spreads rows and columns.
func (g *Gradients) Sketch(dimension int) ([]float32, error) {
	out := make([]float32, max(dimension, 1))
	err := g.with(func(h *C.gyre_gradients, err *C.gyre_error) C.gyre_status {
		return C.gyre_gradients_sketch(h, C.int64_t(dimension), (*C.float)(&out[0]), err)
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

// Tensor aliases the gradient of parameter i in the order of [Model.Parameters].
func (g *Gradients) Tensor(i int) (*Tensor, error) {
	t := new(Tensor)
	err := g.with(func(h *C.gyre_gradients, err *C.gyre_error) C.gyre_status {
		return C.gyre_gradients_tensor(h, C.int32_t(i), &t.handle, err)
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}
