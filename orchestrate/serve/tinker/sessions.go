package tinker

import (
	"context"
	"crypto/rand"
	"encoding/json"
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
	client string          // its address
	ctx    context.Context // ends when the client says goodbye or falls silent
	cancel context.CancelFunc
	work   sync.WaitGroup // goroutines of its models and futures

	// Below: Server.mu.
	seen     time.Time // when the client was heard of last
	futures  int
	models   []*model
	samplers []*sampler
}

// maxSessions are open at a time, half of them of one address.
const maxSessions = 256

func (s *Server) createSession(r *http.Request, _ json.RawMessage) (any, error) {
	ss := &session{id: rand.Text(), client: serve.Address(r.RemoteAddr), seen: time.Now()}
	ss.ctx, ss.cancel = context.WithCancel(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	own := 0
	for _, one := range s.sessions {
		if one.client == ss.client {
			own++
		}
	}
	if len(s.sessions) >= maxSessions || own >= maxSessions/2 {
		return nil, serve.Refuse(http.StatusTooManyRequests, "%d sessions are open, %d of them of %s, which may have %d: "+
			"close some, or wait until they fall silent", len(s.sessions), own, ss.client, maxSessions/2)
	}
	s.sessions[ss.id] = ss
	return map[string]any{"type": "create_session", "session_id": ss.id}, nil
}

// heard finds what a client names, whose session has thereby been heard of.
func heard[T interface{ holder() *session }](s *Server, all map[string]T, id string, absent error) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, here := all[id]
	if !here {
		return one, absent
	}
	one.holder().seen = time.Now()
	return one, nil
}

func (ss *session) holder() *session { return ss }
func (m *model) holder() *session    { return m.owner }
func (p *sampler) holder() *session  { return p.owner }

func (s *Server) session(id string) (*session, error) {
	return heard(s, s.sessions, id, gone("session", id))
}
func (s *Server) model(id string) (*model, error) {
	return heard(s, s.models, id, missing("model", id))
}
func (s *Server) sampler(id string) (*sampler, error) {
	return heard(s, s.samplers, id, missing("sampling session", id))
}

func (s *Server) heartbeat(_ *http.Request, in struct {
	ID string `json:"session_id"`
}) (any, error) {
	_, err := s.session(in.ID)
	return map[string]string{"type": "session_heartbeat"}, err
}

// finishSession frees what a client holds. A second time is no error.
func (s *Server) finishSession(r *http.Request, _ struct{}) (any, error) {
	if ss, err := s.session(r.PathValue("session")); err == nil {
		s.end(ss)
	}
	return struct{}{}, nil
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
