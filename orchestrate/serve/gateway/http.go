package gateway

import (
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"gyre/envs"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/openai"
	"gyre/orchestrate/serve/session"
)

// Mount adds sessions to a server that has OpenAI's API.
func (s *Store) Mount(server *serve.Server, api *openai.API) {
	server.AcceptKey(s.Knows)
	for pattern, handler := range map[string]http.HandlerFunc{
		"POST /v1/sessions":             s.create,
		"GET /v1/sessions/{id}":         s.show,
		"POST /v1/sessions/{id}/reward": s.takeReward,
		// under a session's own address
		"POST /v1/sessions/{id}/chat/completions": api.Chat,
		"POST /v1/sessions/{id}/responses":        api.Responses,
		"GET /v1/sessions/{id}/models":            api.Models,
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
	ID      string `json:"id"`
	Key     string `json:"api_key"`
	BaseURL string `json:"base_url"`
	Task    *task  `json:"task,omitempty"`
}

type task struct {
	Seed   int64  `json:"seed"`
	Group  int    `json:"group"`
	Stream string `json:"stream"`
}

func (s *Store) create(w http.ResponseWriter, r *http.Request) {
	var body struct{ Group string }
	if s.Knows(serve.Key(r)) {
		serve.Fail(w, http.StatusForbidden, "the key of a session opens no other")
		return
	}
	if r.ContentLength != 0 {
		if err := serve.Decode(r, &body); err != nil {
			serve.FailAs(w, err)
			return
		}
	}
	n, err := s.new(body.Group)
	if err != nil {
		serve.FailAs(w, err)
		return
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	out := opened{ID: n.id, Key: n.key, BaseURL: scheme + r.Host + "/v1/sessions/" + n.id}
	if t := n.rules.Task; s.training {
		out.Task = &task{t.Seed, t.Group, t.Stream}
	}
	serve.Answer(w, http.StatusOK, out)
}

func (s *Store) new(label string) (*Session, error) {
	if s.training {
		return s.claim(label)
	}
	return s.open(rollout.Rules{})
}

func (s *Store) show(w http.ResponseWriter, r *http.Request) {
	one, err := s.find(r)
	if err != nil {
		serve.FailAs(w, err)
		return
	}
	one.mu.Lock()
	out := struct {
		ID       string           `json:"id"`
		Closed   bool             `json:"closed"`
		Turns    int              `json:"turns"`
		Branches []session.Branch `json:"branches"`
	}{one.id, one.closed || one.over, one.history.Turns(), one.history.Branches()}
	one.mu.Unlock()
	serve.Answer(w, http.StatusOK, out)
}

// mostReward is the size of a reward's body.
const mostReward = 1 << 20

func (s *Store) takeReward(w http.ResponseWriter, r *http.Request) {
	one, err := s.find(r)
	var data []byte
	if err == nil {
		data, err = io.ReadAll(http.MaxBytesReader(w, r.Body, mostReward))
	}
	if err != nil {
		serve.FailAs(w, err)
		return
	}
	verdict, err := envs.ParseVerdict(data)
	if err != nil {
		err = serve.Bad("reward", "%v", err)
	} else {
		err = one.reward(verdict)
	}
	if err != nil {
		serve.FailAs(w, err)
		return
	}
	serve.Answer(w, http.StatusOK, map[string]any{"id": one.id, "closed": verdict.Turn == nil})
}
