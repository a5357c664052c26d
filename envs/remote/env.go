// Package remote plays environments that run in a program of their own, in any language: behind HTTP, or as a local
// process that is talked to over its standard input and output. docs/remote-environments.md describes the protocol,
// scripts/remote_env.py is a server for environments written in Python.
//
// Calls of many environments that wait at the same moment go as one request, where the server takes that.
//
// The other side is not trusted. It may be slow, die, hang or lie: what it says is bounded and checked, calls end
// with their context, failed ones are asked again with growing pauses as long as their time allows (steps are
// numbered, so that none is executed twice), and a server that stays away is left alone for a while, so that a run
// does not wait for it again and again. What cannot be mended fails the episode.
package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gyre/envs"
)

// env is one environment of a server. It is made there by the first Reset.
type env struct {
	host    *host
	line    transport // nil = not connected
	id      string    // on the server; "" = none yet
	seq     int       // of the last step
	state   *result
	running bool
}

// transport carries one call. It asks again where that is safe, until ctx ends.
type transport interface {
	call(ctx context.Context, c call) (reply, error)
}

func (e *env) Reset(ctx context.Context, seed int64, member int) (envs.Start, error) {
	ctx, cancel := context.WithTimeout(ctx, seconds(e.host.options.Patience))
	defer cancel()
	e.running = false
	if e.line == nil {
		e.line = e.host.connect()
	}
	for first := true; ; first = false {
		if e.id == "" {
			if err := e.create(ctx); err != nil {
				return envs.Start{}, err
			}
		}
		got, err := e.line.call(ctx, call{method: "reset", item: item{ID: e.id, Seed: &seed, Member: member}})
		if errors.Is(err, errGone) && first { // the server was started again meanwhile
			e.id = ""
			continue
		}
		if err != nil {
			return envs.Start{}, err
		}
		start := envs.Start{Instruction: got.state.Instruction, Actions: got.state.Actions, Tools: got.state.Tools,
			StopStrings: got.state.Stop}
		if err := start.Check(); err != nil {
			return envs.Start{}, fmt.Errorf("the answer to a reset: %w", err)
		}
		e.state, e.seq, e.running = got.state, 0, true
		return start, nil
	}
}

func (e *env) create(ctx context.Context) error {
	made, err := e.line.call(ctx, call{method: "create", config: json.RawMessage(e.host.options.Config)})
	if err == nil {
		e.id = made.id
	}
	return err
}

func (e *env) Observe() envs.Observation {
	if e.state == nil {
		return envs.Observation{}
	}
	return *e.state.Observation
}

func (e *env) Step(ctx context.Context, action string) (envs.Result, error) {
	if !e.running {
		return envs.Result{}, envs.ErrNotRunning
	}
	ctx, cancel := context.WithTimeout(ctx, seconds(e.host.options.Patience))
	defer cancel()
	e.running = false // where the step fails
	got, err := e.line.call(ctx, call{method: "step", item: item{ID: e.id, Seq: e.seq + 1, Action: &action}})
	if err != nil {
		return envs.Result{}, err
	}
	out, err := got.state.outcome(action)
	if err != nil {
		return envs.Result{}, err
	}
	e.state, e.seq, e.running = got.state, e.seq+1, !out.Done
	return out, nil
}

// closing is how long a server may take to let an environment go: it matters to nobody.
const closing = 2 * time.Second

func (e *env) Close() error {
	e.running = false
	if e.line == nil {
		return nil
	}
	line, id := e.line, e.id
	e.line, e.id, e.state = nil, "", nil
	defer e.host.disconnect()
	if id != "" {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		_, err := line.call(ctx, call{method: "close", item: item{ID: id}})
		return err
	}
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// remaining is what a deadline leaves, for the server to know: seconds, to the millisecond.
func remaining(ctx context.Context) float64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(deadline).Round(time.Millisecond), time.Millisecond).Seconds()
}
