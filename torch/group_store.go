package torch

/*
#include <stdlib.h>
#include "gyre.h"

int32_t gyreStoreSet(uintptr_t context, char* key, void* data, int64_t size, char* message);
int32_t gyreStoreGet(uintptr_t context, char* key, double seconds, void** data, int64_t* size, char* message);
int32_t gyreStoreAdd(uintptr_t context, char* key, int64_t amount, int64_t* value, char* message);
*/
import "C"

import (
	"context"
	"runtime/cgo"
	"sync/atomic"
	"time"
	"unsafe"
)

// storeCalls is a Store as the library sees it: no contexts, but deadlines.
type storeCalls struct {
	store   Store
	timeout time.Duration
	opening context.Context // bounds the calls of OpenGroup
	done    atomic.Bool     // the group is open: opening is not looked at any more
}

func (s *storeCalls) opened() { s.done.Store(true) }

func (s *storeCalls) bound(limit time.Duration) (context.Context, context.CancelFunc) {
	parent := s.opening
	if s.done.Load() {
		parent = context.Background()
	}
	return context.WithTimeout(parent, limit)
}

// setStore fills in the callbacks of a store.
func setStore(c *C.gyre_store, h cgo.Handle) {
	c.context = C.uintptr_t(h)
	c.set = (*[0]byte)(C.gyreStoreSet)
	c.get = (*[0]byte)(C.gyreStoreGet)
	c.add = (*[0]byte)(C.gyreStoreAdd)
}

func callsOf(handle C.uintptr_t) *storeCalls { return cgo.Handle(handle).Value().(*storeCalls) }

// answer writes an error to where the library looks for it.
func answer(err error, message *C.char) C.int32_t {
	if err == nil {
		return 0
	}
	out := unsafe.Slice((*byte)(unsafe.Pointer(message)), C.GYRE_MESSAGE_SIZE)
	out[copy(out[:len(out)-1], err.Error())] = 0
	return 1
}

//export gyreStoreSet
func gyreStoreSet(handle C.uintptr_t, key *C.char, data unsafe.Pointer, size C.int64_t, message *C.char) C.int32_t {
	s := callsOf(handle)
	ctx, cancel := s.bound(s.timeout)
	defer cancel()
	return answer(s.store.Set(ctx, C.GoString(key), append([]byte{}, unsafe.Slice((*byte)(data), size)...)), message)
}

//export gyreStoreGet
func gyreStoreGet(handle C.uintptr_t, key *C.char, seconds C.double, data *unsafe.Pointer, size *C.int64_t, message *C.char) C.int32_t {
	s := callsOf(handle)
	ctx, cancel := s.bound(time.Duration(float64(seconds) * float64(time.Second)))
	defer cancel()
	value, err := s.store.Get(ctx, C.GoString(key))
	if err == nil {
		*data, *size = C.CBytes(value), C.int64_t(len(value))
	}
	return answer(err, message)
}

//export gyreStoreAdd
func gyreStoreAdd(handle C.uintptr_t, key *C.char, amount C.int64_t, value *C.int64_t, message *C.char) C.int32_t {
	s := callsOf(handle)
	ctx, cancel := s.bound(s.timeout)
	defer cancel()
	n, err := s.store.Add(ctx, C.GoString(key), int64(amount))
	*value = C.int64_t(n)
	return answer(err, message)
}
