package reward

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"gyre/internal/tail"
)

// maxAnswer bounds a line of a program's output.
const maxAnswer = 1 << 20

// process is one running program; it is started when it is first asked, and again when it has died or was killed.
type process struct {
	command []string
	number  int64 // of the last question

	running *exec.Cmd // nil while there is none
	input   io.WriteCloser
	lines   chan []byte // closed when the output ends
	ended   chan struct{}
	stderr  *tail.Writer
}

// ask sends one question and waits for its answer, for the first one of a new process at least as long as start. After an
// error there is no process any more.
func (p *process) ask(ctx context.Context, q *question, limit, start time.Duration) (line []byte, err error) {
	if p.running == nil {
		limit = max(limit, start)
		if err := p.start(); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			p.stop()
			err = fmt.Errorf("%w%s", err, p.stderr.After("; its last words: "))
		}
	}()
	select {
	case line, open := <-p.lines:
		if open {
			return nil, fmt.Errorf("the program said more than one line to a question: %.80q", line)
		}
		return nil, errors.New("the program has ended")
	default:
	}
	p.number++
	q.Number = p.number
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	written := make(chan error, 1)
	go func() { // a program that does not read lets the pipe fill up; stop closes it
		_, err := p.input.Write(append(text, '\n'))
		written <- err
	}()
	for {
		select {
		case line, open := <-p.lines:
			if !open {
				return nil, errors.New("the program ended without an answer")
			}
			return line, nil
		case err := <-written:
			if err != nil {
				return nil, fmt.Errorf("the program takes no input: %w", err)
			}
			written = nil
		case <-timer.C:
			return nil, fmt.Errorf("no answer within %v", limit)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (p *process) start() error {
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.WaitDelay = time.Second                           // for the pipes, which something may keep open that got away
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what it starts ends with it
	p.stderr = tail.New(500)
	cmd.Stderr = p.stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.running, p.input = cmd, input
	p.lines, p.ended = make(chan []byte), make(chan struct{})
	go read(output, p.lines, p.ended)
	return nil
}

// read passes lines on until the output ends or the process is given up.
func read(output io.Reader, lines chan<- []byte, given <-chan struct{}) {
	defer close(lines)
	scan := bufio.NewScanner(output)
	scan.Buffer(nil, maxAnswer)
	for scan.Scan() {
		if len(bytes.TrimSpace(scan.Bytes())) == 0 {
			continue
		}
		select {
		case lines <- bytes.Clone(scan.Bytes()):
		case <-given:
			return
		}
	}
}

// stop ends the process and all that it has started, and waits for it.
func (p *process) stop() {
	if p.running == nil {
		return
	}
	close(p.ended)
	_ = p.input.Close()
	_ = syscall.Kill(-p.running.Process.Pid, syscall.SIGKILL)
	_ = p.running.Wait() // it was killed: what it ended with says nothing
	for range p.lines {  // until the reader has left
	}
	p.running = nil
}
