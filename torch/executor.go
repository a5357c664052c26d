package torch

/*
#include "gyre.h"
*/
import "C"

import (
	"runtime"
	"sync"
)

// The executor is one goroutine locked to an OS thread, and the only global of this package: libtorch's settings of a
// thread (gradient mode, number of threads) and the kernels' pool are the process's, so that two executors could not
// run side by side. Every call that touches a handle runs there, one at a time: a handle's state (open, closed,
// referenced) needs no lock because only this thread sees it.
var executor struct {
	start sync.Once
	jobs  chan job
}

type job struct {
	run  func()
	done chan any // the value recovered from a panic, nil otherwise
}

// execute runs f on the executor thread and waits for it. A panic in f continues in the caller. f must not call
// execute.
func execute(f func()) {
	executor.start.Do(func() {
		executor.jobs = make(chan job)
		go serve(executor.jobs) // ends with the process
	})
	j := job{run: f, done: make(chan any, 1)}
	executor.jobs <- j
	if p := <-j.done; p != nil {
		panic(p)
	}
}

func serve(jobs <-chan job) {
	runtime.LockOSThread()
	for j := range jobs {
		func() {
			defer func() { j.done <- recover() }()
			j.run()
		}()
	}
}

// refusal is what a call is given up with before it reaches C++; invoke returns it.
type refusal struct{ error }

// invoke runs one fallible C call on the executor thread and converts its status and message, or returns the refusal
// that f panics with (need does, of a closed handle).
func invoke(f func() code) (result error) {
	execute(func() {
		defer func() {
			switch p := recover().(type) {
			case nil:
			case refusal:
				result = p.error
			default:
				panic(p)
			}
		}()
		result = status(f)
	})
	return result
}

// need refuses a call on a handle that is not open.
func need(open bool) {
	if !open {
		panic(refusal{ErrClosed})
	}
}

// handle is a C++ object that an object of this package owns. Only the executor thread touches it.
type handle[H comparable] struct {
	c     H // zero after Close
	free  func(H)
	model *Model // that it was made from, and without which it is of no use; nil: it can do without
}

// open gives the C handle, or refuses the call.
func (h *handle[H]) open() H {
	var closed H
	need(h.c != closed)
	if h.model != nil {
		h.model.open()
	}
	return h.c
}

func (h *handle[H]) with(f func(h H) code) error { return invoke(func() code { return f(h.open()) }) }

// Close frees the object, or leaves it to the last of those that were made from it. It may be called twice; any other
// use after it returns [ErrClosed].
func (h *handle[H]) Close() error {
	execute(func() {
		var closed H
		if h.c != closed {
			h.free(h.c)
			h.c = closed
		}
	})
	return nil
}
