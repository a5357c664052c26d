package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// fake is a connection of an address.
type fake struct {
	net.Conn
	from   string
	closed bool
}

func (f *fake) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.from), Port: 1} }
func (f *fake) Close() error         { f.closed = true; return nil }

// Each line of steps opens connections (A is one of address A), lets them send, be answered (their request is whole) or
// rest, and names those that are open after it, in their order.
func TestNoAddressTakesAllConnections(t *testing.T) {
	for steps, want := range map[string]string{
		"new a1 a2 a3 a4":    "a1 a2 a3 a4",
		"new a1 a2 a3 a4 a5": "a2 a3 a4 a5", // half of 8 is an address's
		"new a1 a2 send a1 a2 new a3 a4 rest a1 new a5":                "a1 a3 a4 a5", // half a request goes before rest
		"new a1 a2 a3 a4 send a1 a2 a3 a4 whole a1 a2 a3 a4 new a5":    "a1 a2 a3 a4", // all are being answered
		"new a1 rest a1 new b1 b2 b3 b4 b5 b6 b7 b8":                   "a1 b5 b6 b7 b8",
		"new a1 a2 b1 b2 c1 c2 d1 d2 rest a1 new e1":                   "a1 b1 b2 c1 c2 d1 d2 e1",
		"new a1 a2 a3 a4 b1 b2 b3 b4 whole a1 a2 a3 a4 rest b1 new c1": "a1 a2 a3 a4 b1 b3 b4 c1",
		"new a1 close a1 new a2 a3 a4 a5":                              "a2 a3 a4 a5",
	} {
		c := newConnections(8)
		all, order, what := map[string]*fake{}, []string{}, ""
		for _, word := range strings.Fields(steps) {
			states := map[string]http.ConnState{"send": http.StateActive, "rest": http.StateIdle, "close": http.StateClosed}
			if word == "new" || word == "whole" || states[word] != 0 {
				what = word
				continue
			}
			one := all[word]
			switch what {
			case "new":
				one = &fake{from: fmt.Sprintf("10.0.0.%d", word[0])}
				all[word], order = one, append(order, word)
				c.changed(one, http.StateNew)
			case "whole":
				c.whole(context.WithValue(t.Context(), connKey{}, net.Conn(one)))
			default:
				one.closed = one.closed || what == "close"
				c.changed(one, states[what])
			}
		}
		order = slices.DeleteFunc(order, func(name string) bool { return all[name].closed })
		if got := strings.Join(order, " "); got != want || len(c.open) != len(order) {
			t.Errorf("%s: %s are open, want %s; %d are counted", steps, got, want, len(c.open))
		}
	}
}

func TestAddresses(t *testing.T) {
	for remote, want := range map[string]string{"1.2.3.4:5": "1.2.3.4", "[::ffff:1.2.3.4]:5": "1.2.3.4", "[::1]:9": "::1",
		"[2001:db8:1:2:3:4:5:6]:7": "2001:db8:1:2::/64", "pipe": "pipe"} {
		if got := Address(remote); got != want {
			t.Errorf("%s is of %s, want %s", remote, got, want)
		}
	}
}

// A key has no more than half of the requests that may be under way.
func TestNoKeyTakesAllRequests(t *testing.T) {
	s := &Server{options: Options{MaxConnections: 4}, underWay: map[string]int{}}
	for i, c := range []struct {
		key  string
		want bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"", true}, {"", true}, {"", true}} {
		if got := s.begin(c.key); got != c.want {
			t.Errorf("request %d, of key %q: %v", i, c.key, got)
		}
	}
	if s.end("a"); !s.begin("a") {
		t.Error("a request that has ended counts")
	}
}
