package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"gyre/envs"
)

// env is one environment of a server. It is made there by the first Reset.
type env struct {
	options *options
	line    transport
	id      string // on the server; "" = none yet
	member  int
	seq     int // of the last step
	state   *result
	running bool
}

// transport carries one call. It asks again where that is safe, until ctx ends.
type transport interface {
	call(ctx context.Context, c call) (reply, error)
}

func (e *env) SetMember(index int) { e.member = index }

func (e *env) Reset(ctx context.Context, seed int64) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(e.options.Patience))
	defer cancel()
	e.running = false
	if e.line == nil {
		line, err := connect(e.options)
		if err != nil {
			return err
		}
		e.line = line
	}
	for first := true; ; first = false {
		if e.id == "" {
			if err := e.create(ctx); err != nil {
				return err
			}
		}
		err := e.ask(ctx, "reset", item{ID: e.id, Seed: &seed, Member: e.member}, &e.state)
		if errors.Is(err, errGone) && first { // the server was started again meanwhile
			e.id = ""
			continue
		}
		if err != nil {
			return err
		}
		e.seq, e.running = 0, true
		return nil
	}
}

func (e *env) create(ctx context.Context) error {
	made, err := e.line.call(ctx, call{method: "create", config: json.RawMessage(e.options.Config)})
	if err == nil {
		e.id = made.id
	}
	return err
}

// ask calls for the environment's item and keeps the state that comes back.
func (e *env) ask(ctx context.Context, method string, i item, into **result) error {
	got, err := e.line.call(ctx, call{method: method, item: i})
	if err == nil {
		*into = got.state
	}
	return err
}

func (e *env) Observe() envs.Observation {
	if e.state == nil {
		return envs.Observation{}
	}
	return e.state.Observation.envs()
}

func (e *env) Step(ctx context.Context, action string) (envs.Result, error) {
	if !e.running {
		return envs.Result{}, envs.ErrNotRunning
	}
	ctx, cancel := context.WithTimeout(ctx, seconds(e.options.Patience))
	defer cancel()
	before := e.state
	var after *result
	if err := e.ask(ctx, "step", item{ID: e.id, Seq: e.seq + 1, Action: &action}, &after); err != nil {
		e.running = false
		return envs.Result{}, err
	}
	e.seq++
	after.Instruction, after.Actions, after.Tools, after.Stop = before.Instruction, before.Actions, before.Tools, before.Stop
	out, err := after.outcome(action)
	if err != nil {
		e.running = false
		return envs.Result{}, err
	}
	e.state, e.running = after, !out.Done
	return out, nil
}

func (e *env) Actions() []string {
	if e.state == nil {
		return nil
	}
	return e.state.Actions
}

func (e *env) Instruction() string {
	if e.state == nil {
		return ""
	}
	return e.state.Instruction
}

func (e *env) StopStrings() []string {
	if e.state == nil {
		return nil
	}
	return e.state.Stop
}

func (e *env) Tools() []envs.Tool {
	if e.state == nil {
		return nil
	}
	var list []envs.Tool
	for _, t := range e.state.Tools {
		list = append(list, envs.Tool{Name: t.Name, Description: t.Description, Parameters: t.Parameters})
	}
	return list
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
	var err error
	if id != "" {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		_, err = line.call(ctx, call{method: "close", item: item{ID: id}})
	}
	return errors.Join(err, disconnect(line))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// remaining is what a deadline leaves, for the server to know.
func remaining(ctx context.Context) float64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left, _ := strconv.ParseFloat(fmt.Sprintf("%.3f", time.Until(deadline).Seconds()), 64)
	return max(left, 0.001)
}
