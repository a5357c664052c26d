package serve

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// connections bounds how many are open: above the bound, the one that has gone longest without a request is closed. So
// those who hold connections without using them keep nobody out.
type connections struct {
	most int

	mu      sync.Mutex
	open    int
	resting list.List // of net.Conn without a request, the longest first
	places  map[net.Conn]*list.Element
}

func newConnections(most int) *connections {
	return &connections{most: most, places: map[net.Conn]*list.Element{}}
}

// changed is http.Server's ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.places[conn]; at != nil {
		c.resting.Remove(at)
		delete(c.places, conn)
	}
	switch state {
	case http.StateNew:
		c.open++
		c.places[conn] = c.resting.PushBack(conn)
	case http.StateIdle:
		c.places[conn] = c.resting.PushBack(conn)
	case http.StateClosed, http.StateHijacked:
		c.open--
	}
	if at := c.resting.Front(); at != nil && state == http.StateNew && c.open > c.most {
		oldest := c.resting.Remove(at).(net.Conn)
		delete(c.places, oldest)
		if secure, ok := oldest.(*tls.Conn); ok {
			oldest = secure.NetConn() // without a farewell that would have to be sent
		}
		_ = oldest.Close() // its goroutine hears of it and tells of StateClosed
	}
}
