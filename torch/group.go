package torch

/*
#include <stdlib.h>
#include "gyre.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/cgo"
	"sync"
	"time"
	"unsafe"
)

// Store is where the ranks of a group find each other. Its methods are called from several goroutines.
type Store interface {
	Set(ctx context.Context, key string, value []byte) error
	// Get waits for the key until the context ends.
	Get(ctx context.Context, key string) ([]byte, error)
	// Add adds to a counter that begins at 0 and gives its new value.
	Add(ctx context.Context, key string, n int64) (int64, error)
}

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
	Store           Store         // may be nil when WorldSize is 1
	Prefix          string        // of the keys in the store: one per group
	Backend         string        // "gloo", also "", or "nccl": NCCL between GPUs and Gloo for the rest
	Bind            string        // address, host name or interface that connections between ranks use; "" is 127.0.0.1
	Timeout         time.Duration // how long a rank waits for another before the group has failed; 0 is ten minutes
	First           int           // what messages call rank 0: its rank in the run that this group is a part of
}

// Group is the processes ("ranks") of a run. A nil *Group is a world of one: all methods work.
//
// Collectives are called by all ranks in the same order, one at a time; those of a sharded model may run beside them. They fail, with an
// error that matches [ErrDisconnected] and names the operation and the rank, when a rank ends, is silent for the group's timeout, or
// aborts; after that every collective of every rank fails. So does ending a context: what other ranks wait for cannot be taken back.
type Group struct {
	config GroupConfig
	store  cgo.Handle

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

// OpenGroup waits until all ranks are there.
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
	c := (*C.gyre_group_config)(C.calloc(1, C.sizeof_gyre_group_config))
	defer C.free(unsafe.Pointer(c))
	c.rank, c.size, c.timeout, c.first = C.int32_t(config.Rank), C.int32_t(config.WorldSize), C.double(config.Timeout.Seconds()), C.int32_t(config.First)
	for field, value := range map[**C.char]string{&c.prefix: config.Prefix, &c.backend: config.Backend, &c.bind: config.Bind} {
		*field = C.CString(value)
		defer C.free(unsafe.Pointer(*field))
	}
	if config.Store != nil {
		g.store = cgo.NewHandle(&storeCalls{store: config.Store, timeout: config.Timeout, opening: ctx})
		setStore(&c.store, g.store)
	}
	err := status(func(message *C.gyre_error) C.gyre_status { return C.gyre_group_new(c, &g.handle, message) })
	if err != nil {
		g.freeStore()
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return nil, err
	}
	if config.Store != nil {
		g.store.Value().(*storeCalls).opened()
	}
	return g, nil
}

// status runs a C call that may be made from any thread.
func status(f func(message *C.gyre_error) C.gyre_status) error {
	message := new(C.gyre_error)
	if s := f(message); s != C.GYRE_OK {
		return &Error{Status: Status(s), Message: C.GoString(&message.message[0])}
	}
	return nil
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
	stop := context.AfterFunc(ctx, func() { g.abort(context.Cause(ctx).Error()) })
	err := status(func(message *C.gyre_error) C.gyre_status { return f(g.handle, message) })
	if !stop() && err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}

// AllReduce joins data with that of the other ranks, entry by entry, in place. Sums are added in one fixed order: all ranks have the
// same bits.
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
		return C.gyre_group_all_gather(h, unsafe.Pointer(unsafe.SliceData(mine)), C.int64_t(len(mine)), &sizes[0], &data, message)
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
		return C.gyre_group_broadcast(h, unsafe.Pointer(unsafe.SliceData(data)), C.int64_t(len(data)), C.int32_t(root), &out, &size, message)
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
	return g.collective(ctx, func(h *C.gyre_group, message *C.gyre_error) C.gyre_status { return C.gyre_group_barrier(h, message) })
}

// Cargo is a kind of traffic between ranks.
type Cargo int

// Control: numbers and bytes of this type's methods, norms and sums. Weights and gradients: of sharded models. Checkpoint: parameters
// and moments on their way to and from files. Activations: of ranks that sample together.
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

// Abort makes whatever waits, here and in the model's passes, and everything after it fail; the other ranks are told.
func (g *Group) Abort() {
	if g == nil {
		return
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	g.abort("stopped")
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
		g.freeStore()
	}
}

func (g *Group) freeStore() {
	if g.store != 0 {
		g.store.Delete()
		g.store = 0
	}
}

// OpenTCPStore is a client of c10d's TCPStore, such as torchrun's agent serves at MASTER_ADDR:MASTER_PORT. timeout is how long the
// server may take to answer.
func OpenTCPStore(ctx context.Context, host string, port int, timeout time.Duration) (Store, io.Closer, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	name := C.CString(host)
	defer C.free(unsafe.Pointer(name))
	s := new(tcpStore)
	err := status(func(message *C.gyre_error) C.gyre_status {
		return C.gyre_tcp_store_open(name, C.int32_t(port), C.double(timeout.Seconds()), &s.handle, message)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("store at %s:%d: %w", host, port, err)
	}
	return s, s, nil
}

type tcpStore struct {
	mu     sync.RWMutex // held for writing by Close alone
	handle *C.gyre_tcp_store
}

func (s *tcpStore) with(ctx context.Context, key string, f func(key *C.char, message *C.gyre_error) C.gyre_status) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.handle == nil {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	name := C.CString(key)
	defer C.free(unsafe.Pointer(name))
	return status(func(message *C.gyre_error) C.gyre_status { return f(name, message) })
}

func (s *tcpStore) Set(ctx context.Context, key string, value []byte) error {
	return s.with(ctx, key, func(key *C.char, message *C.gyre_error) C.gyre_status {
		return C.gyre_tcp_store_set(s.handle, key, unsafe.Pointer(unsafe.SliceData(value)), C.int64_t(len(value)), message)
	})
}

// Get asks again and again: waiting inside the client would keep other goroutines from the connection.
func (s *tcpStore) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		var value []byte
		err := s.with(ctx, key, func(key *C.char, message *C.gyre_error) C.gyre_status {
			var data unsafe.Pointer
			var size C.int64_t
			status := C.gyre_tcp_store_get(s.handle, key, &data, &size, message)
			if data != nil {
				value = append([]byte{}, unsafe.Slice((*byte)(data), size)...)
				C.gyre_bytes_free(data)
			}
			return status
		})
		if value != nil || err != nil {
			return value, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("store: no key %q: %w", key, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *tcpStore) Add(ctx context.Context, key string, n int64) (int64, error) {
	var value C.int64_t
	err := s.with(ctx, key, func(key *C.char, message *C.gyre_error) C.gyre_status {
		return C.gyre_tcp_store_add(s.handle, key, C.int64_t(n), &value, message)
	})
	return int64(value), err
}

func (s *tcpStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	C.gyre_tcp_store_free(s.handle)
	s.handle = nil
	return nil
}
