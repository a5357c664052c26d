package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sourcegraph/conc/panics"

	"gyre/orchestrate/loop/episode"
)

// Both mean that the call may have been abandoned and may still be using the environment.
var (
	errTimeout     = errors.New("environment call took too long")
	errInterrupted = errors.New("interrupted during an environment call")
)

// panicError is a panic inside an environment.
type panicError struct{ recovered *panics.Recovered }

func (e *panicError) Error() string {
	return fmt.Sprintf("environment panicked: %v", e.recovered.Value)
}

// guard runs an environment call in a goroutine of its own and waits at most limit for it: environments are foreign
// code that may hang or panic. f's context ends with the limit, for those that wait for something. After a timeout (or the end of ctx) the call is abandoned: its goroutine runs on alone,
// what it returns is dropped, and late is called when it does return. f must not touch anything but the environment and
// its own variables.
func guard[T any](ctx context.Context, limit time.Duration, f func(context.Context) (T, error), late func()) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var zero T
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan outcome)
	abandoned := make(chan struct{})
	go func() {
		var o outcome
		if recovered := panics.Try(func() { o.value, o.err = f(within) }); recovered != nil {
			o.err = &panicError{recovered}
		}
		select {
		case done <- o:
		case <-abandoned:
			panics.Try(late)
		}
	}()
	select {
	case o := <-done:
		if o.err != nil && within.Err() != nil && !errors.As(o.err, new(*panicError)) { // it gave up as it was told to
			o.err = fmt.Errorf("%w: %w", overdue(ctx, limit), o.err)
		}
		return o.value, o.err
	case <-within.Done():
		close(abandoned)
		return zero, overdue(ctx, limit)
	}
}

// overdue says why a call may not go on: the end of everything, or its own.
func overdue(ctx context.Context, limit time.Duration) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", errInterrupted, context.Cause(ctx))
	}
	return fmt.Errorf("%w: more than %s", errTimeout, limit)
}

// stopOf names the reason for which a failed environment call ends its episode.
func stopOf(err error) string {
	var panicked *panicError
	switch {
	case errors.Is(err, errTimeout):
		return episode.Timeout
	case errors.As(err, &panicked):
		return episode.Panic
	}
	return episode.Error
}
