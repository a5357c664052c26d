package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Pauses between attempts grow from the first to the last of these. A server that stayed away for a whole call is left alone for as
// long, up to the longest.
const (
	firstPause   = 50 * time.Millisecond
	lastPause    = 2 * time.Second
	longestBreak = 30 * time.Second
)

// server is an HTTP server, shared by all environments that live there.
type server struct {
	url    string
	client *http.Client

	mu    sync.Mutex
	pause time.Duration // how long it is left alone when it is away again; 0 = it answered last
	until time.Time     // it is left alone until then
	cause error
}

var servers = struct {
	sync.Mutex
	all map[string]*server
}{all: map[string]*server{}}

// connection is one environment's way to a server.
type connection struct {
	*server
	attempt  time.Duration
	maxBytes int
	token    string
}

func newConnection(o *options) (*connection, error) {
	token := ""
	if o.Token != "" {
		if token = os.Getenv(o.Token); token == "" {
			return nil, fmt.Errorf("option token_variable: the environment variable %s is empty", o.Token)
		}
	}
	servers.Lock()
	defer servers.Unlock()
	s := servers.all[o.URL]
	if s == nil {
		s = &server{url: strings.TrimRight(o.URL, "/"), client: &http.Client{Transport: &http.Transport{
			MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, Proxy: http.ProxyFromEnvironment,
		}}}
		servers.all[o.URL] = s
	}
	return &connection{server: s, attempt: seconds(o.Attempt), maxBytes: o.MaxBytes, token: token}, nil
}

// call posts a request until it is answered, refused, or ctx ends.
func (c *connection) call(ctx context.Context, method string, r request) ([]byte, error) {
	if err := c.resting(); err != nil {
		return nil, err
	}
	pause := firstPause
	for {
		text, again, err := c.post(ctx, method, r)
		if err == nil {
			c.answered()
			return text, nil
		}
		if !again {
			return nil, fmt.Errorf("%s/%s: %w", c.url, method, err)
		}
		timer := time.NewTimer(pause/2 + rand.N(pause)) // jitter: many environments must not ask in step
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			err = fmt.Errorf("%s/%s: asked until the time was up (%w): %w", c.url, method, context.Cause(ctx), err)
			c.away(err)
			return nil, err
		}
		pause = min(2*pause, lastPause)
	}
}

// post makes one attempt; again says whether another may help.
func (c *connection) post(ctx context.Context, method string, r request) (text []byte, again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.attempt)
	defer cancel()
	r.Deadline = remaining(ctx)
	body, err := json.Marshal(r)
	if err != nil {
		return nil, false, err
	}
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/"+method, bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	ask.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		ask.Header.Set("Authorization", "Bearer "+c.token)
	}
	got, err := c.client.Do(ask)
	if err != nil {
		return nil, true, err
	}
	defer got.Body.Close()
	text, err = io.ReadAll(io.LimitReader(got.Body, int64(c.maxBytes)+1))
	switch {
	case err != nil:
		return nil, true, err
	case len(text) > c.maxBytes:
		return nil, false, fmt.Errorf("the answer has more than max_bytes = %d bytes", c.maxBytes)
	case got.StatusCode >= 500 || got.StatusCode == http.StatusTooManyRequests:
		return nil, true, fmt.Errorf("%s: %.300s", got.Status, text)
	case got.StatusCode != http.StatusOK:
		return nil, false, fmt.Errorf("%s: %.300s", got.Status, text)
	}
	return text, false, nil
}

var errResting = errors.New("the server did not answer before and is left alone for a while")

// resting gives an error while the server is left alone.
func (s *server) resting() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := time.Until(s.until); left > 0 {
		return fmt.Errorf("%s: %w (%.1f s more): %w", s.url, errResting, left.Seconds(), s.cause)
	}
	return nil
}

func (s *server) away(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause = min(max(2*s.pause, time.Second), longestBreak)
	s.until, s.cause = time.Now().Add(s.pause), cause
}

func (s *server) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause, s.until, s.cause = 0, time.Time{}, nil
}

// connect finds the way to where an environment lives, disconnect gives it up.
func connect(o *options) (transport, error) {
	if o.URL != "" {
		return newConnection(o)
	}
	return newChannel(o)
}

func disconnect(line transport) error {
	if c, ok := line.(*channel); ok {
		return c.leave()
	}
	return nil
}
