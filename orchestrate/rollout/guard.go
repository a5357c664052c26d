package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sourcegraph/conc/panics"

	"gyre/orchestrate/episode"
)

// Both mean that the call was abandoned and may still be using the environment.
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
// code that may hang or panic. After a timeout (or the end of ctx) the call is abandoned: its goroutine runs on alone,
// what it returns is dropped, and late is called when it does return. f must not touch anything but the environment and
// its own variables.
func guard[T any](ctx context.Context, limit time.Duration, f func() (T, error), late func()) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var zero T
	done := make(chan outcome)
	abandoned := make(chan struct{})
	go func() {
		var o outcome
		if recovered := panics.Try(func() { o.value, o.err = f() }); recovered != nil {
			o.err = &panicError{recovered}
		}
		select {
		case done <- o:
		case <-abandoned:
			panics.Try(late)
		}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.value, o.err
	case <-timer.C:
		close(abandoned)
		return zero, fmt.Errorf("%w: more than %s", errTimeout, limit)
	case <-ctx.Done():
		close(abandoned)
		return zero, fmt.Errorf("%w: %w", errInterrupted, context.Cause(ctx))
	}
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
