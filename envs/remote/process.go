package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gyre/internal/coprocess"
)

// process is a local program that serves environments: one JSON object per line in, one out, in order. It is started
// by the first call, killed when an answer does not come in time (whatever it was doing, its environments are lost),
// and started again by the next call.
type process struct {
	command  []string
	maxBytes int // of an answer
	queue    *gatherer
	mu       sync.Mutex // guards the talk with the program; the queue sees to it that nobody waits long
	running  atomic.Pointer[coprocess.Process]
}

func newProcess(command []string, maxBytes int) *process {
	p := &process{command: command, maxBytes: maxBytes}
	p.queue = &gatherer{post: p.talk, single: true}
	return p
}

// call asks once: what a program that ended or hung has lost does not come back.
func (p *process) call(ctx context.Context, c call) (reply, error) {
	got, err := p.queue.ask(ctx, c)
	switch {
	case err == nil || errors.Is(err, errGone):
		return got, err
	case ctx.Err() != nil:
		if program := p.running.Load(); program != nil && !errors.As(err, new(fatal)) {
			err = fmt.Errorf("%w%s", err, program.LastWords(lastWords))
		}
	}
	return reply{}, fmt.Errorf("%s: %s: %w", strings.Join(p.command, " "), c.method, err)
}

// lastWords introduce the end of what a program wrote to its standard error.
const lastWords = "; its last words: "

// talk sends a request and waits for its line. A program that does not answer in time, or ends, is stopped.
func (p *process) talk(ctx context.Context, method string, r request) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running.Load() == nil {
		started, err := coprocess.Start(exec.Command(p.command[0], p.command[1:]...),
			coprocess.Limits{Line: p.maxBytes, Stderr: 2000})
		if err != nil {
			return nil, fatal{err}
		}
		p.running.Store(started)
	}
	line, err := json.Marshal(struct {
		Method string `json:"method"`
		request
	}{method, r})
	if err != nil {
		return nil, err
	}
	program := p.running.Load()
	text, err := program.Ask(ctx, line)
	if err != nil {
		p.stop()
		return nil, fatal{fmt.Errorf("%w%s", err, program.LastWords(lastWords))}
	}
	if len(text) > p.maxBytes {
		return nil, fmt.Errorf("the answer has more than max_bytes = %d bytes", p.maxBytes)
	}
	return text, nil
}

// politeness is how long a program may take to end by itself once its input is closed.
const politeness = 200 * time.Millisecond

func (p *process) stop() {
	if program := p.running.Swap(nil); program != nil {
		program.Stop(politeness)
	}
}
