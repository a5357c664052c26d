package torch

/*
#cgo CFLAGS: -I${SRCDIR}/../csrc
#cgo LDFLAGS: -L${SRCDIR}/../build -lgyre
#cgo !gyre_installed LDFLAGS: -Wl,-rpath,${SRCDIR}/../build
#cgo gyre_installed LDFLAGS: -Wl,-rpath,$ORIGIN/../lib/gyre
#include "gyre.h"
*/
import "C"

import (
	"fmt"
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
	abi   error // set before the first job runs
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
		executor.abi = checkABI(int(C.gyre_abi_version()))
		go serve(executor.jobs)
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

func checkABI(library int) error {
	if library == C.GYRE_ABI_VERSION {
		return nil
	}
	return &Error{Kind: ErrUnsupported, Message: fmt.Sprintf("libgyre has ABI version %d but this program was built for "+
		"%d: rebuild csrc (cmake --build build), then the program", library, C.GYRE_ABI_VERSION)}
}

// refusal is what a call is given up with before it reaches C++; invoke returns it.
type refusal struct{ error }

// invoke runs one fallible C call on the executor thread and converts its status and message, or returns the refusal
// that f panics with (need does, of a closed handle).
func invoke(f func(err failure) code) (result error) {
	execute(func() {
		if result = executor.abi; result != nil {
			return
		}
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
