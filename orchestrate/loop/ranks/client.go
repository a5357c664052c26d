package ranks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// client is a rank's connection to the rendezvous. As a torch.Store it is what process groups are opened with.
type client struct {
	conn    net.Conn
	running sync.WaitGroup
	closed  chan struct{}
	ended   chan struct{} // closed with failure set: the run has failed
	silence time.Duration // without a sign of life of the server; 0 = it may be silent, and only a broken connection counts
	address string

	mu      sync.Mutex
	write   sync.Mutex
	next    uint64
	replies map[uint64]chan message
	failure *Failure
	seen    time.Time
	leaving bool
	phase   string // what this rank is busy with
	share   float64
	slowest float64 // share of the phase that the slowest rank has done
	asked   string  // phase that slowest is of
}

// dial connects to the rendezvous and joins; it tries again while nobody answers, until ctx ends.
func dial(ctx context.Context, address, token string, who Identity, silence time.Duration) (*client, error) {
	var dialer net.Dialer
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		c, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			if err = enter(c, token); err == nil {
				return join(ctx, c, address, who, silence)
			}
			c.Close()
		}
		if errors.Is(err, errToken) {
			return nil, fmt.Errorf("the rendezvous at %s: %w: give every rank the same %s", address, err, envToken)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the rendezvous at %s: %w (%w)", address, err, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

func join(ctx context.Context, conn net.Conn, address string, who Identity, silence time.Duration) (*client, error) {
	c := &client{conn: conn, address: address, closed: make(chan struct{}), ended: make(chan struct{}), silence: silence, replies: map[uint64]chan message{},
		seen: time.Now()}
	c.running.Go(c.read)
	if _, err := c.request(ctx, message{Op: opJoin, Identity: &who}); err != nil {
		c.close()
		return nil, err
	}
	c.running.Go(c.beat)
	return c, nil
}

// close leaves without a word.
func (c *client) close() {
	c.mu.Lock()
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	c.leaving = true
	c.mu.Unlock()
	c.conn.Close()
	c.running.Wait()
}

// leave says goodbye: this rank has done its part.
func (c *client) leave() {
	c.mu.Lock()
	c.leaving = true
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), handshake)
	defer cancel()
	c.request(ctx, message{Op: opBye}) // a server that is gone needs no goodbye
	c.close()
}

func (c *client) send(m message) error {
	c.write.Lock()
	defer c.write.Unlock()
	return send(c.conn, m)
}

func (c *client) read() {
	for {
		m, err := receive(c.conn)
		if err != nil {
			c.end(nil)
			return
		}
		c.mu.Lock()
		c.seen = time.Now()
		switch m.Op {
		case opReply:
			if waiting := c.replies[m.ID]; waiting != nil {
				delete(c.replies, m.ID)
				waiting <- m
			}
		case opBeat:
			c.slowest, c.asked = m.Share, m.Phase
		}
		c.mu.Unlock()
		if m.Op == opEnd {
			c.end(m.Failure)
		}
	}
}

// end records that the run has failed; without a failure it is the rendezvous itself that is gone.
func (c *client) end(f *Failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil || c.leaving {
		return
	}
	if c.failure = f; f == nil {
		c.failure = &Failure{Rank: 0, Cause: fmt.Sprintf("the rendezvous at %s is gone: the process that held it (rank 0, or the launcher) ended or hangs", c.address), Code: 1}
	}
	close(c.ended)
}

// beat gives a sign of life every second, and watches for those of the server.
func (c *client) beat() {
	tick := time.NewTicker(beats)
	defer tick.Stop()
	last := time.Now()
	for {
		c.mu.Lock()
		m := message{Op: opBeat, Phase: c.phase, Share: c.share}
		if time.Since(last) > 3*beats { // this process was stopped: what came meanwhile is unread
			c.seen = time.Now()
		}
		last = time.Now()
		silent := c.silence > 0 && time.Since(c.seen) > c.silence
		c.mu.Unlock()
		if silent {
			c.end(nil)
			return
		}
		if c.send(m) != nil {
			return // the reader has seen it too
		}
		select {
		case <-c.closed:
			return
		case <-tick.C:
		}
	}
}

func (c *client) request(ctx context.Context, m message) (message, error) {
	answer := make(chan message, 1)
	c.mu.Lock()
	c.next++
	m.ID = c.next
	c.replies[m.ID] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.replies, m.ID)
		c.mu.Unlock()
	}()
	if err := c.send(m); err != nil {
		return message{}, fmt.Errorf("the rendezvous at %s: %w", c.address, err)
	}
	replied := func(reply message) (message, error) {
		if reply.Error != "" {
			return reply, errors.New(reply.Error)
		}
		return reply, nil
	}
	select {
	case reply := <-answer:
		return replied(reply)
	case <-c.ended:
		select {
		case reply := <-answer: // the connection was closed after it
			return replied(reply)
		default:
		}
		return message{}, c.failure
	case <-c.closed:
		return message{}, fmt.Errorf("the rendezvous at %s: %w", c.address, net.ErrClosed)
	case <-ctx.Done():
		return message{}, fmt.Errorf("the rendezvous at %s, %s of %q: %w", c.address, m.Op, m.Key, context.Cause(ctx))
	}
}

// Set, Get and Add are the store's operations. Get waits for the key.
func (c *client) Set(ctx context.Context, key string, value []byte) error {
	_, err := c.request(ctx, message{Op: opSet, Key: key, Value: value})
	return err
}

func (c *client) Get(ctx context.Context, key string) ([]byte, error) {
	reply, err := c.request(ctx, message{Op: opGet, Key: key})
	return reply.Value, err
}

func (c *client) Add(ctx context.Context, key string, n int64) (int64, error) {
	reply, err := c.request(ctx, message{Op: opAdd, Key: key, N: n})
	return reply.N, err
}

// fail tells the run that this rank has failed.
func (c *client) fail(cause string, code int) {
	ctx, cancel := context.WithTimeout(context.Background(), handshake)
	defer cancel()
	c.request(ctx, message{Op: opFail, Failure: &Failure{Cause: cause, Code: code}}) // a run that is over needs no telling
}

// progress records how much of a phase this rank has done and gives the share of the slowest, as far as it is known.
func (c *client) progress(phase string, share float64) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase, c.share = phase, share
	if c.asked != phase {
		return 0
	}
	return min(share, c.slowest)
}
