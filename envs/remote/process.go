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

// process is a local program that serves environments: one JSON object per line in, one out, in order. It is started by the first
// call, killed when an answer does not come in time (whatever it was doing, its environments are lost), and started again by the
// next call, after a pause that grows while it keeps dying.
type process struct {
	command  []string
	maxBytes int
	queue    *gatherer

	mu      sync.Mutex // held by whoever talks to the program; the queue sees to it that nobody waits long
	running atomic.Pointer[coprocess.Process]
	pause   time.Duration
	until   time.Time
	cause   error

	users int // under processes
}

// channel is one environment's place in a process.
type channel struct {
	key string
	*process
	left bool
}

var processes = struct {
	sync.Mutex
	all  map[string]*process
	next map[string]int
}{all: map[string]*process{}, next: map[string]int{}}

// newChannel shares the environments of one command out among its processes.
func newChannel(o *options) (*channel, error) {
	if _, err := exec.LookPath(o.Command[0]); err != nil {
		return nil, fmt.Errorf("option command: %w", err)
	}
	processes.Lock()
	defer processes.Unlock()
	group := fmt.Sprintf("%q %d", o.Command, o.MaxBytes)
	n := processes.next[group]
	processes.next[group]++
	key := fmt.Sprintf("%s %d", group, n%o.Processes)
	p := processes.all[key]
	if p == nil {
		p = &process{command: o.Command, maxBytes: o.MaxBytes}
		p.queue = &gatherer{post: p.talk, single: true}
		processes.all[key] = p
	}
	p.users++
	return &channel{key: key, process: p}, nil
}

// leave gives the place up; the last one out ends the program.
func (c *channel) leave() error {
	processes.Lock()
	if c.left {
		processes.Unlock()
		return nil
	}
	c.left = true
	c.users--
	last := c.users == 0
	if last {
		delete(processes.all, c.key)
	}
	processes.Unlock()
	if last {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stop()
	}
	return nil
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
		if err := p.start(ctx); err != nil {
			return nil, fatal{err}
		}
	}
	program := p.running.Load()
	text, err := p.exchange(ctx, program, method, r)
	if err != nil {
		p.stop()
		err = fmt.Errorf("%w%s", err, program.LastWords(lastWords))
		p.failed(err)
		return nil, fatal{err}
	}
	p.pause = 0
	if len(text) > p.maxBytes {
		return nil, fmt.Errorf("the answer has more than max_bytes = %d bytes", p.maxBytes)
	}
	return text, nil
}

func (p *process) exchange(ctx context.Context, program *coprocess.Process, method string, r request) ([]byte, error) {
	select {
	case line, open := <-program.Lines:
		if open {
			return nil, fmt.Errorf("the program said more than one line to a request: %.80q", line)
		}
		return nil, errors.New("the program has ended")
	default:
	}
	line, err := json.Marshal(struct {
		Method string `json:"method"`
		request
	}{method, r})
	if err != nil {
		return nil, err
	}
	written := program.Send(line)
	select {
	case text, open := <-program.Lines:
		if !open {
			return nil, errors.New("the program has ended")
		}
		return text, <-written
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer in time: %w", context.Cause(ctx))
	}
}

// start starts the program, unless it has failed too often or too recently for the time there is.
func (p *process) start(ctx context.Context) error {
	if left := time.Until(p.until); left > 0 {
		if left > lastPause {
			return fmt.Errorf("it is started again in %.1f s: %w", left.Seconds(), p.cause)
		}
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return fmt.Errorf("it was not started again in time: %w", p.cause)
		}
	}
	program, err := coprocess.Start(exec.Command(p.command[0], p.command[1:]...), coprocess.Limits{Line: p.maxBytes, Stderr: 2000})
	if err != nil {
		p.failed(err)
		return err
	}
	p.running.Store(program)
	return nil
}

// failed lets the next start wait.
func (p *process) failed(cause error) {
	p.pause = min(max(2*p.pause, firstPause), longestBreak)
	p.until, p.cause = time.Now().Add(p.pause), cause
}

// politeness is how long a program may take to end by itself once its input is closed.
const politeness = 200 * time.Millisecond

func (p *process) stop() {
	if program := p.running.Swap(nil); program != nil {
		program.Stop(politeness)
	}
}
