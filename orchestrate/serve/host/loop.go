package host

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"

	"gyre/torch"
)

// ErrClosed is what requests get once the host is closing.
var ErrClosed = errors.New("the server is shutting down")

// ErrBusy is what a request gets where as many wait as may.
var ErrBusy = errors.New("too many requests are waiting: try again later")

// eventsPerStep bounds what is done between two steps, so that who asks much does not hold up who samples.
const eventsPerStep = 64

// run is the loop.
func (h *Host) run() {
	defer close(h.ended)
	defer h.free()
	for drain := h.drain; ; {
		if h.driver.Unfinished() == 0 {
			if drain == nil {
				return
			}
			select {
			case f := <-h.events:
				f()
			case <-drain:
				drain = nil
			case <-h.ctx.Done():
				h.GiveUp(context.Cause(h.ctx))
				return
			}
		}
		for n, more := 0, true; more && n < eventsPerStep; n++ {
			select {
			case f := <-h.events:
				f()
			case <-drain:
				drain = nil
			default:
				more = false
			}
		}
		if h.ctx.Err() != nil {
			h.GiveUp(context.Cause(h.ctx))
			return
		}
		if h.driver.Unfinished() > 0 {
			h.step()
		}
	}
}

// step makes one step of the engine and ends the streams of those that it finished. A step that fails ends all.
func (h *Host) step() {
	outputs, err := h.driver.Step()
	h.note() // before anybody hears of the end of a request
	for _, out := range outputs {
		h.Finished(out)
	}
	if err != nil {
		h.GiveUp(err)
		h.note()
	}
}

// note keeps the state of the engine for those who ask for it.
func (h *Host) note() {
	if stats, err := h.engine.Stats(); err == nil {
		h.stats.Store(&stats)
	}
}

// GiveUp ends everything that is running with an error, also for others who use the engine's driver.
func (h *Host) GiveUp(err error) {
	err = errors.Join(err, h.driver.Release())
	for id, s := range h.live {
		delete(h.live, id)
		s.end(torch.Output{ID: id, Finish: torch.FinishAbort}, err)
	}
}

// abort ends a request whose context has ended. It is an event.
func (h *Host) abort(id uint64) {
	if h.live[id] == nil {
		return
	}
	if err := h.driver.Engine.Abort(id); err != nil {
		h.GiveUp(err)
	}
}

// enter runs f on the loop, and tells whether it did.
func (h *Host) enter(ctx context.Context, f func()) error {
	select {
	case h.events <- f:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.ended:
		return ErrClosed
	}
}

// Do runs f on the loop between two steps of the engine, where models may be loaded, changed and scored, and returns
// its error. What is being sampled waits for it, and is sampled on with the new weights of a model that f changed. The
// end of ctx gives up the wait for the loop, but not f once it has begun. A panic of f becomes an error.
func (h *Host) Do(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	err := h.enter(ctx, func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("internal error: %v\n%s", p, debug.Stack())
			}
		}()
		done <- f()
	})
	if err != nil {
		return err
	}
	return <-done
}

// Logprobs gives those of tokens from the first-th on, each given the ones before, at temperature 1; nil is the
// model itself. Those before are NaN, as is that of token 0.
func (h *Host) Logprobs(ctx context.Context, policy *torch.Model, ids []int32, first int) (out []float32, err error) {
	if policy == nil {
		policy = h.model.Base
	}
	b := torch.Pack([][]int32{ids}, nil)
	clear(b.Mask[:first])
	err = h.Do(ctx, func() error {
		found, err := policy.Logprobs(b, 1)
		out = found
		return err
	})
	for t := range min(max(first, 1), len(out)) {
		out[t] = float32(math.NaN())
	}
	return out, err
}

// Close takes no further requests, waits for those that are running, and frees the models. It may be called twice.
func (h *Host) Close() {
	if !h.closes.Swap(true) {
		close(h.drain)
	}
	<-h.ended
}
