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
	"sync"
	"syscall"
	"time"

	"gyre/internal/quote"
)

// Pauses between attempts grow from the first to the last.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// server is an HTTP server. It is safe for concurrent use.
type server struct {
	url, token string
	attempt    time.Duration // how long one request may take
	maxBytes   int           // of an answer
	client     *http.Client
	queue      *gatherer

	mu       sync.Mutex // guards what follows
	until    time.Time  // it is left alone until then
	cause    error
	answered time.Time // last
	vain     int       // calls that ran out of time since
}

// longestHeader bounds the head of an answer, in bytes.
const longestHeader = 64 << 10

func newServer(url, token string, attempt time.Duration, maxBytes int) *server {
	s := &server{url: url, token: token, attempt: attempt, maxBytes: maxBytes, client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
			Proxy: http.ProxyFromEnvironment, MaxResponseHeaderBytes: longestHeader},
		// A server does not send its callers elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	s.queue = &gatherer{post: s.attemptOnce}
	return s
}

// passing is a failure that another attempt may mend.
type passing struct{ error }

func (p passing) Unwrap() error { return p.error }

// call asks until there is an answer, a refusal, or ctx ends.
func (s *server) call(ctx context.Context, c call) (reply, error) {
	if err := s.resting(); err != nil {
		return reply{}, err
	}
	begun, pause := time.Now(), firstPause
	for {
		got, err := s.queue.ask(ctx, c)
		if again := errors.As(err, new(passing)) || ctx.Err() != nil; err == nil || !again {
			s.here()
			if err != nil {
				err = fmt.Errorf("%s/%s: %w", s.url, c.method, err)
			}
			return got, err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause)) // jitter: many environments must not ask in step
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if errors.Is(err, syscall.ECONNREFUSED) {
				err = fmt.Errorf("%w (nobody listens there: scripts/remote_env.py serves environments)", err)
			}
			err = fmt.Errorf("%s/%s: asked until the time was up: %w", s.url, c.method, err)
			s.away(begun, err)
			return reply{}, err
		}
		pause = min(2*pause, lastPause)
	}
}

// attemptOnce posts a request.
func (s *server) attemptOnce(ctx context.Context, method string, r request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.attempt)
	defer cancel()
	r.Deadline = min(r.Deadline, s.attempt.Seconds())
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/"+method, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	ask.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		ask.Header.Set("Authorization", "Bearer "+s.token)
	}
	got, err := s.client.Do(ask)
	if err != nil {
		return nil, passing{quote.Error(err)}
	}
	defer got.Body.Close()
	text, err := io.ReadAll(io.LimitReader(got.Body, int64(s.maxBytes)+1))
	switch {
	case err != nil:
		return nil, passing{quote.Error(err)}
	case len(text) > s.maxBytes:
		return nil, fmt.Errorf("the answer has more than max_bytes = %d bytes", s.maxBytes)
	case got.StatusCode >= 500 || got.StatusCode == http.StatusTooManyRequests:
		return nil, passing{refusal(got.StatusCode, text)}
	case got.StatusCode != http.StatusOK:
		return nil, refusal(got.StatusCode, text)
	}
	return text, nil
}

// refusal is the answer of a server that does not do what it is asked for.
func refusal(status int, text []byte) error {
	return fmt.Errorf("status %d %s: %s", status, http.StatusText(status), quote.Text(string(text), longestSaid))
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

// away has the server left alone for as long as a call has asked in vain, unless it has answered somebody meanwhile.
// One call without an answer may be its own environment that hangs, when no other asks: it takes a second one, or that
// nobody listens.
func (s *server) away(begun time.Time, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answered.After(begun) {
		return
	}
	if s.vain++; s.vain > 1 || errors.Is(cause, syscall.ECONNREFUSED) {
		s.until, s.cause = time.Now().Add(time.Since(begun)), cause
	}
}

// here notes an answer, be it a refusal.
func (s *server) here() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until, s.cause, s.answered, s.vain = time.Time{}, nil, time.Now(), 0
}
