package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gyre/internal/quote"
)

// call is what one environment asks of its server.
type call struct {
	method string
	config json.RawMessage // create
	item   item            // reset, step, close

	ctx   context.Context
	alone bool          // it is not gathered: a request that held it failed
	sent  bool          // under the gatherer's mutex
	done  chan struct{} // closed when the two below are set
	reply reply
	err   error
}

// reply is what a call brings: the id of an environment that was made, or the state of one.
type reply struct {
	id    string
	state *result
}

// gatherer makes one request of the calls that wait for a server at the same moment, if the server takes more than
// one: what comes while a request is on its way waits for it to return. A request that fails is taken apart: each of
// its calls is asked by itself, so that it shares no one else's fate.
type gatherer struct {
	// post makes one attempt at a request.
	post   func(ctx context.Context, method string, r request) ([]byte, error)
	single bool // there is one connection, whatever is asked

	mu      sync.Mutex // guards what follows, down to takes, and sent of each call
	waiting []*call    // in the order of their arrival
	busy    int        // requests on their way
	takes   int        // calls per request that the server takes, by its own account; 0 = it has not said anything yet

	requests, calls atomic.Int64 // sent in all
}

const (
	// pipelined is how many requests are on their way at once while calls are gathered: one is worked on, one travels.
	pipelined = 2
	// slow is when a request no longer keeps others waiting: it may hold a call that hangs.
	slow = time.Second
)

// fatal is a failure after which a call cannot be asked again: the environment is lost.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// errApart tells a call that the request which held it failed.
var errApart = errors.New("ask by yourself")

// ask sends a call and waits for its answer, or for its context to end.
func (g *gatherer) ask(ctx context.Context, c call) (reply, error) {
	for {
		one := c
		one.ctx, one.done = ctx, make(chan struct{})
		if one.alone && !g.single {
			one.sent = true
			go g.send([]*call{&one}) // ends with its answer, or with ctx
		} else {
			g.mu.Lock()
			g.waiting = append(g.waiting, &one)
			g.pump()
			g.mu.Unlock()
		}
		select {
		case <-one.done:
		case <-ctx.Done():
			g.mu.Lock()
			defer g.mu.Unlock()
			if !one.sent {
				return reply{}, fmt.Errorf("busy with other environments: %w", context.Cause(ctx))
			}
			return reply{}, fmt.Errorf("no answer in time: %w", context.Cause(ctx))
		}
		if one.err != errApart {
			return one.reply, one.err
		}
		c.alone = true
	}
}

// pump sends what waits as far as connections are free. The caller holds the mutex.
func (g *gatherer) pump() {
	for {
		switch {
		case g.busy == 0:
		case g.single || g.takes == 0: // the first answer says what the server takes
			return
		case g.takes > 1 && g.busy >= pipelined:
			return
		}
		batch := g.take()
		if batch == nil {
			return
		}
		g.busy++
		go func() { // ends with its answer, or with the contexts of all its calls
			release := sync.OnceFunc(func() {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.busy--
				g.pump()
			})
			defer release()
			if !g.single {
				defer time.AfterFunc(slow, func() {
					g.mu.Lock()
					g.takes = max(1, g.takes)
					g.mu.Unlock()
					release()
				}).Stop()
			}
			g.send(batch)
		}()
	}
}

// take removes the calls of the next request from those that wait: the first, and what can go with it. The caller
// holds the mutex.
func (g *gatherer) take() []*call {
	var batch, rest []*call
	for _, c := range g.waiting {
		switch {
		case c.ctx.Err() != nil: // its caller has left
		case len(batch) == 0, len(batch) < g.takes && c.method == batch[0].method && !c.alone && !batch[0].alone &&
			bytes.Equal(c.config, batch[0].config):
			c.sent = true
			batch = append(batch, c)
		default:
			rest = append(rest, c)
		}
	}
	g.waiting = rest
	return batch
}

// send makes the request of some calls and hands out its answer. It is given up when all who asked have left.
func (g *gatherer) send(batch []*call) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var stay atomic.Int64
	stay.Store(int64(len(batch)))
	r := request{}
	for _, c := range batch {
		defer context.AfterFunc(c.ctx, func() {
			if stay.Add(-1) == 0 {
				cancel(context.Cause(c.ctx))
			}
		})()
		r.Deadline = max(r.Deadline, remaining(c.ctx))
		if c.method == "create" {
			r.Config, r.Count = c.config, r.Count+1
		} else {
			r.Items = append(r.Items, c.item)
		}
	}
	g.requests.Add(1)
	g.calls.Add(int64(len(batch)))
	text, err := g.post(ctx, batch[0].method, r)
	if err == nil {
		err = g.hand(text, batch)
	}
	if err != nil && len(batch) > 1 && !errors.As(err, new(fatal)) {
		err = errApart
	}
	for _, c := range batch {
		if err != nil {
			c.reply, c.err = reply{}, err
		}
		close(c.done)
	}
}

// hand reads an answer and gives each call its share. An error means that the answer as a whole is of no use.
func (g *gatherer) hand(text []byte, batch []*call) error {
	a, err := decode(text)
	if err != nil {
		return err
	}
	if batch[0].method == "create" {
		if len(a.IDs) != len(batch) {
			return fmt.Errorf("the server made %d environments, expected %d", len(a.IDs), len(batch))
		}
		for i, c := range batch {
			if c.reply.id = a.IDs[i]; c.reply.id == "" || len(c.reply.id) > longestID {
				return fmt.Errorf("the server made an environment %s, expected an id of 1 to %d bytes",
					quote.Text(c.reply.id, longestShown), longestID)
			}
		}
	} else {
		if len(a.Items) != len(batch) {
			return fmt.Errorf("the server answers with %d items, expected %d", len(a.Items), len(batch))
		}
		for i, c := range batch {
			c.reply.state, c.err = &a.Items[i], a.Items[i].check(c.item.ID)
		}
	}
	if batch[0].method == "create" {
		g.mu.Lock()
		g.takes = max(1, a.Batch)
		g.mu.Unlock()
	}
	return nil
}
