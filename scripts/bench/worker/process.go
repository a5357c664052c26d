package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"gyre/internal/tail"
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

// Process is a running worker. It is used by one goroutine at a time.
type Process struct {
	Hello Hello

	program string
	command *exec.Cmd
	input   io.WriteCloser
	lines   chan []byte // closed at the end of output
	log     *tail.Writer
	reader  sync.WaitGroup
	ended   sync.Once
}

// Start starts a worker and waits for its first line. An error that matches ErrUnavailable says why the program cannot take part.
func Start(ctx context.Context, c Command) (*Process, error) {
	p := &Process{program: c.Program, command: exec.Command(c.Args[0], c.Args[1:]...), lines: make(chan []byte), log: tail.New(4000)}
	p.command.Env, p.command.Stderr = c.Env, p.log
	input, err := p.command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Program, err)
	}
	output, err := p.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Program, err)
	}
	p.input = input
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("%w: %s cannot be started: %w", ErrUnavailable, c.Args[0], err)
	}
	p.reader.Go(func() { p.read(output) })
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
	return p, nil
}

func (p *Process) read(output io.Reader) {
	defer close(p.lines)
	r := bufio.NewReader(output)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return // what stands there is cut off
		}
		p.lines <- line
	}
}

func (p *Process) receive(ctx context.Context) (Line, error) {
	var line Line
	select {
	case <-ctx.Done():
		return line, fmt.Errorf("%s: %w", p.program, context.Cause(ctx))
	case text, ok := <-p.lines:
		if !ok {
			p.end(2 * time.Second) // what it wrote to its standard error is complete then
			return line, fmt.Errorf("%s: the worker ended%s", p.program, p.log.After(lastWords))
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return line, fmt.Errorf("%s: the worker wrote %.100q, expected a line of the protocol: %w", p.program, text, err)
		}
	}
	return line, nil
}

// Run has a task done. The error of a worker that has gone, or did not answer in time, matches ErrGone; after others it can go on.
func (p *Process) Run(ctx context.Context, task any, limit time.Duration) (Figures, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	text, err := json.Marshal(task)
	if err != nil {
		return Figures{}, fmt.Errorf("%s: encoding the task: %w", p.program, err)
	}
	if _, err := p.input.Write(append(text, '\n')); err != nil {
		return Figures{}, fmt.Errorf("%w: %s: the worker takes no task: %w%s", ErrGone, p.program, err, p.log.After(lastWords))
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

// ErrGone means that a worker can take no further task.
var ErrGone = errors.New("the worker is gone")

// PID is the worker's process id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Close ends the worker: politely at first. It may be called twice.
func (p *Process) Close() { p.end(10 * time.Second) }

// end closes the worker's input, kills it if that has not ended it after some time, and waits.
func (p *Process) end(patience time.Duration) {
	p.ended.Do(func() {
		p.input.Close()
		impatient := time.AfterFunc(patience, func() { p.command.Process.Kill() })
		defer impatient.Stop()
		for range p.lines { // nobody wants them any more, but the reader must not block
		}
		p.reader.Wait()
		p.command.Wait() // how it ended no longer matters
	})
}
