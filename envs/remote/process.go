package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"gyre/internal/tail"
)

// process is a local program that serves environments: one JSON object per line in, one out, in order. It is started by the first
// call, killed when an answer does not come in time (whatever it was doing, its environments are lost), and started again by the
// next call, after a pause that grows while it keeps dying.
type process struct {
	command  []string
	maxBytes int

	turn    chan struct{} // holds a value while nobody talks to the program
	running *running      // below: whoever has the turn
	pause   time.Duration
	until   time.Time
	cause   error

	users int // under processes
}

// running is a started program.
type running struct {
	command *exec.Cmd
	in      io.WriteCloser
	lines   chan []byte // closed when the program has closed its output
	stderr  *tail.Writer
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
		p = &process{command: o.Command, maxBytes: o.MaxBytes, turn: make(chan struct{}, 1)}
		p.turn <- struct{}{}
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
		<-c.turn
		c.stop()
		c.turn <- struct{}{}
	}
	return nil
}

// call sends a request and waits for its line.
func (p *process) call(ctx context.Context, method string, r request) ([]byte, error) {
	select {
	case <-p.turn:
		defer func() { p.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: busy with another environment: %w", p.name(), context.Cause(ctx))
	}
	if left := time.Until(p.until); p.running == nil && left > 0 {
		if left > lastPause {
			return nil, fmt.Errorf("%s: it is started again in %.1f s: %w", p.name(), left.Seconds(), p.cause)
		}
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: it was not started again in time: %w", p.name(), p.cause)
		}
	}
	text, err := p.talk(ctx, method, r)
	if err != nil {
		p.stop()
		p.pause = min(max(2*p.pause, firstPause), longestBreak)
		p.until, p.cause = time.Now().Add(p.pause), err
		return nil, fmt.Errorf("%s: %s: %w", p.name(), method, err)
	}
	p.pause = 0
	return text, nil
}

func (p *process) talk(ctx context.Context, method string, r request) ([]byte, error) {
	if p.running == nil {
		if err := p.start(); err != nil {
			return nil, err
		}
	}
	r.Deadline = remaining(ctx)
	line, err := json.Marshal(struct {
		Method string `json:"method"`
		request
	}{method, r})
	if err != nil {
		return nil, err
	}
	run := p.running
	written := make(chan error, 1) // a program that reads nothing makes writing block
	go func() {
		_, err := run.in.Write(append(line, '\n'))
		written <- err
	}()
	select {
	case text, open := <-run.lines:
		if !open {
			return nil, fmt.Errorf("the program has ended%s", run.lastWords())
		}
		if len(text) > p.maxBytes {
			return nil, fmt.Errorf("the answer has more than max_bytes = %d bytes", p.maxBytes)
		}
		if err := <-written; err != nil {
			return nil, fmt.Errorf("%w%s", err, run.lastWords())
		}
		return text, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer in time: %w%s", context.Cause(ctx), run.lastWords())
	}
}

func (p *process) start() error {
	command := exec.Command(p.command[0], p.command[1:]...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it starts is killed with it
	run := &running{command: command, lines: make(chan []byte), stderr: tail.New(2000)}
	command.Stderr = run.stderr
	command.WaitDelay = time.Second
	in, err := command.StdinPipe()
	if err != nil {
		return err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	run.in = in
	limit := p.maxBytes
	go func() { // ends when the program's output does, which stop makes sure of
		defer close(run.lines)
		reader := bufio.NewReaderSize(out, 1<<16)
		for {
			line, err := readLine(reader, limit)
			if err != nil {
				return
			}
			if len(bytes.TrimSpace(line)) > 0 {
				run.lines <- line
			}
		}
	}()
	p.running = run
	return nil
}

// readLine reads a line, of which no more than one byte above limit is kept.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		piece, err := r.ReadSlice('\n')
		line = append(line, piece[:min(len(piece), limit+1-len(line))]...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// stop ends the program: politely if it is still listening, and with all that it has started.
func (p *process) stop() {
	run := p.running
	if run == nil {
		return
	}
	p.running = nil
	run.in.Close()
	drained := make(chan struct{})
	go func() {
		for range run.lines { // nobody waits for these any more
		}
		close(drained)
	}()
	select {
	case <-drained:
	case <-time.After(politeness):
	}
	syscall.Kill(-run.command.Process.Pid, syscall.SIGKILL)
	<-drained
	run.command.Wait()
}

// politeness is how long a program may take to end by itself once its input is closed.
const politeness = 200 * time.Millisecond

// lastWords end a message about the program.
func (r *running) lastWords() string { return r.stderr.After("; its last words: ") }

func (p *process) name() string { return strings.Join(p.command, " ") }
