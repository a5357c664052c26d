package ranks

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// Identity is what ranks must have in common, and who one of them is.
type Identity struct {
	Rank    int    `json:"rank"`
	Size    int    `json:"size"`
	Version string `json:"version"` // of the program
	Config  string `json:"config"`  // hash of the resolved configuration
	Host    string `json:"host"`
	PID     int    `json:"pid"`
}

// Failure is why a run ended.
type Failure struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host"`
	Cause string `json:"cause"`
	Code  int    `json:"code"` // the exit code of the run
}

func (f *Failure) Error() string {
	host := ""
	if f.Host != "" {
		host = " on " + f.Host
	}
	return fmt.Sprintf("rank %d%s: %s", f.Rank, host, f.Cause)
}

// ExitCode of every rank.
func (f *Failure) ExitCode() int { return f.Code }

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

// beats is how often a sign of life is given.
const beats = time.Second

// server is the rendezvous of one run.
type server struct {
	address   string
	token     string
	expected  Identity // of every rank, but for rank, host and process
	deadlines Deadlines
	explain   func(who Identity, err error) string // why a rank's connection broke
	listener  net.Listener
	running   sync.WaitGroup
	done      chan struct{} // closed by close

	mu       sync.Mutex
	half     []net.Conn // that have not proved themselves, the oldest first
	members  map[int]*member
	store    map[string][]byte
	waiting  map[string][]request // by key
	failure  *Failure
	failed   chan struct{} // closed with failure set
	gathered time.Time     // when the last rank joined; zero before
}

// member is a rank that has joined.
type member struct {
	Identity
	conn  net.Conn
	write sync.Mutex
	seen  time.Time
	phase string
	share float64
	left  bool // it said goodbye
}

type request struct {
	from *member
	id   uint64
}

// serve opens a rendezvous on an address whose port may be 0.
func serve(address, token string, expected Identity, d Deadlines, explain func(Identity, error) string) (*server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("the rendezvous of the ranks: %w", err)
	}
	s := &server{address: listener.Addr().String(), token: token, expected: expected, deadlines: d.filled(), explain: explain, listener: listener, done: make(chan struct{}),
		members: map[int]*member{}, store: map[string][]byte{}, waiting: map[string][]request{}, failed: make(chan struct{})}
	s.running.Go(s.accept)
	s.running.Go(s.watch)
	return s, nil
}

// close ends the rendezvous and every connection to it.
func (s *server) close() {
	s.mu.Lock()
	select {
	case <-s.done:
		s.mu.Unlock()
		return
	default:
	}
	close(s.done)
	s.listener.Close()
	for _, c := range s.half {
		c.Close()
	}
	for _, m := range s.members {
		m.conn.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// drain waits for the other ranks to leave: those that have failed, or do not notice, for no longer than the grace.
func (s *server) drain() {
	var limit <-chan time.Time
	tick := time.NewTicker(beats / 50)
	defer tick.Stop()
	for {
		s.mu.Lock()
		staying := false
		for _, m := range s.members {
			staying = staying || !m.left
		}
		if limit == nil && s.failure != nil {
			limit = time.After(s.deadlines.Grace)
		}
		s.mu.Unlock()
		if !staying {
			return
		}
		select {
		case <-limit:
			return
		case <-tick.C:
		}
	}
}

func (s *server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			select {
			case <-s.done:
				return
			case <-time.After(50 * time.Millisecond): // out of descriptors, perhaps: strangers' connections end by their deadline
				continue
			}
		}
		s.mu.Lock()
		if len(s.half) >= mostOpen {
			s.half[0].Close()
			s.half = s.half[1:]
		}
		s.half = append(s.half, c)
		s.mu.Unlock()
		s.running.Go(func() { s.talk(c) })
	}
}

// settle takes a connection out of those that have not proved themselves.
func (s *server) settle(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, x := range s.half {
		if x == c {
			s.half = append(s.half[:i:i], s.half[i+1:]...)
			return
		}
	}
}

// talk is one connection's life.
func (s *server) talk(c net.Conn) {
	defer c.Close()
	err := admit(c, s.token)
	var first message
	if err == nil {
		c.SetReadDeadline(time.Now().Add(handshake))
		first, err = receive(c)
		c.SetReadDeadline(time.Time{})
	}
	s.settle(c)
	if err != nil || first.Op != opJoin || first.Identity == nil {
		return // a stranger
	}
	m := &member{Identity: *first.Identity, conn: c, seen: time.Now()}
	if refused := s.join(m); refused != nil {
		m.send(message{Op: opReply, ID: first.ID, Error: refused.Error()})
		return
	}
	m.send(message{Op: opReply, ID: first.ID})
	for {
		msg, err := receive(c)
		if err != nil {
			s.lost(m, err)
			return
		}
		s.take(m, msg)
	}
}

func (m *member) send(msg message) {
	m.write.Lock()
	defer m.write.Unlock()
	if send(m.conn, msg) != nil {
		m.conn.Close() // the reader finds out
	}
}

// join admits a rank, or says why not, which ends the run.
func (s *server) join(m *member) error {
	cause := ""
	e := s.expected
	s.mu.Lock()
	before, taken := s.members[m.Rank]
	select {
	case <-s.done:
		s.mu.Unlock()
		return fmt.Errorf("the run is over")
	default:
	}
	switch {
	case m.Size != e.Size:
		cause = fmt.Sprintf("it takes part in a run of %d ranks, expected %d: give every rank the same world size", m.Size, e.Size)
	case m.Rank < 0 || m.Rank >= e.Size:
		cause = fmt.Sprintf("ranks count from 0 to %d", e.Size-1)
	case taken:
		cause = fmt.Sprintf("two processes have this rank: %d on %s and %d on %s", before.PID, before.Host, m.PID, m.Host)
	case m.Version != e.Version:
		cause = fmt.Sprintf("it is gyre %s, expected %s: install the same build on every machine", m.Version, e.Version)
	case m.Config != e.Config:
		cause = fmt.Sprintf("its configuration has the hash %.12s, expected %.12s: give every rank the same file, overrides and flags", m.Config, e.Config)
	default:
		s.members[m.Rank] = m
		if len(s.members) == e.Size {
			s.gathered = time.Now()
		}
	}
	s.mu.Unlock()
	if cause == "" {
		if failure := s.failedWith(); failure != nil {
			m.send(message{Op: opEnd, Failure: failure})
		}
		return nil
	}
	failure := &Failure{Rank: m.Rank, Host: m.Host, Cause: cause, Code: 1}
	s.fail(failure)
	return failure
}

// take handles one message of a rank.
func (s *server) take(m *member, msg message) {
	s.mu.Lock()
	m.seen = time.Now()
	reply := message{Op: opReply, ID: msg.ID}
	var woken []request
	var failure *Failure
	switch msg.Op {
	case opBeat:
		m.phase, m.share = msg.Phase, msg.Share
		reply = message{Op: opBeat, Phase: msg.Phase, Share: s.slowest(msg.Phase)}
	case opSet, opAdd:
		if _, known := s.store[msg.Key]; !known && len(s.store) >= mostStored {
			reply.Error = fmt.Sprintf("the store is full (%d keys)", mostStored)
			break
		}
		if msg.Op == opAdd {
			n := int64(0)
			fmt.Sscan(string(s.store[msg.Key]), &n)
			reply.N = n + msg.N
			msg.Value = fmt.Append(nil, reply.N)
		}
		s.store[msg.Key] = msg.Value
		woken = s.waiting[msg.Key]
		delete(s.waiting, msg.Key)
	case opGet:
		value, ok := s.store[msg.Key]
		if !ok {
			s.waiting[msg.Key] = append(s.waiting[msg.Key], request{m, msg.ID})
			s.mu.Unlock()
			return
		}
		reply.Value = value
	case opBye:
		m.left = true
	case opFail:
		if msg.Failure != nil {
			failure = &Failure{Rank: m.Rank, Host: m.Host, Cause: msg.Failure.Cause, Code: msg.Failure.Code}
		}
	default:
		reply.Error = fmt.Sprintf("unknown request %q", msg.Op)
	}
	value := s.store[msg.Key]
	s.mu.Unlock()
	for _, r := range woken {
		r.from.send(message{Op: opReply, ID: r.id, Value: value})
	}
	m.send(reply)
	if failure != nil {
		s.fail(failure)
	}
}

// slowest is the least share of a phase that any rank has done; a rank that is not there yet has done nothing of it. The caller holds mu.
func (s *server) slowest(phase string) float64 {
	least := 1.0
	if len(s.members) < s.expected.Size {
		return 0
	}
	for _, m := range s.members {
		share := m.share
		if m.phase != phase {
			share = 0
		}
		least = min(least, share)
	}
	return least
}

// lost is a rank whose connection broke.
func (s *server) lost(m *member, err error) {
	s.mu.Lock()
	left := m.left
	s.mu.Unlock()
	select {
	case <-s.done:
		return
	default:
	}
	s.mu.Lock()
	m.left = true
	s.mu.Unlock()
	if !left {
		cause := s.explain(m.Identity, err)
		s.fail(&Failure{Rank: m.Rank, Host: m.Host, Cause: cause, Code: 1})
	}
}

// explainLost says what can be said of a process on another machine.
func explainLost(_ Identity, err error) string {
	if text := err.Error(); strings.Contains(text, "EOF") || strings.Contains(text, "reset") {
		return "its process ended without a word (killed, or out of memory?)"
	}
	return fmt.Sprintf("its connection broke: %v", err)
}

// fail ends the run: the first failure counts, and every rank is told.
func (s *server) fail(f *Failure) {
	s.mu.Lock()
	if s.failure != nil {
		s.mu.Unlock()
		return
	}
	s.failure = f
	close(s.failed)
	select {
	case <-s.done:
	default:
		for _, m := range s.members {
			s.running.Go(func() { m.send(message{Op: opEnd, Failure: f}) })
		}
	}
	s.mu.Unlock()
}

func (s *server) failedWith() *Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// watch ends the run when ranks do not come or fall silent.
func (s *server) watch() {
	tick := time.NewTicker(beats)
	defer tick.Stop()
	begun, last := time.Now(), time.Now()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		// After a pause of this process itself (SIGSTOP, a machine that slept) the others' signs of life are still unread.
		paused := time.Since(last) > 3*beats
		last = time.Now()
		if f := s.overdue(begun, paused); f != nil {
			s.fail(f)
		}
	}
}

func (s *server) overdue(begun time.Time, paused bool) *Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gathered.IsZero() && time.Since(begun) > s.deadlines.Join {
		for rank := range s.expected.Size {
			if s.members[rank] == nil {
				return &Failure{Rank: rank, Cause: fmt.Sprintf("it did not come within %v: was it started, and does it reach %s?", s.deadlines.Join, s.address), Code: 1}
			}
		}
	}
	for _, m := range s.members {
		if paused {
			m.seen = time.Now()
		}
		if !m.left && time.Since(m.seen) > s.deadlines.Beat {
			return &Failure{Rank: m.Rank, Host: m.Host, Cause: fmt.Sprintf("no sign of life for %v: process %d hangs or was stopped", s.deadlines.Beat, m.PID), Code: 1}
		}
	}
	return nil
}

// wait gives the failure of the run, nil when ctx ends first.
func (s *server) wait(ctx context.Context) *Failure {
	select {
	case <-s.failed:
		return s.failedWith()
	case <-ctx.Done():
		return nil
	}
}
