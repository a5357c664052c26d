package torch

/*
#include "gyre.h"
*/
import "C"

import (
	"fmt"
	"runtime"
)

// Model is a decoder with its parameters (f32).
type Model struct {
	// Config is the shape the model was made with.
	Config ModelConfig

	handle[*C.gyre_model]

	sharded bool // made by NewShardedModel
	shards  ShardConfig
	group   *Group // of a sharded model; may be nil

	base   *Model // that an adapter lies beside; nil for others
	owners *int   // that have not closed it; nil: this one alone. Executor thread only.

	sampling *Group // of ranks that sample together; nil: this one alone. Executor thread only.
}

// NewModel makes a model whose parameters are all zero, to be filled through [Model.Parameters] and then [Model.Touch].
func NewModel(config ModelConfig) (*Model, error) { return (&Model{Config: config}).build(nil) }

// build makes the C++ model; sharding is NULL for a model of one process.
func (m *Model) build(sharding *C.gyre_sharding) (*Model, error) {
	if err := m.Config.Check(); err != nil {
		return nil, err
	}
	m.free = func(h *C.gyre_model) { C.gyre_model_free(h) }
	if err := invoke(func() code {
		if m.base == nil {
			return C.gyre_model_new(m.Config.c(), sharding, &m.c)
		}
		return C.gyre_model_adapt(m.base.open(), as[C.gyre_lora](&m.Config.LoRA), C.int32_t(m.Config.Head), sharding,
			&m.c)
	}); err != nil {
		return nil, err
	}
	return m, nil
}

// Share gives the model another owner: it stays in memory until all have closed it.
func (m *Model) Share() *Model {
	other := &Model{}
	execute(func() {
		if m.owners == nil {
			free := m.free
			m.owners = new(int)
			*m.owners = 1
			m.free = func(h *C.gyre_model) {
				if *m.owners--; *m.owners == 0 {
					free(h)
				}
			}
		}
		*m.owners++
		*other = *m
	})
	return other
}

// Touch must follow any change of parameter values made through tensors: packed weights and KV caches of older values
// become invalid.
func (m *Model) Touch() error {
	return m.with(func(h *C.gyre_model) code { return C.gyre_model_touch(h) })
}

// Freeze takes the place of Touch in a frozen model (Placement.Frozen): the first parameters, so many in the order of
// Parameters, have their values. On the CPU what sampling and scoring read is copied and the rest lets go of its
// memory. Once all are filled, parameters can be neither read nor changed, and nothing trains.
func (m *Model) Freeze(filled int) error {
	return m.with(func(h *C.gyre_model) code { return C.gyre_model_freeze(h, C.int32_t(filled)) })
}

// Work (gyre_work) is what has been computed: floating-point operations of matrix products and attention as they were
// carried out (a multiply-add counts two, recomputation counts, a shared prefix once), and the bytes of weights, keys
// and values that had to be read at least.
type Work struct{ FLOPs, Bytes float64 }

// Add is the work of both.
func (w Work) Add(other Work) Work { return Work{w.FLOPs + other.FLOPs, w.Bytes + other.Bytes} }

// Sub is the work between two readings.
func (w Work) Sub(before Work) Work { return Work{w.FLOPs - before.FLOPs, w.Bytes - before.Bytes} }

// Work counts from the model's creation: [Model.Logprobs], backward passes and engines all add to it. It is zero after
// Close.
func (m *Model) Work() (work Work) {
	execute(func() {
		if m.c != nil {
			C.gyre_model_work(m.c, as[C.gyre_work](&work))
		}
	})
	return work
}

// SetRecompute switches gradient checkpointing: backward passes recompute each block's activations from its input,
// which takes about a tenth of the activation memory and a third more arithmetic and gives the same gradients bit for
// bit.
func (m *Model) SetRecompute(on bool) error {
	return m.with(func(h *C.gyre_model) code { return C.gyre_model_set_recompute(h, C.bool(on)) })
}

// Parameter is one weight under its Hugging Face name.
type Parameter struct {
	Name   string
	Shape  []int64
	Tensor *Tensor // aliases the model's storage
}

// Elements is how many numbers it holds.
func (p Parameter) Elements() int64 {
	n := int64(1)
	for _, size := range p.Shape {
		n *= size
	}
	return n
}

// Parameters lists the weights in the order of all parameter-shaped sets (gradients, optimizer moments). Fused storage
// appears as its Hugging Face parts, a tied head once as model.embed_tokens.weight. The caller closes the tensors (see
// [CloseParameters]); after changing their values it calls [Model.Touch].
func (m *Model) Parameters() ([]Parameter, error) {
	var out []Parameter
	err := m.with(func(h *C.gyre_model) code {
		for i := range C.gyre_model_parameter_count(h) {
			var name [C.GYRE_NAME_SIZE]C.char
			t := FromHandle(nil)
			if s := C.gyre_model_parameter(h, i, &name[0], &t.c); s != C.GYRE_OK {
				return s
			}
			out = append(out, Parameter{Name: C.GoString(&name[0]), Tensor: t})
		}
		return C.GYRE_OK
	})
	for i := range out {
		if err == nil {
			out[i].Shape, err = out[i].Tensor.Shape()
		}
	}
	if err != nil {
		CloseParameters(out)
		return nil, err
	}
	return out, nil
}

// CloseParameters closes the tensors of a parameter list.
func CloseParameters(list []Parameter) {
	for _, p := range list {
		p.Tensor.Close()
	}
}

// Logprobs computes log softmax(logits/temperature)[token] of every masked token, 0 elsewhere. They are bit-identical
// to those the engine reports for the same weights and token history. A model whose log-probs are not finite gives an
// error that matches [ErrNotFinite].
func (m *Model) Logprobs(b Batch, temperature float64) ([]float32, error) {
	logprobs := make([]float32, len(b.IDs))
	return logprobs, m.score(b, temperature, logprobs, nil)
}

// Entropies computes those of the distributions that Logprobs are of.
func (m *Model) Entropies(b Batch, temperature float64) ([]float32, error) {
	entropies := make([]float32, len(b.IDs))
	return entropies, m.score(b, temperature, make([]float32, len(b.IDs)), entropies)
}

func (m *Model) score(b Batch, temperature float64, logprobs, entropies []float32) error {
	return m.withBatch(b, func(h *C.gyre_model, batch *C.gyre_batch) code {
		return C.gyre_model_score(h, batch, C.double(temperature), floats(logprobs), floats(entropies), nil)
	})
}

// Support is k tokens for each token whose mask is 1, in their order, and k + 1 log-probs for each: those of the k, and
// that of all other tokens together, which means nothing where k is the vocabulary.
type Support struct {
	K        int
	IDs      []int32
	Logprobs []float32
}

// c is the C view; the slices are pinned.
func (s Support) c(pin *runtime.Pinner) C.gyre_support {
	return C.gyre_support{k: C.int64_t(s.K), ids: pinned[C.int32_t](pin, s.IDs),
		logprobs: pinned[C.float](pin, s.Logprobs)}
}

// Likeliest computes Logprobs, and for every masked token the support of the k likeliest ones in its
// place. Of equally likely tokens it takes those of lower ids, on the CPU.
func (m *Model) Likeliest(b Batch, temperature float64, k int) ([]float32, Support, error) {
	logprobs, s := make([]float32, len(b.IDs)), b.support(k)
	err := m.withBatch(b, func(h *C.gyre_model, batch *C.gyre_batch) code {
		var pin runtime.Pinner
		defer pin.Unpin()
		support := s.c(&pin)
		pin.Pin(&support)
		return C.gyre_model_score(h, batch, C.double(temperature), floats(logprobs), nil, &support)
	})
	return logprobs, s, err
}

// Values computes the critic's value of the state before every masked token (0 elsewhere). The model must have a value
// head.
func (m *Model) Values(b Batch) ([]float32, error) {
	values := make([]float32, len(b.IDs))
	err := m.withBatch(b, func(h *C.gyre_model, batch *C.gyre_batch) code {
		return C.gyre_model_values(h, batch, floats(values))
	})
	return values, err
}

// Logits computes the full logits of every position of one sequence, [len(ids) × vocabulary] row-major. For tests and
// diagnosis: nothing else keeps such a matrix.
func (m *Model) Logits(ids []int32) ([]float32, error) {
	if len(ids) == 0 {
		return nil, fmt.Errorf("torch: logits of an empty sequence: %w", ErrInvalidArgument)
	}
	logits := make([]float32, int64(len(ids))*m.Config.VocabSize)
	err := m.with(func(h *C.gyre_model) code {
		return C.gyre_model_logits(h, (*C.int32_t)(&ids[0]), C.int64_t(len(ids)), floats(logits))
	})
	return logits, err
}

// floats is the C view of a slice, NULL when it is empty.
func floats(s []float32) *C.float { return view[C.float](s) }
