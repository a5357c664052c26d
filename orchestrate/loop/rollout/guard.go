package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sourcegraph/conc/panics"

	"gyre/internal/quote"
	"gyre/orchestrate/loop/episode"
)

// callError is a failed call of an environment.
type callError struct {
	stop      string // episode.Timeout, Panic or Error
	abandoned bool   // the call still runs and uses the environment
	err       error
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// grace is how long a call whose time is over may take to return. One that gives up at its deadline is then not
// abandoned, and its environment can be closed.
const grace = 500 * time.Millisecond

// guard runs an environment call in a goroutine of its own and waits at most limit for it: environments are foreign
// code that may hang or panic, and what they say is quoted. f's context ends with the limit, for those that wait for
// something. A call that does not return is abandoned: its goroutine runs on alone, what it returns is dropped, and
// after is called when it does return. f must not touch anything but the environment and its own variables. An error
// is a *callError.
func guard[T any](
	ctx context.Context, limit time.Duration, f func(context.Context) (T, error), after func(),
) (zero T, _ error) {
	type outcome struct {
		value T
		err   error
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done, abandoned := make(chan outcome), make(chan struct{})
	go func() {
		var o outcome
		if recovered := panics.Try(func() { o.value, o.err = f(within) }); recovered != nil {
			o.err = &callError{stop: episode.Panic, err: quote.Error(fmt.Errorf("environment panicked: %v",
				recovered.Value))}
		}
		select {
		case done <- o:
		case <-abandoned:
			panics.Try(after)
		}
	}()
	expired := (<-chan time.Time)(nil)
	for over := within.Done(); ; {
		select {
		case o := <-done:
			if o.err == nil {
				return o.value, nil
			}
			if within.Err() != nil && late(o.err) { // it gave up as it was told to
				o.err = fmt.Errorf("%w: %w", overdue(ctx, limit), o.err)
			}
			return zero, failed(o.err)
		case <-over:
			over, expired = nil, time.After(grace)
		case <-expired:
			close(abandoned)
			return zero, &callError{episode.Timeout, true, overdue(ctx, limit)}
		}
	}
}

// failed says why a call that has returned failed.
func failed(err error) error {
	if call := (*callError)(nil); errors.As(err, &call) {
		return call
	}
	stop := episode.Error
	if late(err) {
		stop = episode.Timeout
	}
	return &callError{stop: stop, err: quote.Error(err)}
}

// late tells whether an error is about time: that of the call, or of something that the environment waited for.
func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// overdue says why a call may not go on: the end of everything, or its own.
func overdue(ctx context.Context, limit time.Duration) error {
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted during an environment call: %w", context.Cause(ctx))
	}
	return fmt.Errorf("environment call took more than %s", limit)
}
