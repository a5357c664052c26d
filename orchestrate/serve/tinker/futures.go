package tinker

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"gyre/orchestrate/serve"
	"gyre/torch"
)

const (
	// maxFutures bounds a session's requests whose results nobody has fetched.
	maxFutures = 8192
	// holdResult is how long a client waits for a result before it is told to ask again: it gives up after 45 s.
	holdResult = 20 * time.Second
	// keepResult is how long a result stays once it was fetched, for a client that the answer did not reach.
	keepResult = 2 * time.Minute
)

// future is a request whose result comes later.
type future struct {
	id     string
	owner  *session
	ctx    context.Context // ends with the session, or when the client gives the request up
	cancel context.CancelFunc
	done   chan struct{} // closed once body is there

	body     []byte // not changed after done is closed
	protobuf bool

	fetched time.Time // zero: never. Server.mu
}

// promised is the answer to a request that has a future.
type promised struct {
	RequestID string   `json:"request_id"`
	ModelID   string   `json:"model_id,omitempty"`
	Sequences []string `json:"sample_sequence_ids,omitempty"`
}

// promise answers a request that has a future, and has start begin the work on it, which may refuse. A request that was
// sent before gets the same answer. start is called with the lock.
func (s *Server) promise(owner *session, out promised, start func(f *future) error) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.futures[out.RequestID] != nil:
		return out, nil
	case owner.ctx.Err() != nil:
		return nil, gone("session", owner.id)
	case owner.futures >= maxFutures:
		return nil, serve.Refuse(http.StatusTooManyRequests,
			"%d results of this session wait to be fetched: fetch some first", owner.futures)
	}
	f := &future{id: out.RequestID, owner: owner, done: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(owner.ctx)
	if err := start(f); err != nil {
		f.cancel()
		return nil, err
	}
	s.futures[f.id] = f
	owner.futures++
	return out, nil
}

// drop forgets a future. The caller holds the lock.
func (s *Server) drop(f *future) {
	delete(s.futures, f.id)
	f.owner.futures--
	f.cancel()
}

// finish gives the future its result: bytes are a protobuf message, anything else is JSON.
func (f *future) finish(result any, err error) {
	if message, ok := result.([]byte); ok && err == nil {
		f.body, f.protobuf = message, true
	} else {
		if err == nil {
			f.body, err = json.Marshal(result)
		}
		if err != nil {
			category := "server"
			if serve.ErrorOf(err).Status < http.StatusInternalServerError || errors.Is(err, torch.ErrNotFinite) {
				category = "user"
			}
			f.body, _ = json.Marshal(map[string]string{"error": serve.Told(err), "category": category}) // strings have JSON
		}
	}
	close(f.done)
}

// gone says that something is no more, which ends a client's retries.
func gone(what, id string) *serve.Error {
	return serve.Refuse(http.StatusGone, "there is no %s %.100q: it has ended, or this server never had it", what, id)
}

// retrieve answers with a result, or that there is none yet.
func (s *Server) retrieve(w http.ResponseWriter, r *http.Request) {
	var in struct {
		RequestID string `json:"request_id"`
	}
	if err := serve.Decode(r, &in); err != nil {
		serve.Fail(w, err)
		return
	}
	s.mu.Lock()
	f := s.futures[in.RequestID]
	if f != nil {
		f.owner.seen = time.Now()
	}
	s.mu.Unlock()
	if f == nil {
		serve.Fail(w, gone("request", in.RequestID))
		return
	}
	timer := time.NewTimer(holdResult)
	defer timer.Stop()
	select {
	case <-f.done:
	case <-f.owner.ctx.Done():
		serve.Fail(w, gone("request", in.RequestID))
		return
	case <-r.Context().Done():
		return
	case <-timer.C:
		serve.Answer(w, http.StatusOK, map[string]string{"type": "try_again", "request_id": f.id,
			"queue_state": "active"})
		return
	}
	s.mu.Lock()
	f.fetched = time.Now()
	s.mu.Unlock()
	kind := "application/json"
	if f.protobuf {
		kind = "application/x-protobuf"
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(f.body) // a client that did not get it asks again
}

// giveUp ends the sampling of a request whose result nobody wants.
func (s *Server) giveUp(_ *http.Request, in struct {
	RequestID string `json:"request_id"`
}) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.futures[in.RequestID]; f != nil {
		f.cancel()
	}
	return struct{}{}, nil
}
