package openai

import (
	"net/http"
	"time"

	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/talk"
)

// API is OpenAI's.
type API struct {
	talks  *talk.Talks
	stored storedResponses
}

// Mount mounts the API on a server. sessions may be nil.
func Mount(s *serve.Server, sessions talk.Sessions) *API {
	a := &API{talks: talk.New(s, sessions, "call")}
	s.Handle("GET /v1/models", serve.Endpoint(a.Models))
	s.Handle("GET /v1/models/{name...}", serve.Endpoint(a.model))
	s.Handle("POST /v1/chat/completions", http.HandlerFunc(a.Chat))
	s.Handle("POST /v1/completions", http.HandlerFunc(a.Completions))
	s.Handle("POST /v1/responses", http.HandlerFunc(a.Responses))
	s.Handle("GET /v1/responses/{response}", serve.Endpoint(a.Response))
	s.Handle("DELETE /v1/responses/{response}", serve.Endpoint(a.Response))
	return a
}

type model struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len"` // vLLM's
	// Anthropic's, whose clients ask at the same place
	Type        string    `json:"type"`
	DisplayName string    `json:"display_name"`
	CreatedAt   time.Time `json:"created_at"`
	Lifecycle   string    `json:"lifecycle"`
}

func (a *API) describe(name string) model {
	m := a.talks.Host.Model()
	return model{name, "model", m.Opened.Unix(), "gyre", m.MaxLength, "model", name, m.Opened.UTC(), "active"}
}

// Models lists the models, for GET /v1/models.
func (a *API) Models(*http.Request, struct{}) (any, error) {
	list := []model{}
	for _, name := range a.talks.Host.Names() {
		list = append(list, a.describe(name))
	}
	return map[string]any{"object": "list", "data": list, "has_more": false, "first_id": list[0].ID,
		"last_id": list[len(list)-1].ID}, nil
}

func (a *API) model(r *http.Request, _ struct{}) (any, error) {
	name := r.PathValue("name")
	_, err := a.talks.Host.Policy(name)
	return a.describe(name), err
}

// usage counts tokens.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (u *usage) add(completion, cached int) {
	u.Completion, u.Total = u.Completion+completion, u.Total+completion
	u.Details.Cached = max(u.Details.Cached, cached)
}

func now() int64 { return time.Now().Unix() }
