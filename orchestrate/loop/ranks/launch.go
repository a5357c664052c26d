package ranks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"gyre/internal/child"
	"gyre/orchestrate/run/interrupt"
	"gyre/torch"
)

// Launch starts the ranks of a run on this machine, copies of this program, and watches them.
type Launch struct {
	Ranks     int
	Args      []string // of every rank: this program's
	Restarts  int      // how often a run that failed is continued
	Resume    string   // the flag that continues; "" = what runs here leaves nothing to continue
	Threads   int      // kernel threads of all ranks together; 0 = one per core
	Stdout    io.Writer
	Stderr    io.Writer
	Deadlines Deadlines
}

// Run returns when every rank has ended, and leaves no process behind. A run that failed is an *Ended with the cause.
func (l Launch) Run(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("starting the ranks: %w", err)
	}
	stopping := interrupt.Graceful(ctx)
	for attempt := 0; ; attempt++ {
		ended := l.once(ctx, program, stopping)
		var e *Ended
		if !errors.As(ended, &e) || e.Reported || e.Code != 1 || attempt == l.Restarts || l.Resume == "" ||
			interrupt.Cause(ctx) != nil {
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
	rank    int
	cmd     *exec.Cmd
	said    *words // what it wrote to stderr, unless that went to a terminal
	started chan struct{}
	ended   chan struct{}
	failed  error // of starting it
}

// once runs the ranks one time.
func (l Launch) once(ctx context.Context, program string, stopping <-chan struct{}) error {
	kills := outOfMemoryKills()
	address, remove, err := newFileStore()
	if err != nil {
		return err
	}
	defer remove()
	store, err := torch.OpenFileStore(strings.TrimPrefix(address, file))
	if err != nil {
		return err
	}
	defer store.Close()
	reports := newMembership(&rendezvous{keys: store, prefix: prefixOf(Place{})}, identity{}, l.Deadlines)
	processes := make([]*process, l.Ranks)
	for rank := range processes {
		processes[rank] = &process{rank: rank, said: newWords(), started: make(chan struct{}),
			ended: make(chan struct{})}
	}
	threads := l.Threads
	if threads == 0 {
		threads = runtime.NumCPU()
	}
	ends := make(chan *process, l.Ranks)
	var running sync.WaitGroup
	defer running.Wait()
	for _, p := range processes {
		p.cmd = exec.Command(program, l.Args...)
		p.cmd.Env = append(os.Environ(), envRank+"="+strconv.Itoa(p.rank), envSize+"="+strconv.Itoa(l.Ranks),
			envAddress+"="+address, envToken+"=",
			fmt.Sprintf("GYRE_THREADS=%d", max(1, threads/l.Ranks)))
		p.cmd.Stderr = p.said
		if p.rank == 0 {
			p.cmd.Stdout, p.cmd.Stderr = l.Stdout, l.Stderr
			// which it must see itself, to draw on it
			if f, ok := l.Stderr.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
				p.cmd.Stderr = io.MultiWriter(l.Stderr, p.said)
			}
		}
		p.cmd.SysProcAttr = child.Attributes()
		p.cmd.WaitDelay = 2 * time.Second
		running.Go(func() {
			// See child.Attributes.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			p.failed = p.cmd.Start()
			close(p.started)
			if p.failed == nil {
				p.cmd.Wait()                                      // its state says the rest
				syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // what it may have left
			}
			close(p.ended)
			ends <- p
		})
		<-p.started
	}
	return l.watch(ctx, reports, processes, ends, stopping, kills)
}

// watch waits for all ranks, passes a request to stop on to them, and ends them all when one has failed.
func (l Launch) watch(ctx context.Context, reports *membership, processes []*process, ends <-chan *process,
	stopping <-chan struct{}, kills int) error {
	var failure *Failure
	var limit <-chan time.Time
	signal := func(what syscall.Signal, group bool) {
		for _, p := range processes {
			select {
			case <-p.ended:
				continue
			default:
			}
			if p.failed != nil {
				continue
			}
			if group {
				syscall.Kill(-p.cmd.Process.Pid, what)
			} else {
				p.cmd.Process.Signal(what)
			}
		}
	}
	for left := len(processes); left > 0; {
		select {
		case p := <-ends:
			left--
			if cause := p.fault(kills); cause != "" && failure == nil {
				// It may have reported why, or another may have reported it; if not, the others are told.
				own := &Failure{Rank: p.rank, Host: hostname(), Cause: cause, Code: 1, By: byLauncher}
				if failure = reports.fail(own); failure.Rank == p.rank && failure.By != p.rank {
					failure = own // which knows more than another rank does
				}
				limit = time.After(l.Deadlines.filled().Grace + 2*time.Second)
				if silent := processes[failure.Rank]; failure.By >= 0 && failure.By != failure.Rank &&
					silent.failed == nil {
					syscall.Kill(-silent.cmd.Process.Pid, syscall.SIGKILL)
				}
			}
		case <-stopping:
			stopping = nil
			var cause *interrupt.Error
			if errors.As(interrupt.Cause(ctx), &cause) {
				signal(cause.Signal, false)
			}
		case <-limit:
			signal(syscall.SIGKILL, true)
		}
	}
	if failure != nil {
		return &Ended{failure, failure.Code, false}
	}
	if state := processes[0].cmd.ProcessState; state.ExitCode() != 0 {
		// it has said why
		return &Ended{fmt.Errorf("rank 0 ended with exit code %d", state.ExitCode()), state.ExitCode(), true}
	}
	return nil
}

func hostname() string {
	name, _ := os.Hostname()
	return name
}
