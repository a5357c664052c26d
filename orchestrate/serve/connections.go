package serve

import (
	"container/list"
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// connections bounds how many are open, and that no address has more than half of them. Above a bound one is closed:
// that which has been sending a request for longest, or else the one that has gone longest without one. So those who
// hold connections without using them keep nobody out.
type connections struct {
	most int

	mu      sync.Mutex // guards what follows
	open    map[net.Conn]*connection
	of      map[string]int // how many an address has
	sending list.List      // of *connection whose request is not whole, the longest first
	resting list.List      // of *connection without a request, the longest first
}

// connection is an open one. It is in one of the lists, or its request is being answered.
type connection struct {
	conn    net.Conn
	address string
	in      *list.List
	at      *list.Element
}

func newConnections(most int) *connections {
	return &connections{most: most, open: map[net.Conn]*connection{}, of: map[string]int{}}
}

// changed is http.Server's ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.open[conn]
	if one == nil {
		if state != http.StateNew {
			return
		}
		one = &connection{conn: conn, address: Address(conn.RemoteAddr().String())}
		c.open[conn] = one
		c.of[one.address]++
		if c.bound(one); c.open[conn] == nil {
			return
		}
	}
	c.move(one, nil)
	switch state {
	case http.StateNew, http.StateActive:
		c.move(one, &c.sending)
	case http.StateIdle:
		c.move(one, &c.resting)
	case http.StateClosed, http.StateHijacked:
		c.forget(one)
	}
}

// whole is told that all of a connection's request has arrived.
func (c *connections) whole(ctx context.Context) {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.open[conn]; one != nil {
		c.move(one, nil)
	}
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// move puts a connection at the end of a list; nil takes it out of its own. The caller holds the mutex, as for what
// follows.
func (c *connections) move(one *connection, to *list.List) {
	if one.in != nil {
		one.in.Remove(one.at)
	}
	if one.in = to; to != nil {
		one.at = to.PushBack(one)
	}
}

func (c *connections) forget(one *connection) {
	delete(c.open, one.conn)
	if c.of[one.address]--; c.of[one.address] == 0 {
		delete(c.of, one.address)
	}
}

// bound closes a connection if a new one is too many: one of its address, where that has more than its share, or else
// of an address that has most. The new one itself is closed where all others are being answered.
func (c *connections) bound(fresh *connection) {
	var victim *connection
	switch {
	case c.of[fresh.address] > max(1, c.most/2):
		victim = c.oldest(func(one *connection) bool { return one.address == fresh.address })
	case len(c.open) > c.most:
		most := slices.Max(slices.Collect(maps.Values(c.of)))
		victim = c.oldest(func(one *connection) bool { return c.of[one.address] == most })
	default:
		return
	}
	if victim == nil && len(c.open) > c.most {
		victim = c.oldest(func(*connection) bool { return true })
	}
	if victim == nil {
		victim = fresh
	}
	c.move(victim, nil)
	c.forget(victim)
	conn := victim.conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn() // without a farewell that would have to be sent
	}
	_ = conn.Close() // its goroutine hears of it
}

// oldest is the one of some connections that is to be closed first; nil where all are being answered.
func (c *connections) oldest(of func(*connection) bool) *connection {
	for _, in := range []*list.List{&c.sending, &c.resting} {
		for at := in.Front(); at != nil; at = at.Next() {
			if one := at.Value.(*connection); of(one) {
				return one
			}
		}
	}
	return nil
}

// Address is whom an address (HOST:PORT) belongs to: the host, of IPv6 the network that one customer has.
func Address(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	ip := at.Addr().Unmap()
	if ip.Is6() && !ip.IsLoopback() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
