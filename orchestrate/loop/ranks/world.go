package ranks

import (
	"context"
	"errors"
	"fmt"
	"net"
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

	groups    torch.GroupConfig // how it was opened
	team      *torch.Group      // of the ranks that sample together; see Team
	who       Identity
	client    *client
	server    *server // on the rank that holds the rendezvous, unless a launcher of ours does
	meeting   meeting
	deadlines Deadlines
	cancel    context.CancelCauseFunc
	exit      func(code int)
	failed    func(*Failure)
	watching  sync.WaitGroup
	over      chan struct{}
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
		return ctx, nil, fmt.Errorf("%v: ranks on other machines cannot reach loopback: set fsdp.bind to the address or the name of the network interface that joins them (eth0, ib0)", p)
	}
	host, _ := os.Hostname()
	w := &World{Place: p, deadlines: o.Deadlines.filled(), exit: os.Exit, failed: o.Failed, over: make(chan struct{}),
		who: Identity{Rank: p.Rank, Size: p.Size, Version: o.Version, Config: o.Config, Host: host, PID: os.Getpid()}}
	joining, cancel := context.WithTimeoutCause(ctx, w.deadlines.Join, fmt.Errorf("gave up after %v", w.deadlines.Join))
	defer cancel()
	if err := w.open(joining, bind, o); err != nil {
		if failure := w.failure(); failure != nil {
			err = w.ended(failure)
		} else if w.client != nil && !errors.Is(err, context.Canceled) { // it has joined: the run is told why it does not come
			w.client.fail(err.Error(), 1)
			err = w.ended(&Failure{Rank: p.Rank, Host: host, Cause: err.Error(), Code: 1})
		}
		w.close()
		return ctx, nil, err
	}
	ctx, w.cancel = context.WithCancelCause(ctx)
	w.watching.Go(w.watch)
	return ctx, w, nil
}

func (w *World) open(ctx context.Context, bind string, o Options) (err error) {
	address, token := w.Address, w.Token
	silence := time.Duration(0)
	if w.Launcher != "gyre" {
		silence = w.deadlines.Beat
		if address, token, err = w.find(ctx, bind, o.Folder); err != nil {
			return err
		}
	}
	if w.client, err = dial(ctx, address, token, w.who, silence); err != nil {
		return err
	}
	w.groups = torch.GroupConfig{Rank: w.Place.Rank, WorldSize: w.Place.Size, Store: w.client, Prefix: "run", Backend: o.Backend, Bind: bind, Timeout: o.Timeout}
	if w.Group, err = torch.OpenGroup(ctx, w.groups); err != nil {
		return fmt.Errorf("the process group: %w", err)
	}
	return nil
}

// find opens the rendezvous on rank 0 and finds it on the others.
func (w *World) find(ctx context.Context, bind, folder string) (address, token string, err error) {
	if w.meeting, err = w.meet(ctx, folder); err != nil {
		return "", "", err
	}
	if w.Place.Rank > 0 {
		return w.meeting.find(ctx)
	}
	port := "0"
	if token = w.Token; w.Address != "" {
		_, port, _ = net.SplitHostPort(w.Address)
	}
	if token == "" {
		token = NewToken()
	}
	if w.server, err = serve(net.JoinHostPort(bind, port), token, w.who, w.deadlines, explainLost); err != nil {
		return "", "", err
	}
	return w.server.address, token, w.meeting.publish(ctx, w.server.address, token)
}

// watch ends this process's part when the run has failed elsewhere: collectives are given up, the context ends, and what does not end by itself
// within the grace is ended.
func (w *World) watch() {
	select {
	case <-w.over:
		return
	case <-w.client.ended:
	}
	w.cancel(w.failure())
	w.Group.Abort()
	select {
	case <-w.over:
	case <-time.After(w.deadlines.Grace):
		if w.speaks() {
			w.tell(w.failure())
			fmt.Fprintf(os.Stderr, "gyre: %v\n", w.failure())
		}
		w.exit(w.failure().Code)
	}
}

// failure is the one that ended the run, nil while there is none.
func (w *World) failure() *Failure {
	if w == nil || w.client == nil {
		return nil
	}
	select {
	case <-w.client.ended:
		return w.client.failure
	default:
		return nil
	}
}

// Cause is why a rank's work ended with err: the failure of another rank, where there is one, or err itself.
func (w *World) Cause(err error) error {
	if err == nil || w == nil {
		return err
	}
	// The failure of another rank shows in the collectives at once, but its message may still be on its way.
	if errors.Is(err, torch.ErrDisconnected) || errors.Is(err, context.Canceled) {
		select {
		case <-w.client.ended:
		case <-time.After(3 * beats):
		}
	}
	if f := w.failure(); f != nil && f.Rank != w.Place.Rank {
		return f
	}
	return err
}

// speaks reports whether this rank says why the run failed: exactly one does. Of a failed rank 0 the next one speaks.
func (w *World) speaks() bool {
	return w.Launcher != "gyre" && (w.server != nil || w.Place.Rank == 1 && w.failure() != nil && w.failure().Rank == 0)
}

// Ended is the end of a run over ranks.
type Ended struct {
	Err  error
	Code int
	Told bool // somebody else says it
}

func (e *Ended) Error() string { return e.Err.Error() }
func (e *Ended) Unwrap() error { return e.Err }

// ExitCode of this process.
func (e *Ended) ExitCode() int { return e.Code }

// Conclude ends this rank's part with its result, in which code is the exit code that err would have alone. An end that all ranks come to together
// (agreed) is not a failure of this one.
func (w *World) Conclude(err error, code int, agreed bool) error {
	if w == nil {
		return err
	}
	defer w.close()
	if err == nil || agreed {
		w.client.leave()
		if err == nil {
			return nil
		}
		return &Ended{err, code, w.Place.Rank != 0}
	}
	err = w.Cause(err)
	failure, _ := err.(*Failure)
	if failure == nil {
		w.client.fail(err.Error(), code)
		failure = &Failure{Rank: w.Place.Rank, Host: w.who.Host, Cause: err.Error(), Code: code}
		if first := w.failure(); first != nil {
			failure = first // others had failed before
		}
	}
	return w.ended(failure)
}

// ended is the end of this process's part in a failed run.
func (w *World) ended(f *Failure) *Ended {
	if !w.speaks() {
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
	select {
	case <-w.over:
	default:
		close(w.over)
	}
	w.team.Close()
	w.Group.Close()
	if w.client != nil {
		w.client.close()
	}
	if w.server != nil {
		w.server.drain()
		w.server.close()
	}
	if w.meeting != nil {
		w.meeting.close()
	}
	w.watching.Wait()
	if w.cancel != nil {
		w.cancel(nil)
	}
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
	return w.client.progress(phase, share)
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
