package torch

/*
#include <stdlib.h>
#include "gyre.h"
*/
import "C"

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Store is where the ranks of a run find each other: a table of keys and values that all of them reach, kept by c10d.
// Its methods may be called from several goroutines; one waits for the other's answer.
type Store struct {
	mu     sync.RWMutex // guards handle: held for writing by Close alone
	handle *C.gyre_store
}

// OpenFileStore opens the store in a file, which is made where it is missing. The file grows with every Set and Add.
func OpenFileStore(path string) (*Store, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	s := new(Store)
	err := status(func() code { return C.gyre_store_open_file(name, &s.handle) })
	if err != nil {
		return nil, fmt.Errorf("store in %s: %w", path, err)
	}
	return s, nil
}

// OpenTCPStore is a client of the TCPStore at address, HOST:PORT, such as torchrun's agent serves; timeout is how long
// the server may take to be there. With a listener at that port the process serves the store itself until Close, on a
// copy of the listener's socket.
func OpenTCPStore(address string, listener net.Listener, timeout time.Duration) (*Store, error) {
	host, text, err := net.SplitHostPort(address)
	port, err2 := strconv.ParseUint(text, 10, 16)
	if err != nil || err2 != nil {
		return nil, fmt.Errorf("the store's address is %q, expected HOST:PORT", address)
	}
	descriptor := 0 // none
	if listener != nil {
		raw, err := listener.(*net.TCPListener).SyscallConn()
		if err == nil {
			raw.Control(func(fd uintptr) { descriptor, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
		}
		if err != nil {
			return nil, fmt.Errorf("store at %s: its socket: %w", address, err)
		}
	}
	name := C.CString(host)
	defer C.free(unsafe.Pointer(name))
	s := new(Store)
	err = status(func() code {
		return C.gyre_store_open_tcp(name, C.int32_t(port), C.int32_t(descriptor), C.double(timeout.Seconds()),
			&s.handle)
	})
	if err != nil {
		return nil, fmt.Errorf("store at %s: %w", address, err)
	}
	return s, nil
}

func (s *Store) with(key string, f func(key *C.char) code) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.handle == nil {
		return ErrClosed
	}
	name := C.CString(key)
	defer C.free(unsafe.Pointer(name))
	return status(func() code { return f(name) })
}

// Set writes a key.
func (s *Store) Set(key string, value []byte) error {
	return s.with(key, func(key *C.char) code {
		return C.gyre_store_set(s.handle, key, unsafe.Pointer(unsafe.SliceData(value)), C.int64_t(len(value)))
	})
}

// Claim sets a key that nobody has set, and gives the value that it has then: the first claim counts.
func (s *Store) Claim(key string, value []byte) (held []byte, err error) {
	return s.ask(key, func(key *C.char, data *unsafe.Pointer, size *C.int64_t) code {
		return C.gyre_store_claim(s.handle, key, unsafe.Pointer(unsafe.SliceData(value)), C.int64_t(len(value)), data,
			size)
	})
}

// Find reads a key; nil when nobody has set it.
func (s *Store) Find(key string) ([]byte, error) {
	return s.ask(key, func(key *C.char, data *unsafe.Pointer, size *C.int64_t) code {
		return C.gyre_store_find(s.handle, key, data, size)
	})
}

// ask copies the value that C++ hands over, and frees it.
func (s *Store) ask(key string, f func(key *C.char, data *unsafe.Pointer, size *C.int64_t) code) ([]byte, error) {
	var data unsafe.Pointer
	var size C.int64_t
	err := s.with(key, func(key *C.char) code { return f(key, &data, &size) })
	if err != nil || data == nil {
		return nil, err
	}
	defer C.gyre_bytes_free(data)
	return append([]byte{}, unsafe.Slice((*byte)(data), size)...), nil
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
