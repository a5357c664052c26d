package gateway

import (
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"gyre/envs"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/openai"
)

// Mount adds sessions to a server that has OpenAI's API.
func (s *Store) Mount(server *serve.Server, api *openai.API) {
	server.AcceptKey(s.Knows)
	for pattern, handler := range map[string]http.HandlerFunc{
		"POST /v1/sessions":             s.create,
		"GET /v1/sessions/{id}":         serve.Endpoint(s.show),
		"POST /v1/sessions/{id}/reward": serve.Endpoint(s.takeReward),
		// under a session's own address
		"POST /v1/sessions/{id}/chat/completions": api.Chat,
		"POST /v1/sessions/{id}/responses":        api.Responses,
		"GET /v1/sessions/{id}/models":            serve.Endpoint(api.Models),
	} {
		server.Handle(pattern, handler)
	}
	gauge := func(name, help string, read func() int) {
		server.Metrics.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gyre_sessions_" + name, Help: help}, func() float64 { return float64(read()) }))
	}
	gauge("kept", "sessions, closed ones that can still be read among them", func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.sessions)
	})
	gauge("branches", "branches so far that clients began by editing history or asking again", func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		n := s.branches
		for _, one := range s.sessions {
			n += max(0, one.state().branches-1)
		}
		return n
	})
}

// opened is the answer to who opens a session. In training it says what is to be played.
type opened struct {
	ID      string         `json:"id"`
	Key     string         `json:"api_key"`
	BaseURL string         `json:"base_url"`
	Task    map[string]any `json:"task,omitempty"`
}

// create opens a session. A body is not needed.
func (s *Store) create(w http.ResponseWriter, r *http.Request) {
	if s.Knows(serve.Key(r)) {
		serve.Fail(w, serve.Refuse(http.StatusForbidden, "the key of a session opens no other"))
		return
	}
	if r.ContentLength == 0 {
		r.Body = io.NopCloser(strings.NewReader("{}"))
	}
	serve.Endpoint(func(r *http.Request, in struct{ Group string }) (any, error) {
		n, err := s.new(in.Group)
		if err != nil {
			return nil, err
		}
		scheme := "http://"
		if r.TLS != nil {
			scheme = "https://"
		}
		out := opened{ID: n.id, Key: n.key, BaseURL: scheme + r.Host + "/v1/sessions/" + n.id}
		if t := n.rules.Task; s.training {
			out.Task = map[string]any{"seed": t.Seed, "group": t.Group, "stream": t.Stream}
		}
		return out, nil
	})(w, r)
}

func (s *Store) new(label string) (*Session, error) {
	if s.training {
		return s.claim(label)
	}
	return s.open(rollout.Rules{})
}

func (s *Store) show(r *http.Request, _ struct{}) (any, error) {
	one, err := s.find(r)
	if err != nil {
		return nil, err
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	return map[string]any{"id": one.id, "closed": one.closed || one.over, "turns": one.history.Turns(),
		"branches": one.history.Branches()}, nil
}

// mostReward is the size of a reward's body.
const mostReward = 1 << 20

func (s *Store) takeReward(r *http.Request, _ struct{}) (any, error) {
	one, err := s.find(r)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, mostReward))
	if err != nil {
		return nil, err
	}
	verdict, err := envs.ParseVerdict(data)
	if err != nil {
		return nil, serve.Bad("reward", "%v", err)
	}
	return map[string]any{"id": one.id, "closed": verdict.Turn == nil}, one.reward(verdict)
}
