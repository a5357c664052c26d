package tinker

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gyre/orchestrate/serve"
)

// session is a client, with what it holds.
type session struct {
	id     string
	ctx    context.Context // ends when the client says goodbye or falls silent
	cancel context.CancelFunc
	work   sync.WaitGroup // goroutines of its models and futures

	metadata map[string]string
	name     string

	// Below: Server.mu.
	seen     time.Time // when the client was heard of last
	futures  int
	models   []*model
	samplers []*sampler
}

const maxSessions = 256

func (s *Server) createSession(_ context.Context, in struct {
	Metadata map[string]string `json:"user_metadata"`
	Name     string            `json:"display_name"`
}) (any, error) {
	ss := &session{id: rand.Text(), metadata: in.Metadata, name: in.Name, seen: time.Now()}
	ss.ctx, ss.cancel = context.WithCancel(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) >= maxSessions {
		return nil, &serve.Error{Status: http.StatusTooManyRequests, Type: "rate_limit_error",
			Message: fmt.Sprintf("%d sessions are open: close some, or wait until they fall silent", maxSessions)}
	}
	s.sessions[ss.id] = ss
	return map[string]any{"type": "create_session", "session_id": ss.id}, nil
}

// session finds one, which has thereby been heard of.
func (s *Server) session(id string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ss := s.sessions[id]
	if ss == nil {
		return nil, gone("session", id)
	}
	ss.seen = time.Now()
	return ss, nil
}

func (s *Server) heartbeat(_ context.Context, in struct {
	ID string `json:"session_id"`
}) (any, error) {
	if _, err := s.session(in.ID); err != nil {
		return nil, err
	}
	return map[string]string{"type": "session_heartbeat"}, nil
}

// finishSession frees what a client holds. A second time is no error.
func (s *Server) finishSession(w http.ResponseWriter, r *http.Request) {
	if ss, err := s.session(r.PathValue("session")); err == nil {
		s.end(ss)
	}
	serve.Answer(w, http.StatusOK, struct{}{})
}

func (s *Server) getSession(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	ss := s.sessions[r.PathValue("session")]
	models, samplers := []string{}, []string{}
	if ss != nil {
		for _, m := range ss.models {
			models = append(models, m.id)
		}
		for _, p := range ss.samplers {
			samplers = append(samplers, p.id)
		}
	}
	s.mu.Unlock()
	if ss == nil {
		serve.FailAs(w, missing("session", r.PathValue("session")))
		return
	}
	serve.Answer(w, http.StatusOK, map[string]any{"training_run_ids": models, "sampler_ids": samplers,
		"user_metadata": ss.metadata, "display_name": ss.name})
}

func (s *Server) listSessions(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	ids := []string{}
	for id := range s.sessions {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	serve.Answer(w, http.StatusOK, map[string]any{"sessions": ids})
}

// end frees what a session holds, and returns when nothing of it runs.
func (s *Server) end(ss *session) {
	s.mu.Lock()
	delete(s.sessions, ss.id)
	for _, m := range ss.models {
		delete(s.models, m.id)
	}
	for _, p := range ss.samplers {
		delete(s.samplers, p.id)
	}
	for _, f := range s.futures {
		if f.owner == ss {
			s.drop(f)
		}
	}
	ss.cancel()
	s.mu.Unlock()
	ss.work.Wait()
	for _, p := range ss.samplers { // nobody adds to them: the session has ended
		if p.snapshot == nil {
			continue
		}
		s.cache.forget(p.dir)
		if err := p.snapshot.Discard(); err != nil {
			s.warn("removing a snapshot: %v", err)
		}
	}
	for _, m := range ss.models { // what holds no checkpoint is left empty, or else stays
		_ = os.Remove(filepath.Join(s.options.Dir, m.id, snapshots))
		_ = os.Remove(filepath.Join(s.options.Dir, m.id))
	}
}

// watch ends sessions that have fallen silent and forgets results that were fetched, until the server closes.
func (s *Server) watch() {
	ticker := time.NewTicker(min(s.options.Silence/4, 10*time.Second))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
		var silent []*session
		s.mu.Lock()
		for _, ss := range s.sessions {
			if time.Since(ss.seen) > s.options.Silence {
				silent = append(silent, ss)
			}
		}
		for _, f := range s.futures {
			if !f.fetched.IsZero() && time.Since(f.fetched) > keepResult {
				s.drop(f)
			}
		}
		s.mu.Unlock()
		for _, ss := range silent {
			s.warn("session %s has been silent for %v: what it held is freed", ss.id, s.options.Silence)
			s.end(ss)
		}
		s.expire()
	}
}
