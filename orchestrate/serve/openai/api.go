package openai

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
	"gyre/torch"
)

// Sessions finds the session that a request belongs to, by its key or its path; nil for none.
type Sessions func(r *http.Request) (Session, error)

// Session keeps the tokens of a conversation. Its methods are called by the goroutines of requests.
type Session interface {
	// Prompt gives the ids that these messages are answered on.
	Prompt(messages []chat.Message, tools []chat.Tool) ([]int32, error)
	// Sample may change how the replies to a prompt are drawn.
	Sample(requests []host.Request)
	// Replied is told each complete reply to a prompt that Prompt gave, and the message that the client gets of it.
	Replied(prompt []int32, reply torch.Output, message chat.Message)
}

// API is OpenAI's.
type API struct {
	host     *host.Host
	metrics  *serve.Metrics
	sessions Sessions
	numbers  atomic.Uint64
}

// Mount mounts the API on a server. sessions may be nil.
func Mount(s *serve.Server, sessions Sessions) *API {
	a := &API{host: s.Host, metrics: s.Metrics, sessions: sessions}
	s.Handle("GET /v1/models", serve.Endpoint(a.Models))
	s.Handle("GET /v1/models/{name...}", serve.Endpoint(a.model))
	s.Handle("POST /v1/chat/completions", http.HandlerFunc(a.Chat))
	s.Handle("POST /v1/completions", http.HandlerFunc(a.Completions))
	s.Handle("POST /v1/responses", http.HandlerFunc(a.Responses))
	return a
}

// id names an answer.
func (a *API) id(kind string) string {
	return fmt.Sprintf("%s-%x-%d", kind, a.host.Model().Opened.UnixNano(), a.numbers.Add(1))
}

type model struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len"` // vLLM's
}

func (a *API) describe(name string) model {
	m := a.host.Model()
	return model{name, "model", m.Opened.Unix(), "gyre", m.MaxLength}
}

// Models lists the models, for GET /v1/models.
func (a *API) Models(*http.Request, struct{}) (any, error) {
	list := []model{}
	for _, name := range a.host.Names() {
		list = append(list, a.describe(name))
	}
	return map[string]any{"object": "list", "data": list}, nil
}

func (a *API) model(r *http.Request, _ struct{}) (any, error) {
	name := r.PathValue("name")
	_, err := a.host.Policy(name)
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
