package ranks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"gyre/internal/child"
	"gyre/orchestrate/run/interrupt"
)

// Launch starts the ranks of a run on this machine, copies of this program, and watches them.
type Launch struct {
	Ranks    int
	Args     []string // of every rank: this program's
	Restarts int      // how often a run that failed is continued
	Resume   string   // the flag that continues; "" = what runs here leaves nothing to continue
	Threads  int      // kernel threads of all ranks together; 0 = one per core
	Stdout   io.Writer
	Stderr   io.Writer
}

// Run returns when every rank has ended, and leaves no process behind. A run that failed is an *Ended with the cause.
func (l Launch) Run(ctx context.Context) error {
	stopping := interrupt.Graceful(ctx)
	for attempt := 0; ; attempt++ {
		ended := l.once(ctx, stopping)
		e, ok := errors.AsType[*Ended](ended)
		if !ok || e.Reported || e.Code != 1 || attempt == l.Restarts || l.Resume == "" || interrupt.Cause(ctx) != nil {
			return ended
		}
		fmt.Fprintf(l.Stderr, "gyre: %v; restarting from the newest checkpoint (%d of %d)\n", e, attempt+1, l.Restarts)
		if !slices.Contains(l.Args, l.Resume) {
			l.Args = append(slices.Clone(l.Args), l.Resume)
		}
	}
}

// process is one rank.
type process struct {
	rank   int
	cmd    *exec.Cmd
	said   *child.LastWords // what it wrote to stderr, unless that went to a terminal
	failed error            // of starting it
}

// once runs the ranks one time.
func (l Launch) once(ctx context.Context, stopping <-chan struct{}) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("starting the ranks: %w", err)
	}
	kills := outOfMemoryKills()
	address, remove, err := newFileStore()
	if err != nil {
		return err
	}
	defer remove()
	store, err := openRendezvous(ctx, Place{Address: address}, "", "")
	if err != nil {
		return err
	}
	defer store.close()
	processes, ends := make([]*process, l.Ranks), make(chan *process, l.Ranks)
	for rank := range processes {
		p := &process{rank: rank, said: child.KeepWords(keptWords), cmd: exec.Command(program, l.Args...)}
		p.cmd.Env = append(os.Environ(), envRank+"="+strconv.Itoa(rank), envSize+"="+strconv.Itoa(l.Ranks),
			envAddress+"="+address, envToken+"=",
			fmt.Sprintf("GYRE_THREADS=%d", max(1, cmp.Or(l.Threads, runtime.NumCPU())/l.Ranks)))
		p.cmd.Stderr = p.said
		if rank == 0 {
			p.cmd.Stdout, p.cmd.Stderr = l.Stdout, l.Stderr
			// which it must see itself, to draw on it
			if f, ok := l.Stderr.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
				p.cmd.Stderr = io.MultiWriter(l.Stderr, p.said)
			}
		}
		p.start(ends)
		processes[rank] = p
	}
	return l.watch(ctx, store, processes, ends, stopping, kills)
}

// start returns when the process runs, or has failed to.
func (p *process) start(ends chan<- *process) {
	p.cmd.SysProcAttr = child.Attributes()
	p.cmd.WaitDelay = 2 * time.Second
	started := make(chan struct{})
	go func() { // ends with the process, which watch waits for
		runtime.LockOSThread() // see child.Attributes
		defer runtime.UnlockOSThread()
		p.failed = p.cmd.Start()
		close(started)
		if p.failed == nil {
			p.cmd.Wait()                // its state says the rest
			p.kill(-1, syscall.SIGKILL) // what it may have left
		}
		ends <- p
	}()
	<-started
}

// kill sends a signal to the process, or to its group.
func (p *process) kill(of int, signal syscall.Signal) {
	if p.failed == nil {
		syscall.Kill(of*p.cmd.Process.Pid, signal)
	}
}

// watch waits for all ranks, passes a request to stop on to them, and ends them all when one has failed.
func (l Launch) watch(ctx context.Context, store *rendezvous, processes []*process, ends <-chan *process,
	stopping <-chan struct{}, kills int) error {
	var failure *Failure
	var limit <-chan time.Time
	for running := slices.Clone(processes); len(running) > 0; {
		select {
		case p := <-ends:
			running = slices.DeleteFunc(running, func(other *process) bool { return other == p })
			cause := p.how(kills)
			if cause == "" || failure != nil {
				continue
			}
			// It may have reported why, or another may have reported it; if not, the others are told.
			own := &Failure{Rank: p.rank, Host: hostname(), Cause: cause, Code: 1, By: byLauncher}
			if failure = store.report(own); failure.Rank == p.rank && failure.By != p.rank {
				failure = own // which knows more than another rank does
			}
			if failure.By >= 0 && failure.By != failure.Rank { // it may have been stopped
				processes[failure.Rank].kill(-1, syscall.SIGKILL)
			}
			limit = time.After(usual.grace + 2*time.Second)
		case <-stopping:
			stopping = nil
			if cause, ok := errors.AsType[*interrupt.Error](interrupt.Cause(ctx)); ok {
				for _, p := range running {
					p.kill(1, cause.Signal)
				}
			}
		case <-limit:
			for _, p := range running {
				p.kill(-1, syscall.SIGKILL)
			}
		}
	}
	if failure != nil {
		return &Ended{failure, failure.Code, false}
	}
	if code := processes[0].cmd.ProcessState.ExitCode(); code != 0 {
		return &Ended{fmt.Errorf("rank 0 ended with exit code %d", code), code, true} // it has said why
	}
	return nil
}

func hostname() string {
	name, _ := os.Hostname()
	return name
}

// agreedCodes are exit codes that all ranks come to together: a rule that ended the run, an interruption.
var agreedCodes = []int{0, 5, 128 + int(syscall.SIGINT), 128 + int(syscall.SIGTERM)}

const lessMemory = "; lower actor.micro_batch_tokens, set actor.recompute_activations = true, shard more " +
	"(fsdp.shard), or start fewer ranks on this machine"

// how a process ended, "" if that was in good order.
func (p *process) how(kills int) string {
	if p.failed != nil {
		return fmt.Sprintf("it could not be started: %v", p.failed)
	}
	if slices.Contains(agreedCodes, p.cmd.ProcessState.ExitCode()) {
		return ""
	}
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	how := fmt.Sprintf("it ended with exit code %d", p.cmd.ProcessState.ExitCode())
	switch {
	case !status.Signaled():
	case status.Signal() != syscall.SIGKILL:
		how = "it was ended by " + unix.SignalName(status.Signal())
	case outOfMemoryKills() > kills:
		return "out of memory: the kernel ended it (SIGKILL)" + lessMemory
	default:
		return "it was ended by SIGKILL (the kernel's way where memory is short)"
	}
	said := p.said.After("")
	at := dies.FindStringIndex(said)
	if at == nil {
		if p.rank == 0 || said == "" { // rank 0's words have been seen
			return how
		}
		return how + "; the last it said:\n" + said[max(len(said)-shownWords, 0):]
	}
	dying := said[at[0]:]
	dying = dying[:min(len(dying), shownWords)]
	if memoryShort.MatchString(dying) {
		first, _, _ := strings.Cut(dying, "\n")
		what := "out of memory: "
		if strings.Contains(first, "thread") {
			what = "out of memory, or of the threads that it may have: "
		}
		return what + how + ", saying " + strings.TrimSpace(first) + lessMemory
	}
	if p.rank == 0 {
		return how
	}
	return how + "; it crashed:\n" + dying
}

// A crash of Go's runtime begins with its cause and goes on with all goroutines.
const (
	keptWords  = 256 << 10 // bytes of what a process has said
	shownWords = 4 << 10   // of them in a message
)

// dies begins the last words of a program that ends against its will: of Go's runtime, of C++'s, or Gyre's own where
// the library finds no room.
var dies = regexp.MustCompile(`(?m)^(?:fatal error: |panic: |runtime: |runtime/cgo: |terminate called |SIG[A-Z]+: |` +
	`gyre: torch: out of memory)`)

// memoryShort is said by those for want of memory: of bytes, or of a thread's stack.
var memoryShort = regexp.MustCompile(`out of memory|[Cc]annot allocate memory|bad_alloc|pthread_create failed|` +
	`failed to create new OS thread`)

// outOfMemoryKills counts the processes that the kernel has ended for want of memory, in this control group where
// that can be read, on this machine otherwise; 0 where neither can be.
func outOfMemoryKills() (kills int) {
	own, _ := os.ReadFile("/proc/self/cgroup")
	_, group, _ := strings.Cut(string(own), "0::")
	for _, path := range []string{filepath.Join("/sys/fs/cgroup", strings.TrimSpace(group), "memory.events"),
		"/sys/fs/cgroup/memory.events", "/proc/vmstat"} {
		text, _ := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if found, _ := fmt.Sscanf(line, "oom_kill %d", &kills); found == 1 {
				return kills
			}
		}
	}
	return 0
}
