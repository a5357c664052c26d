// Package sandbox runs Python programs that nobody has looked at.
//
//	s, err := sandbox.New(ctx, sandbox.Defaults)
//	outcomes, err := s.Run(ctx, sandbox.Job{Program: "print(int(input()) + 1)", Calls: []sandbox.Call{{Stdin: "41"}}})
//	fmt.Println(outcomes[0].Stdout) // 42
//
// A job is one process, the runner (runner.py), which forks a child per call. The child may compute, use threads,
// read the Python installation and write into an empty folder that is removed afterwards. Everything else is closed
// to it:
//
//	files        Landlock: nothing outside the Python installation, /usr and the like can be read, nothing but the
//	             folder written. Where the kernel gives user namespaces, the rest does not exist for it; elsewhere
//	             it can tell that a file exists, and how large it is
//	network      seccomp: a program that asks for a socket is killed
//	processes    seccomp: one that forks, executes, traces or signals is killed, one with many threads too
//	privileges   none can be gained, capabilities are dropped, owners and modes of files cannot be changed
//	time         seconds of processor time and of the clock; memory, output, files and their size are limited too
//
// None of it needs privileges or services, and all of it works inside the usual containers; it needs Linux 5.13
// with Landlock. New proves with a program that tries to break out that the walls stand, and fails where they do
// not. Isolation "limits" does without walls, for programs that are trusted.
//
// What a program prints or returns is untrusted text. Expected answers never enter the process, so no program can
// look them up: callers compare outside. The runner says how a call ended, over a pipe that the program does not have.
package sandbox

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"gyre/envs"
)

//go:embed walls.py
var walls string

//go:embed runner.py
var runner string

// Status says how a call ended.
type Status string

// The ways in which a call ends. All but OK mean that the program did not do what it was asked.
const (
	OK        Status = "ok"
	Failed    Status = "error"     // an exception, or an exit status other than 0
	Timeout   Status = "timeout"   // of processor time or of the clock
	Memory    Status = "memory"    // more than allowed
	Output    Status = "output"    // printed more than allowed
	Disk      Status = "disk"      // wrote more than allowed
	Forbidden Status = "forbidden" // tried to fork, to open a socket or the like, and was killed
	Crash     Status = "crash"     // killed by a signal
)

// How programs are kept in.
const (
	Full   = "full"   // walls and limits
	Limits = "limits" // limits only: for programs that are trusted
)

// Config says what a call may use. Options of environments embed it.
type Config struct {
	Seconds   int    `option:"time_limit" doc:"seconds of processor time that a program may take"`
	MemoryMiB int    `option:"memory_mib" doc:"memory that a program may take"`
	Isolation string `option:"isolation" doc:"full: programs are kept in; limits: for trusted programs"`
	Python    string `option:"python" doc:"interpreter that runs the programs"`
}

// Defaults are those of the environments.
var Defaults = Config{Seconds: 3, MemoryMiB: 512, Isolation: Full, Python: "python3"}

// Job is a program and how to call it.
type Job struct {
	Program string
	// Calls each start the program anew. None means one call without input.
	Calls []Call
	// Echo prints the value of the program's last statement if it is an expression, as an interactive session does.
	Echo bool
}

// Call is one execution of a program: with text on its standard input, or of one of its functions.
type Call struct {
	Stdin string `json:"stdin,omitempty"`
	// of class Solution, if the program has one that knows it, else of the program
	Function string `json:"function,omitempty"`
	Args     []any  `json:"args,omitempty"` // JSON values
}

// Outcome is what a call did. Everything in it but Status is the program's word.
type Outcome struct {
	Status Status          `json:"status"`
	Stdout string          `json:"stdout"`
	Value  json.RawMessage `json:"value"` // what the function returned
	Error  string          `json:"error"`
}

// Sandbox runs jobs, a few at a time. It is safe for concurrent use.
type Sandbox struct {
	config Config
	output int // bytes that a call may print
	disk   int // bytes that a call may write
	filter [][4]uint32
	apart  bool // programs have a root folder of their own
	slots  chan struct{}
}

// New prepares a sandbox and proves that its walls stand.
func New(ctx context.Context, c Config) (*Sandbox, error) {
	if c.Seconds < 1 || c.MemoryMiB < 64 || c.Isolation != Full && c.Isolation != Limits {
		return nil, fmt.Errorf("sandbox: expected at least a second, 64 MiB of memory and isolation full or limits, "+
			"got %ds, %d MiB and %q", c.Seconds, c.MemoryMiB, c.Isolation)
	}
	var err error
	if c.Python, err = interpreter(ctx, c.Python); err != nil {
		return nil, err
	}
	s := &Sandbox{config: c, output: 1 << 20, disk: 16 << 20, slots: make(chan struct{}, runtime.NumCPU())}
	if c.Isolation == Full {
		if s.filter, err = systemCalls(); err == nil {
			s.apart = true
			if s.prove(ctx) != nil { // not every container may make namespaces
				s.apart = false
				err = s.prove(ctx)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("sandbox: this machine cannot keep programs in: %w; programs that are trusted can "+
				"run with isolation = \"limits\"", err)
		}
	}
	return s, nil
}

// interpreter finds the interpreter itself, not a script of some version manager that looks for it every time.
func interpreter(ctx context.Context, name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("sandbox: programs run in Python: %w; install it or name another interpreter", err)
	}
	itself, err := exec.CommandContext(ctx, path, "-I", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return "", fmt.Errorf("sandbox: %s does not run: %w", path, err)
	}
	return string(bytes.TrimSpace(itself)), nil
}

// Shared returns the sandbox of a configuration, which is made and proven once per process.
func Shared(ctx context.Context, c Config) (*Sandbox, error) {
	return envs.Shared(c, func() (*Sandbox, error) { return New(ctx, c) })
}

// escapes are what prove tries, and how each must end.
var escapes = []struct {
	what, program string
	end           Status
}{
	{"reading /etc/passwd", "open('/etc/passwd').read()", Failed},
	{"writing outside its folder", "open('../../outside', 'w').write('x')", Failed},
	{"opening a socket", "import socket; socket.socket()", Forbidden},
	{"forking", "import os; os.fork()", Forbidden},
}

// ErrNoWalls says that the machine lacks what the walls are made of.
var ErrNoWalls = errors.New("it takes Linux with Landlock and seccomp")

// prove runs programs that try to break out.
func (s *Sandbox) prove(ctx context.Context) error {
	ok, err := s.Run(ctx, Job{Program: "open('inside', 'w').write('x')\nprint('fine')"})
	if err != nil {
		return err
	}
	if ok[0].Status != OK || ok[0].Stdout != "fine\n" {
		return fmt.Errorf("a harmless program ended with %s: %s", ok[0].Status, ok[0].Error)
	}
	for _, e := range escapes {
		got, err := s.Run(ctx, Job{Program: e.program})
		if err != nil {
			return err
		}
		if got[0].Status != e.end {
			return fmt.Errorf("a program %s was not stopped (%s)", e.what, got[0].Status)
		}
	}
	return nil
}

// Run executes the calls of a job one after the other, and gives the outcome of each. An error means that the sandbox
// itself failed; whatever the program does is in the outcomes, and so is a runner that it kills or hangs.
func (s *Sandbox) Run(ctx context.Context, job Job) ([]Outcome, error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	scratch, err := os.MkdirTemp("", "gyre-sandbox-")
	if err != nil {
		return nil, fmt.Errorf("sandbox: scratch folder: %w", err)
	}
	defer os.RemoveAll(scratch)
	if job.Calls == nil {
		job.Calls = []Call{{}}
	}
	// By the clock a call may take more than its processor time, for others use the processor too.
	clock := 2*time.Duration(s.config.Seconds)*time.Second + time.Second
	input, err := s.input(job, scratch, clock)
	if err != nil {
		return nil, fmt.Errorf("sandbox: job: %w", err)
	}
	// The runner ends each call in time by itself; this is for a runner that hangs.
	timed, cancel := context.WithTimeout(ctx, 10*time.Second+time.Duration(len(job.Calls))*(clock+time.Second))
	defer cancel()
	command := exec.CommandContext(timed, s.config.Python, "-I", "-B", "-c", walls+runner)
	command.Dir = scratch
	command.Env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + scratch, "TMPDIR=" + scratch, "LANG=C.UTF-8", "PYTHONHASHSEED=0",
		"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1",
	}
	var out, problems bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(input), &out, &problems
	command.WaitDelay = time.Second
	isolate(command, s.apart)
	err = command.Run()
	all := outcomes(&out, job.Calls)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("sandbox: %w", context.Cause(ctx))
	case len(all) == len(job.Calls):
		return all, nil
	case timed.Err() != nil:
		return lost(all, job.Calls, Outcome{Status: Timeout, Error: "the runner hung"}), nil
	case command.ProcessState != nil && !command.ProcessState.Exited():
		return lost(all, job.Calls, Outcome{Status: Crash, Error: "the runner was killed"}), nil
	case bytes.Contains(problems.Bytes(), []byte("Landlock is not available")):
		err = ErrNoWalls
	case err == nil:
		err = errors.New("the runner ended without an outcome of every call")
	}
	return nil, fmt.Errorf("sandbox: %s: %w", lastLine(problems.Bytes()), err)
}

// input is what the runner is told of a job.
func (s *Sandbox) input(job Job, scratch string, clock time.Duration) ([]byte, error) {
	root := ""
	if s.apart {
		root = filepath.Join(scratch, "root")
		if err := os.Mkdir(root, 0o700); err != nil {
			return nil, err
		}
	}
	return json.Marshal(map[string]any{
		"program": job.Program, "calls": job.Calls, "echo": job.Echo, "scratch": scratch, "root": root,
		"filter": s.filter,
		"limits": map[string]any{
			"seconds": s.config.Seconds, "clock": clock.Seconds(), "memory": s.config.MemoryMiB << 20,
			"output": s.output, "disk": s.disk,
		},
	})
}

// outcomes reads what the runner says of calls, as far as it came.
func outcomes(said io.Reader, calls []Call) (all []Outcome) {
	for decoder := json.NewDecoder(said); len(all) < len(calls); {
		var o struct {
			Outcome
			Answer string `json:"answer"`
		}
		if decoder.Decode(&o) != nil {
			break
		}
		o.settle(calls[len(all)], o.Answer)
		all = append(all, o.Outcome)
	}
	return all
}

// lost gives the calls that have no outcome the same one.
func lost(all []Outcome, calls []Call, o Outcome) []Outcome {
	return append(all, slices.Repeat([]Outcome{o}, len(calls)-len(all))...)
}

// settle adds what the program itself says of how it ended, which may be anything.
func (o *Outcome) settle(call Call, answer string) {
	var said struct {
		Value  json.RawMessage `json:"value"`
		Error  string          `json:"error"`
		Memory bool            `json:"memory"`
	}
	readable := json.Unmarshal([]byte(answer), &said) == nil
	switch {
	case o.Status == OK && call.Function != "" && (!readable || said.Value == nil):
		o.Status, o.Error = Failed, "the program ended without a value that JSON can hold"
	case o.Status == OK && call.Function != "":
		o.Value = said.Value
	case o.Status == Failed && readable && said.Memory:
		o.Status = Memory
	case o.Status == Failed && readable && said.Error != "":
		o.Error = strings.ToValidUTF8(said.Error[:min(len(said.Error), 1000)], "")
	}
}

func lastLine(text []byte) []byte {
	text = bytes.TrimSpace(text)
	return text[bytes.LastIndexByte(text, '\n')+1:]
}
