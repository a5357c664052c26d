package reward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"gyre/internal/coprocess"
)

// bounds are what is kept of a program's output: a line of an answer, and its last words.
var bounds = coprocess.Limits{Line: 1 << 20, Stderr: 500}

// process is one program; it is started when it is first asked, and again when it has died or was killed.
type process struct {
	command []string
	number  int64              // of the last question
	running *coprocess.Process // nil while there is none
}

// ask sends one question and waits for its answer, for the first one of a new process at least as long as start.
// After an error there is no process any more.
func (p *process) ask(ctx context.Context, q *question, limit, start time.Duration) (line []byte, err error) {
	if p.running == nil {
		limit = max(limit, start)
		if p.running, err = coprocess.Start(exec.Command(p.command[0], p.command[1:]...), bounds); err != nil {
			p.running = nil
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			program := p.running
			p.stop()
			err = fmt.Errorf("%w%s", err, program.LastWords("; its last words: "))
		}
	}()
	select {
	case line, open := <-p.running.Lines:
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
	written := p.running.Send(text)
	for {
		select {
		case line, open := <-p.running.Lines:
			switch {
			case !open:
				return nil, errors.New("the program ended without an answer")
			case len(line) > bounds.Line:
				return nil, fmt.Errorf("the answer has more than %d bytes", bounds.Line)
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

// stop ends the process and all that it has started, and waits for it.
func (p *process) stop() {
	if p.running != nil {
		p.running.Stop(0)
		p.running = nil
	}
}
