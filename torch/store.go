package torch

/*
#include <stdlib.h>
#include "gyre.h"
*/
import "C"

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Store is where the ranks of a run find each other: a table of keys and values that all of them reach, kept by c10d.
// Its methods may be called from several goroutines; one waits for the other's answer.
type Store struct {
	mu     sync.RWMutex // held for writing by Close alone
	handle *C.gyre_store
}

// OpenFileStore opens the store in a file, which is made where it is missing. The file grows with every Set and Add.
func OpenFileStore(path string) (*Store, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	s := new(Store)
	err := status(func(message *C.gyre_error) C.gyre_status { return C.gyre_store_open_file(name, &s.handle, message) })
	if err != nil {
		return nil, fmt.Errorf("store in %s: %w", path, err)
	}
	return s, nil
}

// OpenTCPStore is a client of the TCPStore at host:port, such as torchrun's agent serves; timeout is how long the
// server may take to be there. With a listener, a listening socket whose port this is, the process serves the store
// itself until Close. It keeps a copy of the socket.
func OpenTCPStore(host string, port int, listener *os.File, timeout time.Duration) (*Store, error) {
	name := C.CString(host)
	defer C.free(unsafe.Pointer(name))
	descriptor := -1
	if listener != nil {
		var err error
		if descriptor, err = unix.FcntlInt(listener.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return nil, fmt.Errorf("store at %s:%d: its socket: %w", host, port, err)
		}
	}
	s := new(Store)
	err := status(func(message *C.gyre_error) C.gyre_status {
		return C.gyre_store_open_tcp(name, C.int32_t(port), C.int32_t(descriptor), C.double(timeout.Seconds()),
			&s.handle, message)
	})
	if err != nil {
		return nil, fmt.Errorf("store at %s:%d: %w", host, port, err)
	}
	return s, nil
}

func (s *Store) with(key string, f func(key *C.char, message *C.gyre_error) C.gyre_status) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.handle == nil {
		return ErrClosed
	}
	name := C.CString(key)
	defer C.free(unsafe.Pointer(name))
	return status(func(message *C.gyre_error) C.gyre_status { return f(name, message) })
}

// Set writes a key.
func (s *Store) Set(key string, value []byte) error {
	return s.with(key, func(key *C.char, message *C.gyre_error) C.gyre_status {
		return C.gyre_store_set(s.handle, key, unsafe.Pointer(unsafe.SliceData(value)), C.int64_t(len(value)), message)
	})
}

// Find reads a key; nil when nobody has set it.
func (s *Store) Find(key string) (value []byte, err error) {
	err = s.with(key, func(key *C.char, message *C.gyre_error) C.gyre_status {
		var data unsafe.Pointer
		var size C.int64_t
		status := C.gyre_store_find(s.handle, key, &data, &size, message)
		if data != nil {
			value = append([]byte{}, unsafe.Slice((*byte)(data), size)...)
			C.gyre_bytes_free(data)
		}
		return status
	})
	return value, err
}

// Get waits for a key until the context ends. It asks again and again: a client that waits keeps other goroutines from
// its connection.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		value, err := s.Find(key)
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

// Add adds to a counter that begins at 0 and gives its new value. Counters have keys of their own.
func (s *Store) Add(key string, n int64) (int64, error) {
	var value C.int64_t
	err := s.with(key, func(key *C.char, message *C.gyre_error) C.gyre_status {
		return C.gyre_store_add(s.handle, key, C.int64_t(n), &value, message)
	})
	return int64(value), err
}

// Close ends the store for this process, and for all of them where this one serves it. A nil *Store is closed.
func (s *Store) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	C.gyre_store_free(s.handle)
	s.handle = nil
}
