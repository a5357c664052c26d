package torch

/*
#include "gyre.h"
*/
import "C"

import (
	"errors"
	"runtime"
)

// Kinds of failures, for errors.Is.
var (
	ErrInvalidArgument = errors.New("invalid argument")
	ErrOutOfMemory     = errors.New("out of memory")
	ErrNotFound        = errors.New("not found")
	ErrNotFinite       = errors.New("not finite")
	ErrUnsupported     = errors.New("unsupported")
	ErrInternal        = errors.New("internal error")
	// ErrDisconnected: a rank of the process group ended, was too slow, or aborted.
	ErrDisconnected = errors.New("process group failed")
	// ErrClosed reports the use of a handle after its Close.
	ErrClosed = errors.New("torch: used after Close")
)

var kinds = [...]error{
	C.GYRE_INVALID_ARGUMENT: ErrInvalidArgument, C.GYRE_OUT_OF_MEMORY: ErrOutOfMemory, C.GYRE_NOT_FOUND: ErrNotFound,
	C.GYRE_NOT_FINITE: ErrNotFinite, C.GYRE_UNSUPPORTED: ErrUnsupported, C.GYRE_INTERNAL: ErrInternal,
	C.GYRE_DISCONNECTED: ErrDisconnected,
}

// Error is a failure reported by the C++ side.
type Error struct {
	Kind    error // one of the above
	Message string
}

func (e *Error) Error() string { return "torch: " + e.Message }

func (e *Error) Unwrap() error { return e.Kind }

// code is what a C call gives.
type code = C.gyre_status

// status runs a C call that may be made from any thread.
func status(f func() code) error {
	if err := load(); err != nil {
		return err
	}
	runtime.LockOSThread() // the message is the thread's
	defer runtime.UnlockOSThread()
	if s := f(); s != C.GYRE_OK {
		return &Error{Kind: kinds[s], Message: C.GoString(C.gyre_message())}
	}
	return nil
}
