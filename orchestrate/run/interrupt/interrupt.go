// Package interrupt turns SIGINT and SIGTERM into an orderly end: the first signal asks, the second one insists.
package interrupt

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Error is the cause of a command that a signal ended.
type Error struct{ Signal syscall.Signal }

func (e *Error) Error() string { return "interrupted by " + unix.SignalName(e.Signal) }

// ExitCode is the shell's convention: 128 + the signal's number (130 for SIGINT, 143 for SIGTERM).
func (e *Error) ExitCode() int { return 128 + int(e.Signal) }

// echo is how soon after the first a signal is taken for the same one: timeout(1), and some job schedulers, tell a
// process and then its whole group, so that it hears one request twice.
const echo = 200 * time.Millisecond

type watcher struct {
	requested chan struct{}
	cause     atomic.Pointer[Error]
	graceful  atomic.Bool
	cancel    context.CancelCauseFunc
}

type contextKey struct{}

// Watch returns a context that the process's first SIGINT or SIGTERM cancels with an *Error as its cause, unless the
// command called Graceful: then the first signal only closes that channel. The second signal calls exit at once. What
// happens is explained on messages. The returned function ends the watch.
func Watch(parent context.Context, messages io.Writer, exit func(code int)) (context.Context, func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ctx, stop := watch(parent, signals, messages, exit)
	return ctx, func() {
		signal.Stop(signals)
		stop()
	}
}

func watch(
	parent context.Context, signals <-chan os.Signal, messages io.Writer, exit func(int),
) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	w := &watcher{requested: make(chan struct{}), cancel: cancel}
	ctx = context.WithValue(ctx, contextKey{}, w)
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { w.run(signals, done, messages, exit) })
	return ctx, func() {
		close(done)
		running.Wait()
		cancel(nil)
	}
}

// Part is a context for a part of a command that is asked to end when the other context does: as by a signal, so that
// what calls Graceful in it ends in good order. The returned function ends the watch.
func Part(ending context.Context, messages io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ending))
	w := &watcher{requested: make(chan struct{}), cancel: cancel}
	stop := context.AfterFunc(ending, func() { w.request(&Error{Signal: syscall.SIGTERM}, messages) })
	return context.WithValue(ctx, contextKey{}, w), func() { stop(); cancel(nil) }
}

func (w *watcher) run(signals <-chan os.Signal, done <-chan struct{}, messages io.Writer, exit func(int)) {
	var asked time.Time
	for {
		select {
		case <-done:
			return
		case s := <-signals:
			if first := w.cause.Load(); first != nil {
				if s == first.Signal && time.Since(asked) < echo {
					continue
				}
				fmt.Fprintln(messages, "gyre: interrupted again: ending now")
				exit(first.ExitCode())
				return
			}
			asked = time.Now()
			w.request(&Error{Signal: s.(syscall.Signal)}, messages)
		}
	}
}

func (w *watcher) request(cause *Error, messages io.Writer) {
	w.cause.Store(cause)
	close(w.requested)
	if w.graceful.Load() {
		fmt.Fprintf(messages, "gyre: %v: finishing this step and saving; once more ends now\n", cause)
		return
	}
	w.cancel(cause)
}

// Graceful declares that the command ends by itself, in good order, after the returned channel is closed; it should
// then return Cause(ctx). Without a watch the channel is nil, which blocks for ever.
func Graceful(ctx context.Context) <-chan struct{} {
	w, ok := ctx.Value(contextKey{}).(*watcher)
	if !ok {
		return nil
	}
	w.graceful.Store(true)
	return w.requested
}

// Cause returns the *Error of the first signal, or nil when none came.
func Cause(ctx context.Context) error {
	if w, ok := ctx.Value(contextKey{}).(*watcher); ok {
		if cause := w.cause.Load(); cause != nil {
			return cause
		}
	}
	return nil
}
