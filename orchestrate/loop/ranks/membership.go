package ranks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// identity is what ranks must have in common, and who one of them is.
type identity struct {
	Rank    int    `json:"rank"`
	Size    int    `json:"size"`
	Version string `json:"version"` // of the program
	Config  string `json:"config"`  // hash of the resolved configuration
	Host    string `json:"host"`
	PID     int    `json:"pid"`
}

// mismatch is what keeps a rank out of the run that rank 0 is in, "" if nothing does.
func (i identity) mismatch(zero identity) string {
	switch {
	case i.Size != zero.Size:
		return fmt.Sprintf("it takes part in a run of %d ranks, expected %d: give every rank the same world size",
			i.Size, zero.Size)
	case i.Version != zero.Version:
		return fmt.Sprintf("it is gyre %s, expected %s: install the same build on every machine",
			i.Version, zero.Version)
	case i.Config != zero.Config:
		return fmt.Sprintf("its configuration has the hash %.12s, expected %.12s: give every rank the same file, "+
			"overrides and flags", i.Config, zero.Config)
	}
	return ""
}

// Failure is why a run ended.
type Failure struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host"`
	Cause string `json:"cause"`
	Code  int    `json:"code"` // the exit code of the run
	By    int    `json:"by"`   // the rank that reported it, or byLauncher
}

// byLauncher marks what the launcher of ours has seen.
const byLauncher = -1

func (f *Failure) Error() string {
	host := ""
	if f.Host != "" {
		host = " on " + f.Host
	}
	return fmt.Sprintf("rank %d%s: %s", f.Rank, host, f.Cause)
}

// deadlines of a run.
type deadlines struct {
	join  time.Duration // for all ranks to come together
	beat  time.Duration // without a sign of life
	grace time.Duration // for a rank to end by itself once the run has failed
}

var usual = deadlines{join: 3 * time.Minute, beat: 15 * time.Second, grace: 8 * time.Second}

const (
	round      = 500 * time.Millisecond // how often a rank looks for the failure of the run
	beats      = 4                      // rounds from one sign of life to the next
	answerTime = 5 * time.Second        // in which a store that is there answers
)

// Keys of the store, below the prefix of the launch.
const keyFailure = "failure" // Failure

func keyRank(rank int) string { return "rank/" + strconv.Itoa(rank) } // identity
func keyBeat(rank int) string { return "beat/" + strconv.Itoa(rank) } // sign of life: a number that grows, or left

// left is the last sign of a rank that has done its part.
const left = -1

// membership is one rank's place in the run: it says that this rank lives, and watches that rank 0 does; rank 0
// watches all others.
type membership struct {
	*rendezvous
	who       identity
	deadlines deadlines
	failed    context.Context // ends with the run's *Failure as its cause
	end       context.CancelCauseFunc
	closed    chan struct{}
	running   sync.WaitGroup           // keepUp
	zero      atomic.Pointer[identity] // of rank 0, once it has come
}

// watched is a rank as another sees it.
type watched struct {
	identity
	beat int
	seen time.Time // when the beat was new
}

func newMembership(r *rendezvous, who identity, d deadlines) *membership {
	m := &membership{rendezvous: r, who: who, deadlines: d, closed: make(chan struct{})}
	m.failed, m.end = context.WithCancelCause(context.Background())
	return m
}

// failure is the one that ended the run, nil while there is none.
func (m *membership) failure() *Failure {
	f, _ := context.Cause(m.failed).(*Failure)
	return f
}

// fail reports a failure, and gives the one that the run ends with.
func (m *membership) fail(who identity, cause string, code int) *Failure {
	m.end(m.report(&Failure{Rank: who.Rank, Host: who.Host, Cause: cause, Code: code, By: m.who.Rank}))
	return m.failure()
}

var errLate = errors.New("a rank has not come in time")

// join waits until all ranks are here and fit together.
func (m *membership) join(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(m.failed, func() { stop(context.Cause(m.failed)) })()
	defer time.AfterFunc(m.deadlines.join, func() { stop(errLate) }).Stop()
	first, err := claim(m.rendezvous, keyRank(m.who.Rank), m.who)
	if err != nil {
		return err
	}
	if first != m.who {
		return m.fail(m.who, fmt.Sprintf("two processes have this rank: %d on %s and %d on %s",
			first.PID, first.Host, m.who.PID, m.who.Host), 1)
	}
	m.running.Go(m.keepUp)
	for rank := range m.who.Size {
		other := identity{Rank: rank}
		err := m.get(ctx, keyRank(rank), &other)
		if errors.Is(err, errLate) {
			return m.fail(other, fmt.Sprintf("it did not come within %v: was it started, and does it reach %s?",
				m.deadlines.join, m.address), 1)
		}
		if err != nil {
			return err
		}
		if rank == 0 {
			zero := other
			m.zero.Store(&zero)
			other = m.who // which finds out for itself first
		}
		if cause := other.mismatch(*m.zero.Load()); cause != "" {
			return m.fail(other, cause, 1)
		}
	}
	return nil
}

// keepUp asks the store until the run has failed or this rank has left.
func (m *membership) keepUp() {
	tick := time.NewTicker(round)
	defer tick.Stop()
	others := map[int]*watched{}
	for n, last := 0, time.Now(); ; n++ {
		if time.Since(last) > beats*round { // this process was stopped, or its machine slept
			clear(others)
		}
		last = time.Now()
		late := fmt.Errorf("no answer for %v", m.deadlines.beat)
		if err := within(m.deadlines.beat, late, func() error { return m.ask(n, others) }); err != nil {
			m.storeGone(err)
			return
		}
		select {
		case <-m.closed:
			return
		case <-m.failed.Done():
			return
		case <-tick.C:
		}
	}
}

// ask looks for the failure of the run; every so often it gives a sign of life and looks for those of others.
func (m *membership) ask(n int, others map[int]*watched) error {
	failure := new(Failure)
	if found, err := m.find(keyFailure, failure); found || err != nil {
		if err == nil {
			m.end(failure)
		}
		return err
	}
	if n%beats != 0 {
		return nil
	}
	if err := m.sign(n); err != nil {
		return err
	}
	first, end := 0, 1
	if m.who.Rank == 0 {
		first, end = 1, m.who.Size
	}
	for rank := first; rank < end; rank++ {
		var beat int
		found, err := m.find(keyBeat(rank), &beat)
		if err != nil {
			return err
		}
		other := others[rank]
		switch {
		case !found: // it comes, or join says that it does not
		case other == nil:
			other = &watched{beat: beat, seen: time.Now()}
			if _, err := m.find(keyRank(rank), &other.identity); err != nil {
				return err
			}
			others[rank] = other
		case other.beat != beat:
			other.beat, other.seen = beat, time.Now()
		case beat != left && time.Since(other.seen) > m.deadlines.beat:
			m.fail(other.identity, fmt.Sprintf("no sign of life for %v: process %d was killed or stopped, or hangs",
				m.deadlines.beat, other.PID), 1)
		}
	}
	return nil
}

func (m *membership) sign(beat int) error {
	return m.keys.Set(m.prefix+keyBeat(m.who.Rank), strconv.AppendInt(nil, int64(beat), 10))
}

// storeGone ends the run for this rank alone: there is nowhere to report to.
func (m *membership) storeGone(why error) {
	select {
	case <-m.closed:
		return
	default:
	}
	f := &Failure{Rank: m.who.Rank, Host: m.who.Host, Code: 1, By: m.who.Rank,
		Cause: fmt.Sprintf("the store of the run at %s does not answer: %v", m.address, why)}
	if zero := m.zero.Load(); m.ofZero && m.who.Rank > 0 && zero != nil {
		f.Rank, f.Host = 0, zero.Host
		f.Cause = fmt.Sprintf("its store at %s does not answer: its process has ended or hangs, or its machine "+
			"cannot be reached (%v)", m.address, why)
	}
	m.end(f)
}

// close says that this rank has done its part. One whose store it is waits for the others to leave.
func (m *membership) close() {
	if m.owned {
		m.drain()
	}
	close(m.closed)
	within(answerTime, nil, func() error {
		m.running.Wait()
		defer m.rendezvous.close()
		return m.sign(left)
	})
	m.end(nil)
}

// drain waits until the other ranks have left; after a failure for no longer than the grace.
func (m *membership) drain() {
	begun := time.Now()
	var limit <-chan time.Time
	for rank := 1; rank < m.who.Size; {
		f := m.failure()
		if f != nil && limit == nil {
			limit = time.After(m.deadlines.grace)
		}
		var beat int
		_, err := m.find(keyBeat(rank), &beat)
		found := f != nil && f.Rank == rank && f.By != rank // dead, or not to fit: then it reads that
		if err != nil || beat == left || found && time.Since(begun) > beats*round {
			rank++
			continue
		}
		select {
		case <-limit:
			return
		case <-time.After(round / 20):
		}
	}
}
