package torch

/*
#include <stdlib.h>
#include "gyre.h"
*/
import "C"

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
	"unsafe"
)

// GroupConfig says who meets whom, and where.
type GroupConfig struct {
	Rank, WorldSize int
	Store           *Store        // nil when WorldSize is 1; the group may outlive it
	Prefix          string        // of the keys in the store: one per group
	Backend         string        // "gloo", also "", or "nccl": NCCL between GPUs and Gloo for the rest
	Bind            string        // address, host name or interface that connections between ranks use; "" is 127.0.0.1
	Timeout         time.Duration // how long a rank waits for another before the group has failed; 0 is ten minutes
	First           int           // what messages call rank 0: its rank in the run that this group is a part of
}

// Group is the processes ("ranks") of a run. A nil *Group is a process alone: it has a rank and a size, and nobody to
// call.
//
// Collectives are called by all ranks in the same order, one at a time; those of a sharded model may run beside them.
// They fail, with an error that matches [ErrDisconnected] and names the operation and the rank, when a rank ends, is
// silent for the group's timeout, or aborts; after that every collective of every rank fails. So does ending a
// context: what other ranks wait for cannot be taken back.
type Group struct {
	config GroupConfig

	mu     sync.RWMutex // guards handle: held for writing by Close alone
	handle *C.gyre_group
}

// OpenGroup waits until all ranks are there, or the context ends.
func OpenGroup(ctx context.Context, config GroupConfig) (*Group, error) {
	config.Backend = cmp.Or(config.Backend, "gloo")
	config.Bind = cmp.Or(config.Bind, "127.0.0.1")
	config.Timeout = cmp.Or(config.Timeout, 10*time.Minute)
	g := &Group{config: config}
	opened := make(chan error, 1)
	go func() { opened <- g.open() }() // ends when all ranks are there, or after config.Timeout
	select {
	case err := <-opened:
		if err != nil {
			return nil, err
		}
		return g, nil
	case <-ctx.Done():
		go func() { // ends with the other: what the library waits for cannot be taken back
			<-opened
			g.Close()
		}()
		return nil, context.Cause(ctx)
	}
}

func (g *Group) open() error {
	c := (*C.gyre_group_config)(C.calloc(1, C.sizeof_gyre_group_config))
	defer C.free(unsafe.Pointer(c))
	c.rank, c.size, c.first = C.int32_t(g.config.Rank), C.int32_t(g.config.WorldSize), C.int32_t(g.config.First)
	c.timeout = C.double(g.config.Timeout.Seconds())
	for field, value := range map[**C.char]string{&c.prefix: g.config.Prefix, &c.backend: g.config.Backend,
		&c.bind: g.config.Bind} {
		*field = C.CString(value)
		defer C.free(unsafe.Pointer(*field))
	}
	if s := g.config.Store; s != nil {
		s.mu.RLock()
		defer s.mu.RUnlock()
		c.store = s.handle
	}
	return status(func() code { return C.gyre_group_new(c, &g.handle) })
}

// Rank is this process's place, from 0.
func (g *Group) Rank() int {
	if g == nil {
		return 0
	}
	return g.config.Rank
}

// WorldSize is the number of ranks.
func (g *Group) WorldSize() int {
	if g == nil {
		return 1
	}
	return g.config.WorldSize
}

// AllGather gives what every rank has brought, of any lengths, in their order.
func (g *Group) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.handle == nil {
		return nil, ErrClosed
	}
	var aborted sync.WaitGroup // an abort that has begun ends before the group can be closed
	aborted.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer aborted.Done()
		g.abort(context.Cause(ctx).Error())
	})
	sizes := make([]C.int64_t, g.WorldSize())
	var data unsafe.Pointer
	err := status(func() code {
		return C.gyre_group_all_gather(g.handle, unsafe.Pointer(unsafe.SliceData(mine)), C.int64_t(len(mine)),
			&sizes[0], &data)
	})
	defer C.gyre_bytes_free(data)
	if !stop() {
		aborted.Wait()
		if err != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
	}
	if err != nil {
		return nil, err
	}
	all, at := make([][]byte, len(sizes)), 0
	for r, size := range sizes {
		all[r] = append([]byte{}, unsafe.Slice((*byte)(unsafe.Add(data, at)), size)...)
		at += int(size)
	}
	return all, nil
}

// Barrier waits until all ranks have come here.
func (g *Group) Barrier(ctx context.Context) error {
	_, err := g.AllGather(ctx, nil)
	return err
}

// Cargo is a kind of traffic between ranks.
type Cargo int

// Control: numbers and bytes of this type's methods, norms and sums. Weights and gradients: of sharded models.
// Activations: of ranks that are tensor parallel in sampling.
const (
	CargoControl     Cargo = C.GYRE_CARGO_CONTROL
	CargoWeights     Cargo = C.GYRE_CARGO_WEIGHTS
	CargoGradients   Cargo = C.GYRE_CARGO_GRADIENTS
	CargoActivations Cargo = C.GYRE_CARGO_ACTIVATIONS
)

// Flow is what one kind of traffic has taken so far.
type Flow struct {
	Sent   float64       // bytes of this rank
	Waited time.Duration // in which this rank could not go on; waiting for a slower rank counts
}

// Traffic is what a group has sent since it was opened, by [Cargo].
type Traffic [C.GYRE_CARGO_KINDS]Flow

// Total adds all kinds up.
func (t Traffic) Total() (sum Flow) {
	for _, f := range t {
		sum.Sent += f.Sent
		sum.Waited += f.Waited
	}
	return sum
}

// Traffic counts from the group's opening; it is zero after Close.
func (g *Group) Traffic() (all Traffic) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var flows [C.GYRE_CARGO_KINDS]C.gyre_traffic
	C.gyre_group_traffic(g.handle, &flows[0])
	for i, f := range flows {
		all[i] = Flow{Sent: float64(f.sent), Waited: time.Duration(float64(f.waited) * float64(time.Second))}
	}
	return all
}

// Abort makes whatever waits here, in the model's passes too, and everything after it fail. The other ranks see this
// one's connections break when it closes the group.
func (g *Group) Abort(reason string) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	g.abort(reason)
}

// abort needs g.mu held in either way.
func (g *Group) abort(reason string) {
	text := C.CString(reason)
	defer C.free(unsafe.Pointer(text))
	C.gyre_group_abort(g.handle, text)
}

// Close leaves the group, with the last model that was made with it. Ranks that still wait for this one fail.
func (g *Group) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	C.gyre_group_free(g.handle)
	g.handle = nil
	return nil
}
