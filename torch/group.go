package torch

/*
#include <stdlib.h>
#include "gyre.h"
*/
import "C"

import (
	"context"
	"errors"
	"sync"
	"time"
	"unsafe"
)

// Op says how [Group.AllReduce] joins numbers.
type Op int

// The sum, the largest and the smallest of all ranks; a NaN of any rank shows in all three.
const (
	Sum Op = C.GYRE_SUM
	Max Op = C.GYRE_MAX
	Min Op = C.GYRE_MIN
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

// Group is the processes ("ranks") of a run. A nil *Group is a world of one: all methods work.
//
// Collectives are called by all ranks in the same order, one at a time; those of a sharded model may run beside them.
// They fail, with an error that matches [ErrDisconnected] and names the operation and the rank, when a rank ends, is
// silent for the group's timeout, or aborts; after that every collective of every rank fails. So does ending a
// context: what other ranks wait for cannot be taken back.
type Group struct {
	config GroupConfig

	mu     sync.RWMutex // held for writing by Close alone
	handle *C.gyre_group

	models struct { // made with the group
		sync.Mutex
		open   int
		closed bool // and the group is to be freed with the last of them
	}
}

// retain keeps the group until release; nil after Close.
func (g *Group) retain() *C.gyre_group {
	g.models.Lock()
	defer g.models.Unlock()
	if g.models.closed {
		return nil
	}
	g.models.open++
	return g.handle
}

func (g *Group) release() {
	if g == nil {
		return
	}
	g.models.Lock()
	g.models.open--
	free := g.models.closed && g.models.open == 0
	g.models.Unlock()
	if free {
		g.free()
	}
}

// OpenGroup waits until all ranks are there, or the context ends.
func OpenGroup(ctx context.Context, config GroupConfig) (*Group, error) {
	if config.Backend == "" {
		config.Backend = "gloo"
	}
	if config.Bind == "" {
		config.Bind = "127.0.0.1"
	}
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Minute
	}
	if err := checkABI(int(C.gyre_abi_version())); err != nil {
		return nil, err
	}
	g := &Group{config: config}
	opened := make(chan error, 1)
	go func() { opened <- g.open() }()
	select {
	case err := <-opened:
		if err != nil {
			return nil, err
		}
		return g, nil
	case <-ctx.Done():
		go func() { // what the library waits for cannot be taken back
			<-opened
			g.free()
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
	return status(func(message *C.gyre_error) C.gyre_status { return C.gyre_group_new(c, &g.handle, message) })
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

// collective runs f, and aborts the group when the context ends meanwhile.
func (g *Group) collective(ctx context.Context, f func(h *C.gyre_group, message *C.gyre_error) C.gyre_status) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.handle == nil {
		return ErrClosed
	}
	var aborted sync.WaitGroup // an abort that has begun ends before the group can be closed
	aborted.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer aborted.Done()
		g.abort(context.Cause(ctx).Error())
	})
	err := status(func(message *C.gyre_error) C.gyre_status { return f(g.handle, message) })
	if stop() {
		return err
	}
	aborted.Wait()
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// AllReduce joins data with that of the other ranks, entry by entry, in place. Sums are added in one fixed order: all
// ranks have the same bits.
func (g *Group) AllReduce(ctx context.Context, data []float64, op Op) error {
	if g == nil || len(data) == 0 {
		return ctx.Err()
	}
	return g.collective(ctx, func(h *C.gyre_group, message *C.gyre_error) C.gyre_status {
		return C.gyre_group_all_reduce(h, (*C.double)(&data[0]), C.int64_t(len(data)), C.int32_t(op), message)
	})
}

// AllGather gives what every rank has brought, of any lengths, in their order.
func (g *Group) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	if g == nil {
		return [][]byte{mine}, ctx.Err()
	}
	sizes := make([]C.int64_t, g.WorldSize())
	var data unsafe.Pointer
	err := g.collective(ctx, func(h *C.gyre_group, message *C.gyre_error) C.gyre_status {
		return C.gyre_group_all_gather(h, unsafe.Pointer(unsafe.SliceData(mine)), C.int64_t(len(mine)), &sizes[0],
			&data, message)
	})
	if err != nil {
		return nil, err
	}
	defer C.gyre_bytes_free(data)
	all, at := make([][]byte, len(sizes)), 0
	for r, size := range sizes {
		all[r] = append([]byte{}, unsafe.Slice((*byte)(unsafe.Add(data, at)), size)...)
		at += int(size)
	}
	return all, nil
}

// Broadcast gives every rank what the root has brought; what others bring is not looked at.
func (g *Group) Broadcast(ctx context.Context, data []byte, root int) ([]byte, error) {
	if g == nil {
		return data, ctx.Err()
	}
	if g.Rank() != root {
		data = nil
	}
	var out unsafe.Pointer
	var size C.int64_t
	err := g.collective(ctx, func(h *C.gyre_group, message *C.gyre_error) C.gyre_status {
		return C.gyre_group_broadcast(h, unsafe.Pointer(unsafe.SliceData(data)), C.int64_t(len(data)), C.int32_t(root),
			&out, &size, message)
	})
	if err != nil {
		return nil, err
	}
	defer C.gyre_bytes_free(out)
	return append([]byte{}, unsafe.Slice((*byte)(out), size)...), nil
}

// Barrier waits until all ranks have come here.
func (g *Group) Barrier(ctx context.Context) error {
	if g == nil {
		return ctx.Err()
	}
	return g.collective(ctx, func(h *C.gyre_group, message *C.gyre_error) C.gyre_status {
		return C.gyre_group_barrier(h,
			message)
	})
}

// Cargo is a kind of traffic between ranks.
type Cargo int

// Control: numbers and bytes of this type's methods, norms and sums. Weights and gradients: of sharded models.
// Checkpoint: parameters and moments on their way to and from files. Activations: of ranks that sample together.
const (
	CargoControl     Cargo = C.GYRE_CARGO_CONTROL
	CargoWeights     Cargo = C.GYRE_CARGO_WEIGHTS
	CargoGradients   Cargo = C.GYRE_CARGO_GRADIENTS
	CargoCheckpoint  Cargo = C.GYRE_CARGO_CHECKPOINT
	CargoActivations Cargo = C.GYRE_CARGO_ACTIVATIONS
)

// Flow is what one kind of traffic has taken so far.
type Flow struct {
	Operations     int64
	Sent, Received float64       // bytes of this rank
	Waited         time.Duration // in which this rank could not go on; waiting for a slower rank counts
}

// Traffic is what a group has sent since it was opened, by [Cargo].
type Traffic [C.GYRE_CARGO_KINDS]Flow

// Total adds all kinds up.
func (t Traffic) Total() Flow {
	var sum Flow
	for _, f := range t {
		sum.Operations += f.Operations
		sum.Sent += f.Sent
		sum.Received += f.Received
		sum.Waited += f.Waited
	}
	return sum
}

// Traffic counts from the group's opening; it is zero after Close.
func (g *Group) Traffic() Traffic {
	var all Traffic
	if g == nil {
		return all
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	var flows [C.GYRE_CARGO_KINDS]C.gyre_traffic
	C.gyre_group_traffic(g.handle, &flows[0])
	for i, f := range flows {
		all[i] = Flow{Operations: int64(f.operations), Sent: float64(f.sent), Received: float64(f.received),
			Waited: time.Duration(float64(f.waited) * float64(time.Second))}
	}
	return all
}

// Lost is the rank whose end or silence made the group fail, -1 while there is none.
func (g *Group) Lost() int {
	if g == nil {
		return -1
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return int(C.gyre_group_lost(g.handle))
}

// Abort makes whatever waits here, in the model's passes too, and everything after it fail. The other ranks see this
// one's connections break when it closes the group.
func (g *Group) Abort(reason string) {
	if g == nil {
		return
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	g.abort(reason)
}

// abort needs g.mu held in either way.
func (g *Group) abort(reason string) {
	if g.handle == nil {
		return
	}
	text := C.CString(reason)
	defer C.free(unsafe.Pointer(text))
	C.gyre_group_abort(g.handle, text)
}

// Close leaves the group, with the last model that was made with it. Ranks that still wait for this one fail.
func (g *Group) Close() error {
	if g == nil {
		return nil
	}
	g.models.Lock()
	g.models.closed = true
	free := g.models.open == 0
	g.models.Unlock()
	if free {
		g.free()
	}
	return nil
}

func (g *Group) free() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.handle != nil {
		C.gyre_group_free(g.handle)
		g.handle = nil
	}
}
