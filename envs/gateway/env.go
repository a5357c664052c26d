// Package gateway plays episodes with programs that have an agent of their own: any program that speaks OpenAI's or
// Anthropic's API.
// docs/gateway.md describes it for users; orchestrate/serve/gateway answers the programs.
//
// A program gets OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY and GYRE_TASK, {"seed": 7,
// "group": 3, "stream": "train"}, in its environment. The last JSON object that it prints on a line of its own,
// {"reward": 1.0, "components": {…}}, is its verdict, unless it has posted one. It runs as the user does: its time,
// memory and output are limited, so that a run survives its mistakes, but it is trusted. Without a command an episode
// belongs to the next client that opens a session.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"gyre/envs"
)

type options struct {
	Command   []string `option:"command" doc:"program that plays an episode: a line for sh, or a list of the program and its arguments; empty: clients open sessions"`
	Attempt   float64  `option:"attempt_timeout" range:"(0,1000000]" doc:"seconds that an episode may take, or wait for a client"`
	MemoryMiB int      `option:"memory_mib" range:"[0,16777216]" doc:"address space of each process of the program; 0 = not limited"`
	Output    int      `option:"max_output" range:"[1024,1073741824]" doc:"bytes that the program may write to its standard output"`
	Listen    string   `option:"listen" doc:"HOST:PORT at which programs reach the policy; port 0 is any free one"`
}

type env struct{ options *options }

var _ envs.Outside = env{}

func (e env) Limit() time.Duration { return time.Duration(e.options.Attempt * float64(time.Second)) }

func (e env) Listen() string { return e.options.Listen }

func (e env) Attend(ctx context.Context, task envs.Task) (envs.Verdict, error) {
	limit := fmt.Errorf("it may take attempt_timeout = %g seconds: %w", e.options.Attempt, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(ctx, e.Limit(), limit)
	defer cancel()
	if len(e.options.Command) > 0 {
		return e.run(ctx, task)
	}
	task.Offer()
	select {
	case <-task.Posted:
		return envs.Verdict{}, nil // the session has it
	case <-ctx.Done():
		return envs.Verdict{}, fmt.Errorf("no client has opened a session and posted its reward: %w",
			context.Cause(ctx))
	}
}

// errOutside is what the methods for the agent loop return.
var errOutside = errors.New("the agent of this environment is a program outside: gyre train plays it, not a loop of " +
	"actions")

func (e env) Reset(context.Context, int64, int) (envs.Start, error) { return envs.Start{}, nil }

func (e env) Observe() envs.Observation {
	return envs.Observation{Text: "(the program writes the prompts)"}
}

func (e env) Step(context.Context, string) (envs.Result, error) { return envs.Result{}, errOutside }

func (e env) Close() error { return nil }

func newEnv(o *options) (env, error) {
	if _, _, err := net.SplitHostPort(o.Listen); err != nil {
		return env{}, fmt.Errorf("option listen: expected HOST:PORT, got %q", o.Listen)
	}
	return env{o}, nil
}

func init() {
	envs.Register(envs.Native("gateway", options{Attempt: 120, MemoryMiB: 4096, Output: 1 << 20,
		Listen: "127.0.0.1:0"}, newEnv)("gateway", "an agent of another program, which asks the policy over OpenAI's "+
		"API",
		1, 0, nil))
}
