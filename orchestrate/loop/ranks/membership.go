package ranks

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
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

// Deadlines of a run. The zero value of a field is the usual one.
type Deadlines struct {
	Join  time.Duration // for all ranks to come together
	Beat  time.Duration // without a sign of life
	Grace time.Duration // for a rank to end by itself once the run has failed
}

func (d Deadlines) filled() Deadlines {
	for _, x := range []struct {
		value *time.Duration
		usual time.Duration
	}{{&d.Join, 3 * time.Minute}, {&d.Beat, 15 * time.Second}, {&d.Grace, 8 * time.Second}} {
		if *x.value == 0 {
			*x.value = x.usual
		}
	}
	return d
}

const (
	round  = 500 * time.Millisecond // how often a rank looks for the failure of the run
	beats  = 4                      // rounds from one sign of life to the next
	answer = 5 * time.Second        // in which a store that is there answers
)

// Keys of the store, below the prefix of the run. A rank's follow with its number.
const (
	keyTaken   = "taken/"  // counter of the processes that have this rank
	keyRank    = "rank/"   // identity
	keyReady   = "ready"   // all ranks have come: their identities
	keyBeat    = "beat/"   // sign
	keyFailed  = "failed"  // counter of reports of a failure: the first is the run's
	keyFailure = "failure" // Failure
)

// sign is a sign of life: what a rank is doing. Each differs from the one before.
type sign struct {
	Number int     `json:"n"`
	Phase  string  `json:"phase"`
	Share  float64 `json:"share"`
	Left   bool    `json:"left,omitempty"` // it has done its part
}

// membership is one rank's place in the run: it says that this rank lives, and watches that rank 0 does; rank 0
// watches all others.
type membership struct {
	*rendezvous
	who       identity
	deadlines Deadlines
	failed    context.Context // ends with the run's *Failure as its cause
	end       context.CancelCauseFunc
	closed    chan struct{}
	running   sync.WaitGroup // that asks the store

	all []identity // of the run, once all ranks have come

	mu       sync.Mutex // of everything below; what others point to belongs to keepUp
	others   []*watched // the ranks that this one watches
	answered time.Time  // when the store last did
	mine     sign
	slowest  sign // of all ranks in this one's phase; rank 0 alone knows
}

// watched is a rank as another sees it.
type watched struct {
	identity
	last string
	sign
	seen time.Time
}

func newMembership(r *rendezvous, who identity, d Deadlines) *membership {
	m := &membership{rendezvous: r, who: who, deadlines: d.filled(), closed: make(chan struct{}), answered: time.Now()}
	m.failed, m.end = context.WithCancelCause(context.Background())
	return m
}

// failure is the one that ended the run, nil while there is none.
func (m *membership) failure() *Failure {
	f, _ := context.Cause(m.failed).(*Failure)
	return f
}

// join waits until all ranks are here.
func (m *membership) join(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(m.failed, func() { stop(context.Cause(m.failed)) })()
	me := strconv.Itoa(m.who.Rank)
	n, err := m.keys.Add(m.prefix+keyTaken+me, 1)
	switch first := (identity{}); {
	case err != nil:
		return err
	case n > 1:
		if err = m.get(ctx, keyRank+me, &first); err != nil {
			return err
		}
		return m.report(m.who, fmt.Sprintf("two processes have this rank: %d on %s and %d on %s",
			first.PID, first.Host, m.who.PID, m.who.Host))
	}
	if err := m.set(keyRank+me, m.who); err != nil {
		return err
	}
	m.running.Go(m.keepUp)
	zero, err := m.await(ctx, 0)
	if err != nil {
		return err
	}
	if m.who.Rank > 0 {
		if cause := m.who.mismatch(zero); cause != "" {
			return m.report(m.who, cause)
		}
		m.watch([]identity{zero}) // which waits for the others, and says who does not come
		if err := m.get(ctx, keyReady, &m.all); err != nil {
			return err
		}
		return nil
	}
	m.all = []identity{zero}
	for rank := 1; rank < m.who.Size; rank++ {
		other, err := m.await(ctx, rank)
		if err != nil {
			return err
		}
		if cause := other.mismatch(zero); cause != "" {
			return m.report(other, cause)
		}
		m.all = append(m.all, other)
		m.watch(m.all[rank:])
	}
	return m.set(keyReady, m.all)
}

// await gives a rank's identity when it comes.
func (m *membership) await(ctx context.Context, rank int) (who identity, err error) {
	within, cancel := context.WithTimeout(ctx, m.deadlines.Join)
	defer cancel()
	err = m.get(within, keyRank+strconv.Itoa(rank), &who)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		cause := fmt.Sprintf("it did not come within %v: was it started, and does it reach %s?",
			m.deadlines.Join, m.address)
		return who, m.report(identity{Rank: rank}, cause)
	}
	return who, err
}

func (m *membership) watch(others []identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range others {
		m.others = append(m.others, &watched{identity: other, seen: time.Now()})
	}
}

// report is fail, by this rank.
func (m *membership) report(who identity, cause string) *Failure {
	return m.fail(&Failure{Rank: who.Rank, Host: who.Host, Cause: cause, Code: 1, By: m.who.Rank})
}

func (m *membership) set(key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return m.keys.Set(m.prefix+key, text)
}

func (m *membership) get(ctx context.Context, key string, value any) error {
	text, err := m.keys.Get(ctx, m.prefix+key)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, value)
}

// find is get for what may not be there.
func (m *membership) find(key string, value any) (text string, err error) {
	found, err := m.keys.Find(m.prefix + key)
	if err == nil && found != nil {
		err = json.Unmarshal(found, value)
	}
	return string(found), err
}

// keepUp asks the store until the run has failed or this rank has left.
func (m *membership) keepUp() {
	tick := time.NewTicker(round)
	defer tick.Stop()
	for n := 0; ; n++ {
		if err := m.ask(n); err != nil {
			m.storeGone(err.Error())
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
func (m *membership) ask(n int) error {
	m.mu.Lock()
	now := time.Now()
	// this process was stopped, or its machine slept: what others said is unread
	paused := now.Sub(m.answered) > beats*round
	m.answered = now
	m.mine.Number = n
	mine, others := m.mine, m.others
	m.mu.Unlock()
	if paused {
		for _, other := range others {
			other.seen = now
		}
	}
	failure := &Failure{}
	if text, err := m.find(keyFailure, failure); err != nil || text != "" {
		if err == nil {
			m.end(failure)
		}
		return err
	}
	if n%beats != 0 {
		return nil
	}
	if err := m.set(keyBeat+strconv.Itoa(m.who.Rank), mine); err != nil {
		return err
	}
	slowest := mine
	for _, other := range others {
		text, err := m.find(keyBeat+strconv.Itoa(other.Rank), &other.sign)
		if err != nil {
			return err
		}
		if text != other.last {
			other.last, other.seen = text, time.Now()
		}
		if other.Phase != mine.Phase {
			slowest.Share = 0
		}
		slowest.Share = min(slowest.Share, other.Share)
		if !other.Left && time.Since(other.seen) > m.deadlines.Beat {
			m.report(other.identity, fmt.Sprintf("no sign of life for %v: process %d hangs, was stopped or has ended",
				m.deadlines.Beat, other.PID))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slowest = slowest
	return nil
}

// storeGone ends the run for this rank alone: there is nowhere to report to.
func (m *membership) storeGone(why string) {
	select {
	case <-m.closed:
		return
	default:
	}
	f := &Failure{Rank: m.who.Rank, Host: m.who.Host, Code: 1, By: m.who.Rank,
		Cause: fmt.Sprintf("the store of the run at %s does not answer: %s", m.address, why)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ofZero && m.who.Rank > 0 && len(m.others) > 0 {
		f.Rank, f.Host = 0, m.others[0].Host
		f.Cause = fmt.Sprintf("its store at %s does not answer: its process has ended or hangs, or its machine "+
			"cannot be reached (%s)", m.address, why)
	}
	m.end(f)
}

// fail reports a failure, and gives the one that the run ends with: the first that anybody has reported.
func (m *membership) fail(f *Failure) *Failure {
	within(answer, func() {
		n, err := m.keys.Add(m.prefix+keyFailed, 1)
		if err == nil && n == 1 {
			m.set(keyFailure, f)
			return
		}
		var first Failure
		ctx, cancel := context.WithTimeout(m.failed, answer)
		defer cancel()
		if err == nil && m.get(ctx, keyFailure, &first) == nil {
			m.end(&first)
		}
	})
	m.end(f)
	return m.failure()
}

// close says that this rank has done its part. One whose store it is waits for the others to leave; after a failure
// for no longer than the grace.
func (m *membership) close() {
	if m.owned {
		m.drain()
	}
	close(m.closed)
	within(answer, func() {
		m.running.Wait()
		m.set(keyBeat+strconv.Itoa(m.who.Rank), sign{Left: true})
		m.rendezvous.close()
	})
	m.end(nil)
}

func (m *membership) drain() {
	var limit <-chan time.Time
	for rank := 1; rank < m.who.Size; rank++ {
		for left := false; !left; {
			f := m.failure()
			if f != nil && limit == nil {
				limit = time.After(m.deadlines.Grace)
			}
			var last sign
			_, err := m.find(keyBeat+strconv.Itoa(rank), &last)
			left = err != nil || last.Left || f != nil && f.Rank == rank && f.By != rank // which was found dead
			select {
			case <-limit:
				return
			case <-time.After(round / 20):
			}
		}
	}
}

// within waits for f, for so long at most: a store whose process was stopped answers nothing.
func within(limit time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// overdue reports that the store has not answered for too long. A gap in the caller's own clock is no silence.
func (m *membership) overdue(paused bool) {
	m.mu.Lock()
	if paused {
		m.answered = time.Now()
	}
	silent := time.Since(m.answered) > m.deadlines.Beat
	m.mu.Unlock()
	if silent {
		m.storeGone(fmt.Sprintf("no answer for %v", m.deadlines.Beat))
	}
}

// progress records how much of a phase this rank has done. Rank 0 is given the share of the slowest rank, 0 while
// that is not known; others their own.
func (m *membership) progress(phase string, share float64) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mine.Phase, m.mine.Share = phase, share
	switch {
	case m.who.Rank > 0:
		return share
	case m.slowest.Phase != phase:
		return 0
	}
	return min(share, m.slowest.Share)
}
