package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"gyre/envs"
	"gyre/internal/nearest"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/anthropic"
	"gyre/orchestrate/serve/openai"
)

// Mount adds sessions to a server that has OpenAI's and Anthropic's API.
func (s *Store) Mount(server *serve.Server, api *openai.API, messages *anthropic.API) {
	server.AcceptKey(s.Knows)
	for pattern, handler := range map[string]http.HandlerFunc{
		"POST /v1/sessions":             s.create,
		"GET /v1/sessions/{id}":         serve.Endpoint(s.show),
		"POST /v1/sessions/{id}/reward": serve.Endpoint(s.takeReward),
		// under a session's own address, to which Anthropic's clients add /v1
		"POST /v1/sessions/{id}/chat/completions":         api.Chat,
		"POST /v1/sessions/{id}/responses":                api.Responses,
		"GET /v1/sessions/{id}/responses/{response}":      serve.Endpoint(api.Response),
		"DELETE /v1/sessions/{id}/responses/{response}":   serve.Endpoint(api.Response),
		"GET /v1/sessions/{id}/models":                    serve.Endpoint(api.Models),
		"GET /v1/sessions/{id}/v1/models":                 serve.Endpoint(api.Models),
		"POST /v1/sessions/{id}/messages":                 messages.Messages,
		"POST /v1/sessions/{id}/messages/count_tokens":    serve.Endpoint(messages.CountTokens),
		"POST /v1/sessions/{id}/v1/messages":              messages.Messages,
		"POST /v1/sessions/{id}/v1/messages/count_tokens": serve.Endpoint(messages.CountTokens),
	} {
		server.Handle(pattern, handler)
	}
	server.Metrics.Gauge("gyre_sessions_kept", "sessions, closed ones that can still be read among them", func() int64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return int64(len(s.sessions))
	})
	server.Metrics.Gauge("gyre_sessions_branches", "branches so far that clients began by editing history or asking "+
		"again", func() int64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		n := s.branches
		for _, one := range s.sessions {
			n += max(0, one.state().branches-1)
		}
		return int64(n)
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
	serve.Endpoint(func(r *http.Request, body json.RawMessage) (any, error) {
		var in struct{ Group string }
		if err := errors.Join(json.Unmarshal(body, &in), nearest.Keys(body, "group")); err != nil {
			return nil, serve.Bad("group", "the body of a new session: %v", err)
		}
		n, err := s.new(serve.Address(r.RemoteAddr), in.Group)
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

func (s *Store) new(client, label string) (*Session, error) {
	if s.training {
		return s.claim(label)
	}
	return s.open(client, rollout.Rules{})
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
