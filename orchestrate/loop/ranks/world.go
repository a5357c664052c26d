// Package ranks makes several processes one run: it finds out who a process is, brings the processes together, and
// ends all of them when one of them fails.
//
//	environment.go  who am I: torchrun, mpirun, srun, a PyTorchJob, `gyre … --ranks N`, or one process alone
//	rendezvous.go   the store in which ranks find each other: c10d's FileStore on one machine, TCPStore between machines
//	membership.go   identity and signs of life of the ranks, and the failure of the run, in that store
//	world.go        the run as a rank sees it: its place, its process group, the failure of another rank
//	collectives.go  what ranks tell each other over the process group
//	launch.go       N processes on this machine, watched, restarted if asked, and why one of them ended
//
// A failure is written to the store by the rank that fails, by the launcher that sees a process end, or by the rank
// that misses another's signs of life. The first report counts, and every rank looks for it twice a second.
package ranks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"gyre/torch"
)

// World is a run as one of its ranks sees it: one that was joined, a part of that, or that of a process alone.
type World struct {
	Place

	ctx      context.Context // of the run: ends with its failure
	cancel   context.CancelCauseFunc
	members  *membership
	exit     func(code int)
	failed   func(*Failure)
	watching sync.WaitGroup
	over     chan struct{}

	config torch.GroupConfig // of the process group of all ranks
	group  *torch.Group      // of the ranks of this world; nil for a process alone
	mu     sync.Mutex        // guards groups
	groups []*torch.Group    // all that this rank is in: of the world, of parts of it, of ranks that sample together
}

// Alone is the world of a process without others. Its collectives give back what they get; there is nothing to
// conclude.
func Alone() *World {
	return &World{Place: Place{Size: 1, LocalSize: 1}, ctx: context.Background(),
		members: &membership{failed: context.Background()}, config: torch.GroupConfig{WorldSize: 1}}
}

// Options say how ranks find and judge one another.
type Options struct {
	Version, Config string         // must be equal on all ranks
	Bind            string         // address or interface; loopback when empty
	Folder          string         // that all ranks see
	Backend         string         // of the process group: gloo, nccl
	Timeout         time.Duration  // of collectives
	Failed          func(*Failure) // called on the rank that says why the run failed
}

// Join takes this process into its run. The context that it returns ends when another rank fails; Conclude must follow.
func Join(ctx context.Context, p Place, o Options) (context.Context, *World, error) {
	bind, err := resolve(o.Bind)
	if err != nil {
		return ctx, nil, err
	}
	if o.Bind == "" && p.LocalSize > 0 && !p.OneMachine() {
		return ctx, nil, fmt.Errorf("%v: ranks on other machines cannot reach loopback: set fsdp.bind to the address "+
			"or the name of the network interface that joins them (eth0, ib0)", p)
	}
	opening, cancel := context.WithTimeoutCause(ctx, usual.join, fmt.Errorf("gave up after %v", usual.join))
	defer cancel()
	store, err := openRendezvous(opening, p, bind, o.Folder)
	if err != nil {
		return ctx, nil, err
	}
	who := identity{Rank: p.Rank, Size: p.Size, Version: o.Version, Config: o.Config, Host: hostname(),
		PID: os.Getpid()}
	w := &World{Place: p, members: newMembership(store, who, usual), exit: os.Exit, failed: o.Failed,
		over: make(chan struct{}),
		config: torch.GroupConfig{Rank: p.Rank, WorldSize: p.Size, Store: store.groups, Prefix: store.prefix + "run/",
			Backend: o.Backend, Bind: bind, Timeout: o.Timeout}}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.watching.Go(w.watch)
	err = w.members.join(w.ctx)
	if err == nil {
		w.group, err = w.openGroup(w.ctx, w.config)
	}
	if err != nil {
		if failure := w.members.failure(); failure != nil {
			err = w.ended(failure)
		} else if !errors.Is(err, context.Canceled) { // the run is told why this rank does not come
			err = w.ended(w.members.fail(who, err.Error(), 1))
		}
		w.close()
		return ctx, nil, err
	}
	return w.ctx, w, nil
}

// openGroup opens a process group that is aborted when the run has failed, and closed with the world.
func (w *World) openGroup(ctx context.Context, config torch.GroupConfig) (*torch.Group, error) {
	group, err := torch.OpenGroup(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("the process group of ranks %d to %d: %w", config.First,
			config.First+config.WorldSize-1, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.groups = append(w.groups, group)
	if w.members.failure() != nil {
		group.Abort("the run has failed")
	}
	return group, nil
}

// watch ends this process's part when the run has failed elsewhere: collectives are given up, the context ends, and
// what does not end by itself within the grace is ended.
func (w *World) watch() {
	select {
	case <-w.over:
		return
	case <-w.members.failed.Done():
	}
	failure := w.members.failure()
	w.cancel(failure) // which aborts the collectives that wait with it
	w.mu.Lock()
	for _, group := range w.groups { // collectives inside a model's passes have no context
		group.Abort(failure.Error())
	}
	w.mu.Unlock()
	select {
	case <-w.over:
	case <-time.After(w.members.deadlines.grace):
		if !w.ended(failure).Reported {
			fmt.Fprintf(os.Stderr, "gyre: %v\n", failure)
		}
		w.exit(failure.Code)
	}
}

// Cause is why a rank's work ended with err: the failure of another rank, where there is one, or err itself. A
// collective fails as soon as another rank ends; who that is, and why, is known when the rank has reported it or its
// signs of life are missed.
func (w *World) Cause(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, torch.ErrDisconnected) {
		select {
		case <-w.ctx.Done():
		case <-time.After(w.members.deadlines.beat + 3*beats*round):
		}
	}
	if f := w.members.failure(); f != nil && f.Rank != w.Place.Rank {
		return f
	}
	return err
}

// speaks reports whether this rank says why the run failed. Of those that were in it exactly one does: rank 0, or the
// next one of a rank 0 that cannot. A rank that does not fit says so itself as well.
func (w *World) speaks(f *Failure) bool {
	w.mu.Lock()
	joined := len(w.groups) > 0
	w.mu.Unlock()
	switch {
	case w.Launcher == "gyre":
		return false
	case w.Place.Rank == 0, !joined && f.Rank == w.Place.Rank:
		return true
	}
	return w.Place.Rank == 1 && f.Rank == 0 && f.By != 0
}

// Ended is the end of a run over ranks.
type Ended struct {
	Err      error
	Code     int
	Reported bool // another process says it
}

func (e *Ended) Error() string { return e.Err.Error() }
func (e *Ended) Unwrap() error { return e.Err }

// ExitCode of this process.
func (e *Ended) ExitCode() int { return e.Code }

// Conclude ends this rank's part with its result, in which code is the exit code that err would have alone. An end
// that all ranks come to together (agreed) is not a failure of this one.
func (w *World) Conclude(err error, code int, agreed bool) error {
	defer w.close()
	switch {
	case err == nil:
		return nil
	case agreed:
		return &Ended{err, code, w.Place.Rank != 0}
	}
	err = w.Cause(err)
	failure, other := err.(*Failure)
	if !other {
		failure = w.members.fail(w.members.who, err.Error(), code)
	}
	return w.ended(failure)
}

// ended is the end of this process's part in a failed run.
func (w *World) ended(f *Failure) *Ended {
	speaks := w.speaks(f)
	if speaks && w.failed != nil {
		w.failed(f)
	}
	return &Ended{f, f.Code, !speaks}
}

func (w *World) close() {
	for _, group := range w.groups {
		group.Close()
	}
	close(w.over)
	w.watching.Wait()
	w.members.close()
	w.cancel(nil)
}

// Rank of this process, from 0.
func (w *World) Rank() int { return w.Place.Rank }

// Size of the world in processes.
func (w *World) Size() int { return w.Place.Size }

// Processes of the run, with those of other parts ([World.Part]).
func (w *World) Processes() int { return w.config.WorldSize }

// Writes reports whether this process writes the run's files and speaks for it.
func (w *World) Writes() bool { return w.Rank() == 0 }

// Group is the process group of the world's ranks; nil for a process alone.
func (w *World) Group() *torch.Group { return w.group }
