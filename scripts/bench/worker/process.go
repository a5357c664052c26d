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
	"syscall"
	"time"

	"gyre/internal/coprocess"
	"gyre/scripts/bench/work"
)

// Hello is a worker's first line.
type Hello struct {
	Program  string            `json:"program"`
	Versions map[string]string `json:"versions"`
	Notes    []string          `json:"notes,omitempty"` // settings worth knowing
}

// Figures are what a task took.
type Figures struct {
	Seconds      float64   `json:"seconds"`
	Tokens       int       `json:"tokens"`                  // as work.Task.Tokens counts them
	FirstSeconds float64   `json:"first_seconds,omitempty"` // until every sequence had its first token
	LaterTokens  int       `json:"later_tokens,omitempty"`  // sampled after that
	TurnSeconds  []float64 `json:"turn_seconds,omitempty"`  // of a rollout
	PeakBytes    int64     `json:"peak_bytes,omitempty"`    // resident, of this process since its start
	ChildBytes   int64     `json:"child_bytes,omitempty"`   // the same of a program that did the task for it
	Cached       int       `json:"cached,omitempty"`        // prompt tokens that a cache held
	Output       []int32   `json:"output,omitempty"`        // of a greedy continuation
	// Parts splits the time of a task that has parts, in seconds.
	Parts   map[string]float64 `json:"parts,omitempty"`
	Machine work.Machine       `json:"machine,omitzero"` // answers a probe
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

// ErrGone means that a worker can take no further task.
var ErrGone = errors.New("the worker is gone")

// Process is a running worker. It is used by one goroutine at a time.
type Process struct {
	Program string // what the benchmark calls it
	Hello   Hello
	Gone    bool // it can take no further task

	running *coprocess.Process
	stopped sync.Once
}

// Start starts a worker and waits for its first line. An error that matches ErrUnavailable says why the program cannot
// take part.
func Start(ctx context.Context, program string, command *exec.Cmd) (*Process, error) {
	// A line holds a task's figures and, of a greedy continuation, its tokens.
	running, err := coprocess.Start(command, coprocess.Limits{Line: 64 << 20, Stderr: 4000})
	if err != nil {
		return nil, fmt.Errorf("%w: %s cannot be started: %w", ErrUnavailable, command.Path, err)
	}
	p := &Process{Program: program, running: running}
	var line Line
	select {
	case <-ctx.Done():
		err = fmt.Errorf("%s: %w", program, context.Cause(ctx))
	case text, open := <-running.Lines:
		if !open {
			err = p.ended()
		} else if err = p.read(text, &line); err == nil && line.Unavailable != "" {
			err = fmt.Errorf("%w: %s", ErrUnavailable, line.Unavailable)
		} else if err == nil && line.Hello == nil {
			err = fmt.Errorf("%s: the worker's first line is neither hello nor unavailable", program)
		}
	}
	if err != nil {
		p.stop(0)
		return nil, err
	}
	p.Hello = *line.Hello
	return p, nil
}

func (p *Process) read(text []byte, line *Line) error {
	if err := json.Unmarshal(text, line); err != nil {
		return fmt.Errorf("%s: the worker wrote %.100q, expected a line of the protocol: %w", p.Program, text, err)
	}
	return nil
}

// ended waits for the worker's end, so that what it wrote to its standard error is complete, and says so.
func (p *Process) ended() error {
	p.stop(2 * time.Second)
	return fmt.Errorf("%s: the worker ended%s", p.Program, p.running.LastWords("; it last wrote:\n"))
}

// Run has a task done. The error of a worker that has gone, or did not answer in time, matches ErrGone; after others
// it can go on.
func (p *Process) Run(ctx context.Context, task any, limit time.Duration) (Figures, error) {
	if p.Gone {
		return Figures{}, fmt.Errorf("%s: %w", p.Program, ErrGone)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	text, err := json.Marshal(task)
	if err != nil {
		return Figures{}, fmt.Errorf("%s: encoding the task: %w", p.Program, err)
	}
	var line Line
	p.signal(syscall.SIGCONT)
	if text, err = p.running.Ask(ctx, text); err != nil && ctx.Err() == nil {
		err = p.ended()
	} else if err == nil {
		p.signal(syscall.SIGSTOP)
		err = p.read(text, &line)
	}
	switch {
	case err == nil && line.Error != "":
		return Figures{}, fmt.Errorf("%s: %s", p.Program, line.Error)
	case err == nil && line.Figures == nil:
		err = errors.New("the worker answered without figures")
	}
	if err != nil {
		p.Gone = true
		return Figures{}, fmt.Errorf("%w: %s: %w", ErrGone, p.Program, err)
	}
	return *line.Figures, nil
}

// signal reaches the worker's whole group. Between tasks it is stopped: threads that wait may go on spinning or polling,
// and a program with as many threads as there are cores loses more than what they take.
func (p *Process) signal(s syscall.Signal) { _ = syscall.Kill(-p.running.PID(), s) }

// Measured is Run with the process's peak memory and the processors that other programs kept busy meanwhile, both read
// from outside where the system allows it.
func (p *Process) Measured(ctx context.Context, task any, limit time.Duration) (f Figures, others float64, err error) {
	pid := p.running.PID()
	external := ResetPeak(pid) == nil
	before, begin := othersTime(pid), time.Now()
	if f, err = p.Run(ctx, task, limit); err != nil {
		return f, 0, err
	}
	others = max(0, (othersTime(pid)-before)/time.Since(begin).Seconds())
	if peak := PeakBytes(pid); external && peak > 0 {
		f.PeakBytes = peak
	}
	f.PeakBytes = max(f.PeakBytes, f.ChildBytes)
	return f, others, nil
}

// Close ends the worker: politely at first. It may be called twice.
func (p *Process) Close() { p.stop(10 * time.Second) }

func (p *Process) stop(patience time.Duration) {
	p.stopped.Do(func() {
		p.signal(syscall.SIGCONT)
		p.running.Stop(patience)
	})
}
