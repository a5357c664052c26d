package torch

/*
#include "gyre.h"
*/
import "C"

import "errors"

// Status is the outcome of a call into the C++ side (gyre_status).
type Status int

// The statuses of gyre.h.
const (
	StatusOK              Status = C.GYRE_OK
	StatusInvalidArgument Status = C.GYRE_INVALID_ARGUMENT
	StatusOutOfMemory     Status = C.GYRE_OUT_OF_MEMORY
	StatusNotFound        Status = C.GYRE_NOT_FOUND
	StatusNotFinite       Status = C.GYRE_NOT_FINITE
	StatusUnsupported     Status = C.GYRE_UNSUPPORTED
	StatusInternal        Status = C.GYRE_INTERNAL
	StatusDisconnected    Status = C.GYRE_DISCONNECTED
)

// Sentinels for errors.Is: an *Error of that status matches.
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

// Error is a failure reported by the C++ side.
type Error struct {
	Status  Status
	Message string
}

func (e *Error) Error() string { return "torch: " + e.Message }

// Is matches the sentinel of the error's status.
func (e *Error) Is(target error) bool { return target == sentinel(e.Status) }

func sentinel(s Status) error {
	switch s {
	case StatusInvalidArgument:
		return ErrInvalidArgument
	case StatusOutOfMemory:
		return ErrOutOfMemory
	case StatusNotFound:
		return ErrNotFound
	case StatusNotFinite:
		return ErrNotFinite
	case StatusUnsupported:
		return ErrUnsupported
	case StatusDisconnected:
		return ErrDisconnected
	default:
		return ErrInternal
	}
}
