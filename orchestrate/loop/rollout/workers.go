package rollout

import (
	"context"

	"github.com/sourcegraph/conc/panics"
	"github.com/sourcegraph/conc/pool"
)

// workers run the environment side of turns beside the sampling loop.
type workers struct {
	ctx   context.Context
	tasks chan task
	done  chan result // exactly one for each task
	pool  *pool.Pool
}

type task struct {
	runner *runner
	run    func(context.Context) error
}

type result struct {
	runner *runner
	err    error
}

// startWorkers starts n workers for episodes: so many environments are stepped at once. An episode has at most one
// task at a time, so that neither do nor a worker ever blocks.
func startWorkers(ctx context.Context, n, episodes int) *workers {
	w := &workers{ctx: ctx, tasks: make(chan task, episodes), done: make(chan result, episodes), pool: pool.New()}
	for range max(1, min(n, episodes)) {
		w.pool.Go(func() {
			for t := range w.tasks {
				w.done <- result{t.runner, w.attempt(t)}
			}
		})
	}
	return w
}

// attempt turns a panic into an error: the sampling loop waits for one result per task.
func (w *workers) attempt(t task) (err error) {
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	if recovered := panics.Try(func() { err = t.run(w.ctx) }); recovered != nil {
		return recovered.AsError()
	}
	return err
}

func (w *workers) do(r *runner, run func(context.Context) error) { w.tasks <- task{r, run} }

// close waits for the workers; tasks not begun are dropped when ctx is done.
func (w *workers) close() {
	close(w.tasks)
	w.pool.Wait()
}
