package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"gyre/envs"
	"gyre/internal/child"
	"gyre/internal/quote"
)

const (
	// kept is how much of the end of a program's output is looked at for its verdict.
	kept = 64 << 10
	// lastWords is how much of the end of its standard error is shown.
	lastWords = 1000
	// politeness is how long a program that has posted its reward may take to end by itself.
	politeness = time.Second
)

var errOutput = errors.New("the program wrote more than max_output bytes")

// run lets the program play an episode.
func (e env) run(ctx context.Context, task envs.Task) (envs.Verdict, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stdout := &output{words: child.KeepWords(kept), left: e.options.Output, over: func() { cancel(errOutput) }}
	stderr := child.KeepWords(lastWords)
	command, err := e.command(ctx, task)
	if err != nil {
		return envs.Verdict{}, err
	}
	command.Stdout, command.Stderr = stdout, stderr
	runtime.LockOSThread() // child.Attributes
	defer runtime.UnlockOSThread()
	if err := command.Start(); err != nil {
		return envs.Verdict{}, err
	}
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-task.Posted:
		case <-ended:
			return
		}
		select {
		case <-time.After(politeness):
			cancel(nil)
		case <-ended:
		}
	})
	err = command.Wait()
	close(ended)
	watching.Wait()
	syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // what it has started, if anything is left of that
	select {
	case <-task.Posted:
		return envs.Verdict{}, nil // the session has it, and how the program ended says nothing
	default:
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return envs.Verdict{}, fmt.Errorf("the program: %w%s", err, words(stderr))
	}
	verdict, err := lastVerdict(stdout.words.After(""))
	if err != nil {
		return verdict, fmt.Errorf("the program's output: %w%s", err, words(stderr))
	}
	return verdict, nil
}

// words are the last ones of a program, quoted.
func words(stderr *child.LastWords) string {
	if text := stderr.After(""); text != "" {
		return "; its last words: " + quote.End(text, lastWords)
	}
	return ""
}

// command is the program behind a limit of its memory, which all that it starts inherits.
func (e env) command(ctx context.Context, task envs.Task) (*exec.Cmd, error) {
	line, arguments := `exec "$@"`, e.options.Command
	if len(arguments) == 1 {
		line, arguments = arguments[0], nil
	}
	if e.options.MemoryMiB > 0 {
		line = fmt.Sprintf("ulimit -v %d 2>/dev/null\n%s", e.options.MemoryMiB<<10, line)
	}
	about, err := json.Marshal(map[string]any{"seed": task.Seed, "group": task.Group, "stream": task.Stream})
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, "sh", append([]string{"-c", line, "sh"}, arguments...)...)
	command.Env = append(os.Environ(), "OPENAI_BASE_URL="+task.BaseURL, "OPENAI_API_KEY="+task.Key,
		"ANTHROPIC_BASE_URL="+task.BaseURL, "ANTHROPIC_API_KEY="+task.Key, "GYRE_TASK="+string(about))
	for _, name := range []string{"NO_PROXY", "no_proxy"} { // the policy is on this machine
		list := strings.TrimPrefix(os.Getenv(name)+",127.0.0.1,localhost", ",")
		command.Env = append(command.Env, name+"="+list)
	}
	command.SysProcAttr = child.Attributes()
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second // for pipes that something else keeps open
	return command, nil
}

// output keeps the end of what a program writes, and ends one that writes too much.
type output struct {
	words *child.LastWords
	left  int
	over  func()
}

func (o *output) Write(b []byte) (int, error) {
	if o.left -= len(b); o.left < 0 {
		o.over()
		return 0, io.ErrShortWrite
	}
	return o.words.Write(b)
}

// lastVerdict reads the last line that is an object.
func lastVerdict(text string) (envs.Verdict, error) {
	lines := bytes.Split([]byte(text), []byte("\n"))
	for i := len(lines) - 1; i >= 0; i-- {
		if line := bytes.TrimSpace(lines[i]); len(line) > 0 && line[0] == '{' {
			v, err := envs.ParseVerdict(line)
			if err == nil && v.Turn != nil {
				err = errors.New("the last line is about a turn: expected the reward of the episode")
			}
			return v, err
		}
	}
	return envs.Verdict{}, errors.New(`no line is a JSON object such as {"reward": 1.0}, and none was posted`)
}
