package rollout

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sourcegraph/conc/panics"

	"gyre/envs"
	"gyre/internal/quote"
	"gyre/orchestrate/loop/episode"
)

// instances keeps the environments of one tag and set of options between episodes, so that what one costs to make
// (levels to read, a process to start) is paid once for as many as are ever played at once. It is safe for concurrent
// use.
type instances struct {
	make    envs.Factory
	outside envs.Outside // the first instance, where the agent is a program outside
	mu      sync.Mutex   // guards idle
	idle    []envs.Env
}

// newInstances makes the first instance, which tries the options.
func newInstances(spec envs.Spec, options map[string]any, components []envs.ComponentSpec) (*instances, error) {
	make, err := spec.Factory(options, components...)
	if err != nil {
		return nil, err
	}
	p := &instances{make: make}
	env, err := p.take()
	if err == nil {
		p.outside, _ = env.(envs.Outside)
		p.give(env)
	}
	return p, err
}

// take gives an environment that nobody else uses.
func (p *instances) take() (env envs.Env, err error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		env, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	p.mu.Unlock()
	if env != nil {
		return env, nil
	}
	if recovered := panics.Try(func() { env, err = p.make() }); recovered != nil {
		return nil, quote.Error(fmt.Errorf("making an environment panicked: %v", recovered.Value))
	}
	return env, err
}

// give takes one back that has come to no harm.
func (p *instances) give(env envs.Env) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, env)
}

// close closes all that are idle, each within limit.
func (p *instances) close(limit time.Duration) error {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	var problems []error
	for _, env := range idle {
		problems = append(problems, closeEnv(env, limit))
	}
	return errors.Join(problems...)
}

// closeEnv closes an environment; one that hangs or panics is reported.
func closeEnv(env envs.Env, limit time.Duration) error {
	closing := func(context.Context) (struct{}, error) { return struct{}{}, env.Close() }
	_, err := guard(context.Background(), limit, closing, func() {})
	return err
}

// callError is a failed call of an environment.
type callError struct {
	stop      string // episode.Timeout, Panic or Error
	abandoned bool   // the call still runs and uses the environment
	error
}

func (e *callError) Unwrap() error { return e.error }

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
	go func() { // ends when f returns, which an environment that hangs may never do
		var o outcome
		if recovered := panics.Try(func() { o.value, o.err = f(within) }); recovered != nil {
			o.err = &callError{stop: episode.Panic, error: quote.Error(fmt.Errorf("environment panicked: %v",
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
	return &callError{stop, false, quote.Error(err)}
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
	return fmt.Errorf("it took more than rollout.env_timeout = %s", limit)
}

// workers run the environment side of turns beside the sampling loop.
type workers struct {
	ctx     context.Context
	slots   chan struct{} // one for each environment that may be stepped at once
	done    chan result   // exactly one for each task
	running sync.WaitGroup
}

type result struct {
	runner *runner
	err    error
}

// startWorkers lets n environments be stepped at once for so many episodes, each of which has at most one task at a
// time: neither do nor a task ever blocks on done.
func startWorkers(ctx context.Context, n, episodes int) *workers {
	return &workers{ctx: ctx, slots: make(chan struct{}, n), done: make(chan result, episodes)}
}

// do runs a task of an episode. A panic becomes its error: the sampling loop waits for one result per task. A task
// that has not begun at the end of ctx is dropped.
func (w *workers) do(r *runner, run func(context.Context) error) {
	w.running.Go(func() {
		w.slots <- struct{}{}
		defer func() { <-w.slots }()
		err := context.Cause(w.ctx)
		if err == nil {
			if recovered := panics.Try(func() { err = run(w.ctx) }); recovered != nil {
				err = recovered.AsError()
			}
		}
		w.done <- result{r, err}
	})
}
