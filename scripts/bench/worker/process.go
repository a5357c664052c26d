// Package worker runs the programs that are compared, each in a process of its own, and speaks with them in lines of
// JSON.
//
//	worker ─▶ {"hello": {"program", "versions", "notes"}}            or {"unavailable": "why"}, and it ends
//	bench  ─▶ {"op": "generate", "prompts": [[…]], "new": 64, …}     a work.Task
//	worker ─▶ {"figures": {"seconds", "tokens", …}}                  or {"error": "why"}: the next task may follow
//
// A worker reads tasks until its standard input ends. It times itself, so that neither encoding nor the pipe counts.
// Peak memory and processor time are read from outside, where the system allows it, so that all programs are measured
// alike.
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"gyre/internal/coprocess"
)

// Hello is a worker's first line.
type Hello struct {
	Program  string            `json:"program"`
	Versions map[string]string `json:"versions"`
	Notes    []string          `json:"notes,omitempty"` // settings worth knowing

	Entry string `json:"-"` // Command.Program
}

// Figures are what a task took.
type Figures struct {
	Seconds      float64   `json:"seconds"`
	Tokens       int       `json:"tokens"`                  // as work.Task.Tokens counts them
	FirstSeconds float64   `json:"first_seconds,omitempty"` // until every sequence had its first token
	LaterTokens  int       `json:"later_tokens,omitempty"`  // sampled after that
	TurnSeconds  []float64 `json:"turn_seconds,omitempty"`  // of a rollout
	PeakBytes    int64     `json:"peak_bytes,omitempty"`    // resident, of this process since its start
	Cached       int       `json:"cached,omitempty"`        // prompt tokens that a cache held
	Output       []int32   `json:"output,omitempty"`        // of a greedy continuation

	// Parts splits the time of a task that has parts, in seconds.
	Parts map[string]float64 `json:"parts,omitempty"`
	// Bandwidth and FLOPS answer a probe of the machine.
	Bandwidth float64 `json:"bandwidth,omitempty"`
	FLOPS     float64 `json:"flops,omitempty"`
	FLOPS16   float64 `json:"flops16,omitempty"`
}

// Line is any line that a worker writes.
type Line struct {
	Hello       *Hello   `json:"hello,omitempty"`
	Unavailable string   `json:"unavailable,omitempty"`
	Figures     *Figures `json:"figures,omitempty"`
	Error       string   `json:"error,omitempty"`
}

// ErrUnavailable means that a program is not there: it is skipped, which is not a failure.
var ErrUnavailable = errors.New("unavailable")

// lastWords introduce the end of what a worker wrote to its standard error.
const lastWords = "; it last wrote:\n"

// Command says how a worker is started.
type Command struct {
	Program string
	Args    []string // the executable first
	Env     []string // as in exec.Cmd
}

// limits bound what is kept of a worker's output: a line holds a task's figures and, of a greedy continuation, its
// tokens.
var limits = coprocess.Limits{Line: 64 << 20, Stderr: 4000}

// Process is a running worker. It is used by one goroutine at a time.
type Process struct {
	Hello Hello

	Gone bool // it can take no further task

	program string
	running *coprocess.Process
	ended   sync.Once
}

// Start starts a worker and waits for its first line. An error that matches ErrUnavailable says why the program cannot
// take part.
func Start(ctx context.Context, c Command) (*Process, error) {
	command := exec.Command(c.Args[0], c.Args[1:]...)
	command.Env = c.Env
	running, err := coprocess.Start(command, limits)
	if err != nil {
		return nil, fmt.Errorf("%w: %s cannot be started: %w", ErrUnavailable, c.Args[0], err)
	}
	p := &Process{program: c.Program, running: running}
	line, err := p.receive(ctx)
	switch {
	case err != nil:
		p.end(0)
		return nil, err
	case line.Unavailable != "":
		p.end(0)
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, line.Unavailable)
	case line.Hello == nil:
		p.end(0)
		return nil, fmt.Errorf("%s: the worker's first line is neither hello nor unavailable", c.Program)
	}
	p.Hello = *line.Hello
	p.Hello.Entry = c.Program
	return p, nil
}

func (p *Process) receive(ctx context.Context) (Line, error) {
	var line Line
	select {
	case <-ctx.Done():
		return line, fmt.Errorf("%s: %w", p.program, context.Cause(ctx))
	case text, ok := <-p.running.Lines:
		if !ok {
			p.end(2 * time.Second) // what it wrote to its standard error is complete then
			return line, fmt.Errorf("%s: the worker ended%s", p.program, p.running.LastWords(lastWords))
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return line, fmt.Errorf("%s: the worker wrote %.100q, expected a line of the protocol: %w", p.program, text,
				err)
		}
	}
	return line, nil
}

// Run has a task done. The error of a worker that has gone, or did not answer in time, matches ErrGone; after others
// it can go on.
func (p *Process) Run(ctx context.Context, task any, limit time.Duration) (Figures, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	text, err := json.Marshal(task)
	if err != nil {
		return Figures{}, fmt.Errorf("%s: encoding the task: %w", p.program, err)
	}
	select {
	case <-ctx.Done():
		return Figures{}, fmt.Errorf("%w: %s: the worker takes no task: %w", ErrGone, p.program, context.Cause(ctx))
	case err := <-p.running.Send(text):
		if err != nil {
			return Figures{}, fmt.Errorf("%w: %s: the worker takes no task: %w%s", ErrGone, p.program, err,
				p.running.LastWords(lastWords))
		}
	}
	line, err := p.receive(ctx)
	switch {
	case err != nil:
		return Figures{}, fmt.Errorf("%w: %w", ErrGone, err)
	case line.Error != "":
		return Figures{}, fmt.Errorf("%s: %s", p.program, line.Error)
	case line.Figures == nil:
		return Figures{}, fmt.Errorf("%w: %s: the worker answered without figures", ErrGone, p.program)
	}
	return *line.Figures, nil
}

// settle is how long threads may go on spinning after a task: Intel's OpenMP lets them for a fifth of a second.
const settle = 300 * time.Millisecond

// Measured is Run with the process's peak memory and the processors that other programs kept busy meanwhile, both read
// from outside where the system allows it. spins: the program's threads may go on for a while afterwards, which is
// waited for.
func (p *Process) Measured(ctx context.Context, task any, limit time.Duration, spins bool) (f Figures, others float64,
	err error) {
	if p.Gone {
		return f, 0, fmt.Errorf("%s: %w", p.program, ErrGone)
	}
	external := ResetPeak(p.PID()) == nil
	before, usageErr := Usage(p.PID())
	begin := time.Now()
	if f, err = p.Run(ctx, task, limit); err != nil {
		p.Gone = errors.Is(err, ErrGone)
		return f, 0, err
	}
	elapsed := time.Since(begin)
	if spins {
		defer time.Sleep(settle)
	}
	if after, err := Usage(p.PID()); err == nil && usageErr == nil {
		others = max(0, (after.System-before.System-(after.Process-before.Process)).Seconds()/elapsed.Seconds())
	}
	if peak, err := PeakBytes(p.PID()); err == nil && external {
		f.PeakBytes = peak
	}
	return f, others, nil
}

// ErrGone means that a worker can take no further task.
var ErrGone = errors.New("the worker is gone")

// PID is the worker's process id.
func (p *Process) PID() int { return p.running.PID() }

// Close ends the worker: politely at first. It may be called twice.
func (p *Process) Close() { p.end(10 * time.Second) }

func (p *Process) end(patience time.Duration) { p.ended.Do(func() { p.running.Stop(patience) }) }
