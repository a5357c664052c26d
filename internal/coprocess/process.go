// Package coprocess runs a program that is talked to line by line over its standard input and output, and ends it
// whatever it does.
package coprocess

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"gyre/internal/child"
	"gyre/internal/quote"
)

// Process is a running program.
type Process struct {
	// Lines are the lines that the program writes, without those that are empty; closed when its output ends. Of a
	// line longer than Limits.Line one byte more than that is kept. A last line without its end is left out: the
	// program ended while it wrote.
	Lines <-chan []byte

	// Blank says that the program has written an empty line.
	Blank atomic.Bool

	command *exec.Cmd
	input   io.WriteCloser
	output  io.Reader
	begun   bool // the next request is: see Settle
	stderr  *child.LastWords
}

// Limits bound what is kept of a program's output, in bytes.
type Limits struct {
	Line   int // of a line of its standard output
	Stderr int // of the end of its standard error
}

// Start starts a command whose path, arguments, environment and, where it needs them, attributes are set. What it starts belongs to a process group of
// its own.
func Start(command *exec.Cmd, limits Limits) (*Process, error) {
	p := &Process{command: command, stderr: child.KeepWords(limits.Stderr)}
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Setpgid = true // so that what it starts ends with it
	command.WaitDelay = time.Second    // for pipes that something else keeps open
	command.Stderr = p.stderr
	var err error
	if p.input, err = command.StdinPipe(); err != nil {
		return nil, err
	}
	if p.output, err = command.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	lines := make(chan []byte)
	p.Lines = lines
	go func() { // ends when the program's output does, which Stop makes sure of
		defer close(lines)
		reader := bufio.NewReaderSize(p.output, 1<<16)
		for {
			line, err := readLine(reader, limits.Line)
			if err != nil {
				return
			}
			if line = bytes.TrimRight(line, "\r\n"); len(bytes.TrimSpace(line)) > 0 {
				lines <- line
			} else {
				p.Blank.Store(true)
			}
		}
	}()
	return p, nil
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

// Send writes a line and its end. It does not wait, because a program that reads nothing lets the pipe fill up: the
// channel says when the program has taken it, or why it does not.
func (p *Process) Send(line []byte) <-chan error {
	written := make(chan error, 1)
	go func() { // ends when the program reads the line or ends, or Stop closes its input
		_, err := p.input.Write(append(line, '\n'))
		written <- err
	}()
	return written
}

// Ask sends a line and waits for the line that answers it, as long as ctx lasts. After an error nobody knows which
// line answers what: stop the program.
func (p *Process) Ask(ctx context.Context, line []byte) ([]byte, error) {
	select {
	case line, open := <-p.Lines:
		if open {
			return nil, Unasked{string(line)}
		}
		return nil, errors.New("the program has ended")
	default:
	}
	if p.begun {
		p.begun, line = false, bytes.TrimPrefix(line, []byte(opening))
	}
	written, lines := p.Send(line), p.Lines
	var answer []byte
	for written != nil || lines != nil { // an answer may come before the whole line is read
		select {
		case text, open := <-lines:
			if !open {
				return nil, errors.New("the program has ended")
			}
			answer, lines = text, nil
		case err := <-written:
			if err != nil {
				return nil, fmt.Errorf("the program does not take the request: %w", err)
			}
			written = nil
		case <-ctx.Done():
			return nil, fmt.Errorf("no answer in time: %w", context.Cause(ctx))
		}
	}
	return answer, nil
}

// PID is the program's process id.
func (p *Process) PID() int { return p.command.Process.Pid }

// LastWords is the end of what the program wrote to its standard error, quoted, behind the words that introduce it;
// "" where there is nothing.
func (p *Process) LastWords(introduction string) string {
	text := p.stderr.After("")
	if text == "" {
		return ""
	}
	return introduction + quote.End(text, longestWords)
}

// longestWords bounds what is shown of a program's standard error, in bytes.
const longestWords = 1000

// Stop closes the program's input, gives it some time to end by itself, kills it with all that it has started, and
// waits for it.
func (p *Process) Stop(politeness time.Duration) {
	p.input.Close()
	drained := make(chan struct{})
	go func() { // ends with the program, which is killed below
		for range p.Lines { // nobody waits for these any more
		}
		close(drained)
	}()
	patience := time.NewTimer(politeness)
	defer patience.Stop()
	select {
	case <-drained:
	case <-patience.C:
	}
	syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL) // the id is still the program's: nobody has waited for it
	p.command.Wait()                                      // how it ended says nothing: it may have been killed
	<-drained
}
