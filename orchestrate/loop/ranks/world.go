package ranks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"gyre/torch"
)

// World is a run as one of its ranks sees it. A nil *World is a run of one process.
type World struct {
	Place
	Group *torch.Group

	groups   torch.GroupConfig // how it was opened
	team     *torch.Group      // of the ranks that are tensor parallel; see Team
	opening  sync.Mutex        // held while Group and team are set, and while watch reads them
	members  *membership
	cancel   context.CancelCauseFunc
	exit     func(code int)
	failed   func(*Failure)
	watching sync.WaitGroup
	over     chan struct{}
}

// Options say how ranks find and judge one another.
type Options struct {
	Version, Config string        // must be equal on all ranks
	Bind            string        // address or interface; loopback when empty
	Folder          string        // that all ranks see
	Backend         string        // of the process group: gloo, nccl
	Timeout         time.Duration // of collectives
	Deadlines       Deadlines
	Failed          func(*Failure) // called on the rank that says why the run failed
}

// Join takes this process into its run. The context that it returns ends when another rank fails; Conclude must follow.
func Join(ctx context.Context, p Place, o Options) (context.Context, *World, error) {
	bind, err := resolve(o.Bind)
	if err != nil {
		return ctx, nil, err
	}
	if o.Bind == "" && p.LocalSize > 0 && !p.Alone() {
		return ctx, nil, fmt.Errorf("%v: ranks on other machines cannot reach loopback: set fsdp.bind to the address "+
			"or the name of the network interface that joins them (eth0, ib0)", p)
	}
	d := o.Deadlines.filled()
	opening, cancel := context.WithTimeoutCause(ctx, d.Join, fmt.Errorf("gave up after %v", d.Join))
	defer cancel()
	store, err := openRendezvous(opening, p, bind, o.Folder)
	if err != nil {
		return ctx, nil, err
	}
	who := identity{Rank: p.Rank, Size: p.Size, Version: o.Version, Config: o.Config, Host: hostname(),
		PID: os.Getpid()}
	w := &World{Place: p, members: newMembership(store, who, o.Deadlines), exit: os.Exit, failed: o.Failed,
		over: make(chan struct{}),
		groups: torch.GroupConfig{Rank: p.Rank, WorldSize: p.Size, Store: store.groups, Prefix: store.prefix + "run/",
			Backend: o.Backend, Bind: bind, Timeout: o.Timeout}}
	ctx, w.cancel = context.WithCancelCause(ctx)
	w.watching.Go(w.watch)
	if err := w.open(ctx); err != nil {
		if failure := w.members.failure(); failure != nil {
			err = w.ended(failure)
		} else if !errors.Is(err, context.Canceled) { // the run is told why this rank does not come
			err = w.ended(w.members.report(who, err.Error()))
		}
		w.close()
		return ctx, nil, err
	}
	return ctx, w, nil
}

func (w *World) open(ctx context.Context) (err error) {
	if err = w.members.join(ctx); err != nil {
		return err
	}
	if err = w.openGroup(ctx, w.groups, &w.Group); err != nil {
		return fmt.Errorf("the process group: %w", err)
	}
	return nil
}

func (w *World) openGroup(ctx context.Context, config torch.GroupConfig, to **torch.Group) error {
	group, err := torch.OpenGroup(ctx, config)
	w.opening.Lock()
	defer w.opening.Unlock()
	if *to = group; w.members.failure() != nil {
		group.Abort("the run has failed")
	}
	return err
}

// watch ends this process's part when the run has failed elsewhere: collectives are given up, the context ends, and
// what does not end by itself within the grace is ended.
func (w *World) watch() {
	tick := time.NewTicker(round)
	defer tick.Stop()
	for last := time.Now(); w.members.failure() == nil; last = time.Now() {
		select {
		case <-w.over:
			return
		case <-w.members.failed.Done():
		case <-tick.C:
			w.members.overdue(time.Since(last) > beats*round)
		}
	}
	failure := w.members.failure()
	w.cancel(failure) // which aborts the collectives that wait with it
	w.abort(failure.Error())
	select {
	case <-w.over:
	case <-time.After(w.members.deadlines.Grace):
		if w.speaks(failure) {
			w.tell(failure)
			fmt.Fprintf(os.Stderr, "gyre: %v\n", failure)
		}
		w.exit(failure.Code)
	}
}

// abort gives the collectives of all groups up: those inside a model's passes have no context.
func (w *World) abort(reason string) {
	w.opening.Lock()
	defer w.opening.Unlock()
	w.Group.Abort(reason)
	w.team.Abort(reason)
}

// Cause is why a rank's work ended with err: the failure of another rank, where there is one, or err itself.
func (w *World) Cause(err error) error {
	if err == nil || w == nil {
		return err
	}
	// The failure of another rank shows in the collectives at once, but its report may still be on its way.
	disconnected := errors.Is(err, torch.ErrDisconnected)
	if disconnected || errors.Is(err, context.Canceled) {
		select {
		case <-w.members.failed.Done():
		case <-time.After(reportTime):
		}
	}
	f := w.members.failure()
	if lost := w.lost(); f == nil && disconnected && lost >= 0 { // nobody speaks for it
		f = w.members.report(w.members.all[lost], fmt.Sprintf("its process has ended without a word (killed, or out "+
			"of memory?) or hangs: %v", err))
	}
	if f != nil && f.Rank != w.Place.Rank {
		return f
	}
	return err
}

// reportTime is how long the report of a failure may be on its way to this rank.
const reportTime = 3 * time.Second

// lost is the rank whose end or silence this one has met in a collective, -1 while there is none.
func (w *World) lost() int {
	if lost := w.Group.Lost(); lost >= 0 {
		return lost
	}
	if lost := w.team.Lost(); lost >= 0 {
		return w.Place.Rank - w.team.Rank() + lost
	}
	return -1
}

// speaks reports whether this rank says why the run failed. Of those that were in it exactly one does: rank 0, or the
// next one of a rank 0 that cannot. A rank that does not fit says so itself as well.
func (w *World) speaks(f *Failure) bool {
	switch {
	case w.Launcher == "gyre":
		return false
	case w.Place.Rank == 0, w.Group == nil && f.Rank == w.Place.Rank:
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
	if w == nil {
		return err
	}
	defer w.close()
	if err == nil || agreed {
		if err == nil {
			return nil
		}
		return &Ended{err, code, w.Place.Rank != 0}
	}
	err = w.Cause(err)
	failure, _ := err.(*Failure)
	if failure == nil {
		who := w.members.who
		failure = w.members.fail(&Failure{Rank: who.Rank, Host: who.Host, Cause: err.Error(), Code: code, By: who.Rank})
	}
	return w.ended(failure)
}

// ended is the end of this process's part in a failed run.
func (w *World) ended(f *Failure) *Ended {
	if !w.speaks(f) {
		return &Ended{f, f.Code, true}
	}
	w.tell(f)
	return &Ended{f, f.Code, false}
}

func (w *World) tell(f *Failure) {
	if w.failed != nil {
		w.failed(f)
	}
}

func (w *World) close() {
	w.team.Close()
	w.Group.Close()
	close(w.over)
	w.watching.Wait()
	w.members.close()
	w.cancel(nil)
}

// Rank of this process; 0 in a run of one.
func (w *World) Rank() int {
	if w == nil {
		return 0
	}
	return w.Place.Rank
}

// Size of the run in processes.
func (w *World) Size() int {
	if w == nil {
		return 1
	}
	return w.Place.Size
}

// RanksHere is how many of the run's processes are on this machine, as far as anybody tells; 1 in a run of one.
func (w *World) RanksHere() int {
	if w == nil {
		return 1
	}
	return max(w.LocalSize, 1)
}

// Writes reports whether this process writes the run's files and speaks for it.
func (w *World) Writes() bool { return w.Rank() == 0 }

// Data is the process group, nil in a run of one.
func (w *World) Data() *torch.Group {
	if w == nil {
		return nil
	}
	return w.Group
}

// Progress tells how much of a phase this rank has done and gives the share that the slowest rank has.
func (w *World) Progress(phase string, share float64) float64 {
	if w == nil {
		return share
	}
	return w.members.progress(phase, share)
}

// Describe is one line about the run for its log.
func (w *World) Describe() string {
	if w == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d ranks, started by %s", w.Place.Size, w.Launcher)
	if w.Place.LocalSize > 0 && !w.Alone() {
		fmt.Fprintf(&b, ", %d on this machine", w.LocalSize)
	}
	return b.String()
}
