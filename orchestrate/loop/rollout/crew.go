package rollout

import (
	"context"
	"time"

	"github.com/sourcegraph/conc/panics"
	"github.com/sourcegraph/conc/pool"
)

// crew runs the environment side of turns beside the sampling loop.
type crew struct {
	ctx     context.Context
	tasks   chan task
	done    chan result
	workers *pool.Pool
}

type task struct {
	seat *seat
	run  func(context.Context) error
}

type result struct {
	seat *seat
	err  error
}

// newCrew starts workers for n seats: so many environments are stepped at once. No seat has more than one task at a time, so neither do nor a worker ever blocks.
func newCrew(ctx context.Context, workers, n int) *crew {
	c := &crew{ctx: ctx, tasks: make(chan task, n), done: make(chan result, n), workers: pool.New()}
	for range workers {
		c.workers.Go(func() {
			for t := range c.tasks {
				c.done <- result{t.seat, c.attempt(t)}
			}
		})
	}
	return c
}

// attempt turns a panic into an error: the sampling loop waits for exactly one result per task.
func (c *crew) attempt(t task) (err error) {
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	begun := time.Now()
	defer func() { t.seat.busy += time.Since(begun) }()
	if recovered := panics.Try(func() { err = t.run(c.ctx) }); recovered != nil {
		return recovered.AsError()
	}
	return err
}

func (c *crew) do(s *seat, run func(context.Context) error) { c.tasks <- task{s, run} }

// close waits for the workers; tasks not begun are dropped when ctx is done.
func (c *crew) close() {
	close(c.tasks)
	c.workers.Wait()
}
