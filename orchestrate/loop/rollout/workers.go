package rollout

import (
	"context"
	"sync"

	"github.com/sourcegraph/conc/panics"
)

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

// close waits for the tasks.
func (w *workers) close() { w.running.Wait() }
