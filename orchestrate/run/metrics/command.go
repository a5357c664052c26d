package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/BurntSushi/toml"
)

const (
	// commandQueue is how many records wait for a command that is slow.
	commandQueue = 4096
	// commandPatience is how long a command may take to accept a record.
	commandPatience = time.Minute
	// commandEnd is how long the end of a run waits for a command that neither accepts a record nor ends.
	commandEnd = 2 * time.Second
)

// command feeds a program: one JSON object per line on its standard input, the run first, then its records. Nothing
// that becomes of the program stops the run: records that do not reach it are counted, and metrics.jsonl has them.
// Log and Close belong to one goroutine; feed, which owns the program, is another.
type command struct {
	name     string
	warn     func(format string, args ...any)
	patience time.Duration
	process  *exec.Cmd
	stdin    *os.File
	log      string
	queue    chan []byte
	done     chan struct{}
	dropped  atomic.Int64
	taken    atomic.Int64 // records that the program has accepted
	given    sync.Once    // the program has been given up
}

// openCommand starts a program for a run and gives it what metrics.jsonl has. What it says goes to NAME/sink.log in
// the run's folder.
func openCommand(run Run, name string, words []string, patience time.Duration) (*command, error) {
	log := filepath.Join(run.Dir, name, "sink.log")
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return nil, err
	}
	first, err := introduce(run)
	if err != nil {
		return nil, err
	}
	history, err := os.ReadFile(filepath.Join(run.Dir, File))
	if err != nil {
		return nil, err
	}
	c := &command{name: name, warn: run.Warn, patience: patience, log: log, done: make(chan struct{}),
		queue: make(chan []byte, 1+bytes.Count(history, []byte("\n"))+commandQueue)}
	c.queue <- first
	for line := range bytes.Lines(history) {
		c.queue <- line
	}
	if err := c.start(words); err != nil { // the program's fault, or the machine's: the run does without
		c.giveUp(err)
		close(c.done)
		return c, nil
	}
	go c.feed() // ends with the program, once Close has closed the queue; Close does not wait for a program that hangs
	return c, nil
}

// introduce is the first line: whose metrics these are.
func introduce(run Run) ([]byte, error) {
	config := map[string]any{}
	if err := toml.Unmarshal(run.Config, &config); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	line, err := json.Marshal(map[string]any{"id": run.ID, "name": run.Name, "project": run.Project, "dir": run.Dir,
		"config": config})
	return append(line, '\n'), err
}

func (c *command) start(words []string) error {
	log, err := os.Create(c.log)
	if err != nil {
		return err
	}
	defer log.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	c.stdin, c.process = write, exec.Command(words[0], words[1:]...)
	c.process.Stdin, c.process.Stdout, c.process.Stderr = read, log, log
	// In a group of its own: Ctrl-C ends the run, and the end of its standard input the program.
	c.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = errors.Join(c.process.Start(), read.Close())
	if err != nil {
		err = errors.Join(err, write.Close())
	}
	return err
}

// feed writes what the program takes until the queue is closed, and waits for its end.
func (c *command) feed() {
	defer close(c.done)
	var failed error
	for line := range c.queue {
		if failed == nil {
			failed = c.write(line)
		}
		if failed != nil {
			c.giveUp(failed)
			c.dropped.Add(1)
		} else {
			c.taken.Add(1)
		}
	}
	if failed != nil {
		_ = c.process.Process.Kill() // it may have ended by itself
	}
	_ = c.stdin.Close()
	if ended := c.process.Wait(); ended != nil {
		c.giveUp(ended)
	}
}

func (c *command) write(data []byte) error {
	if err := c.stdin.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
		return err
	}
	_, err := c.stdin.Write(data)
	return err
}

// giveUp says once that the program gets no more, with the last that it said.
func (c *command) giveUp(err error) {
	c.given.Do(func() {
		said, _ := os.ReadFile(c.log) // without it the error has to do
		lines := strings.Split(strings.TrimSpace(string(said)), "\n")
		c.warn("the logger %s gets no further metrics: %v; its last words: %q (all in %s). The run goes on, and %s "+
			"has everything", c.name, err, lines[len(lines)-1], c.log, File)
	})
}

// Log implements Sink: it never waits.
func (c *command) Log(step int, values map[string]any) error {
	line, err := Encode(step, values)
	if err != nil {
		return err
	}
	select {
	case <-c.done:
		c.dropped.Add(1)
	case c.queue <- line:
	default:
		if c.dropped.Add(1) == 1 {
			c.warn("the logger %s takes metrics more slowly than they come: records are dropped for it", c.name)
		}
	}
	return nil
}

// Close implements Sink: the program gets what is queued, as long as it takes it, and a moment to end. One that does
// not end is left to itself: it may still be sending what it has.
func (c *command) Close() error {
	close(c.queue)
	for ended, before := false, int64(-1); !ended; {
		select {
		case <-c.done:
			ended = true
		case <-time.After(commandEnd):
			if taken := c.taken.Load(); taken > before && len(c.queue) > 0 {
				before = taken
				continue
			}
			ended = true
			c.dropped.Add(int64(len(c.queue)))
			c.warn("the logger %s (process %d) does not end: it is left to itself, and %s has everything", c.name,
				c.process.Process.Pid, File)
		}
	}
	if n := c.dropped.Load(); n > 0 {
		c.warn("%d records did not reach the logger %s", n, c.name)
	}
	return nil
}
