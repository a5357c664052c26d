package torch

/*
#include "gyre.h"
*/
import "C"

import (
	"bytes"
	"fmt"
	"runtime"
)

// Batch is a set of sequences packed end to end: sequence s owns entries Offsets[s] to Offsets[s+1]-1 of IDs and of
// every token-aligned slice that goes with the batch. Mask is 1 where a token-aligned value is wanted or trained on,
// and 0 at the first token of every sequence. Targets are the tokens whose log-probs are meant where the mask is 1,
// given the ids before them; nil: the ids. An empty batch is that of a rank without work (see [NewShardedModel]).
type Batch struct {
	Offsets []int64
	IDs     []int32
	Mask    []uint8
	Targets []int32
}

// Pack joins sequences and their masks, which are as long. Nil masks select every token but the first of each sequence.
func Pack(seqs [][]int32, masks [][]bool) Batch {
	b := Batch{Offsets: make([]int64, 1, len(seqs)+1)}
	for s, ids := range seqs {
		b.IDs = append(b.IDs, ids...)
		for t := range ids {
			var bit uint8
			if masks == nil && t > 0 || masks != nil && masks[s][t] {
				bit = 1
			}
			b.Mask = append(b.Mask, bit)
		}
		b.Offsets = append(b.Offsets, int64(len(b.IDs)))
	}
	return b
}

// check makes sure that C++, which takes all lengths from the offsets, stays inside the slices. It checks the values
// itself.
func (b Batch) check() error {
	n := len(b.IDs)
	switch {
	case len(b.Offsets) < 2 || n == 0:
		return fmt.Errorf("torch: batch: no sequences: %w", ErrInvalidArgument)
	case len(b.Targets) != n && b.Targets != nil:
		return fmt.Errorf("torch: batch: %d ids but %d targets: %w", n, len(b.Targets), ErrInvalidArgument)
	case len(b.Mask) != n:
		return fmt.Errorf("torch: batch: %d ids but a mask of %d: %w", n, len(b.Mask), ErrInvalidArgument)
	case b.Offsets[0] != 0 || b.Offsets[len(b.Offsets)-1] != int64(n):
		return fmt.Errorf("torch: batch: offsets run from %d to %d, want 0 to %d: %w", b.Offsets[0],
			b.Offsets[len(b.Offsets)-1], n, ErrInvalidArgument)
	}
	return nil
}

// support is an empty one of the batch.
func (b Batch) support(k int) Support {
	k = max(k, 0)
	n := bytes.Count(b.Mask, []byte{1})
	return Support{K: k, IDs: make([]int32, n*k), Logprobs: make([]float32, n*(k+1))}
}

// column is a token-aligned slice and what messages call it.
type column struct {
	name     string
	values   []float32
	optional bool // may be nil
}

// aligned checks the lengths of columns.
func (b Batch) aligned(columns ...column) error {
	for _, c := range columns {
		if len(c.values) != len(b.IDs) && (c.values != nil || !c.optional) {
			return fmt.Errorf("torch: batch: %s has %d entries for %d tokens: %w", c.name, len(c.values), len(b.IDs),
				ErrInvalidArgument)
		}
	}
	return nil
}

// withBatch runs f with the open model and the C view of the batch.
func (m *Model) withBatch(b Batch, f func(h *C.gyre_model, batch *C.gyre_batch) code) error {
	// a rank without work, which joins the others' passes
	idle := m != nil && m.sharded && len(b.IDs) == 0
	if err := b.check(); err != nil && !idle {
		return err
	}
	return m.with(func(h *C.gyre_model) code {
		if idle {
			return f(h, new(C.gyre_batch))
		}
		var pin runtime.Pinner
		defer pin.Unpin()
		return f(h, &C.gyre_batch{
			num_sequences: C.int64_t(len(b.Offsets) - 1),
			offsets:       pinned[C.int64_t](&pin, b.Offsets),
			ids:           pinned[C.int32_t](&pin, b.IDs),
			mask:          pinned[C.uint8_t](&pin, b.Mask),
			targets:       pinned[C.int32_t](&pin, b.Targets),
		})
	})
}
