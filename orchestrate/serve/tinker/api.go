package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
)

// Options say where checkpoints lie and how much clients may hold. Zero values have a default.
type Options struct {
	Dir       string        // for what clients save; made when somebody saves
	Silence   time.Duration // after which a session that is not heard of ends; 2 minutes
	MaxModels int           // that learn at a time; 32
	KeyNeeded bool          // requests carry a key, so that a plain URL downloads nothing
	Warn      func(text string)
}

// Server holds what clients have: sessions, models, samplers and futures. Its handlers may run at the same time.
type Server struct {
	host    *host.Host
	options Options
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	watcher sync.WaitGroup
	slots   chan struct{} // one for each sequence that samples
	queued  atomic.Int64  // bytes of requests that wait for their turn
	cache   cache

	mu       sync.Mutex
	sessions map[string]*session
	models   map[string]*model
	samplers map[string]*sampler
	futures  map[string]*future
}

// New makes a server of a host's model. Close it before the host.
func New(h *host.Host, o Options) *Server {
	o.Silence, o.MaxModels = cmp.Or(o.Silence, 2*time.Minute), cmp.Or(o.MaxModels, 32)
	s := &Server{host: h, options: o, slots: make(chan struct{}, 128), sessions: map[string]*session{},
		models: map[string]*model{}, samplers: map[string]*sampler{}, futures: map[string]*future{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.cache = cache{host: h, loaded: map[string]*loaded{}}
	s.watcher.Go(s.watch)
	return s
}

// Close ends all sessions and frees the models.
func (s *Server) Close() {
	s.cancel()
	s.watcher.Wait()
	s.mu.Lock()
	var all []*session
	for _, ss := range s.sessions {
		all = append(all, ss)
	}
	s.mu.Unlock()
	for _, ss := range all {
		s.end(ss)
	}
	s.cache.close()
}

func (s *Server) warn(format string, args ...any) {
	if s.options.Warn != nil {
		s.options.Warn(fmt.Sprintf(format, args...))
	}
}

const root = "/api/v1/"

// Mount adds the handlers to a server.
func (s *Server) Mount(to *serve.Server) {
	handle := func(method, path string, f http.HandlerFunc) { to.Handle(method+" "+root+path, f) }
	empty := func(w http.ResponseWriter, _ *http.Request) { serve.Answer(w, http.StatusOK, struct{}{}) }
	handle("GET", "healthz", func(w http.ResponseWriter, _ *http.Request) {
		serve.Answer(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	handle("POST", "client/config", empty)
	handle("POST", "client/dynamic_config", func(w http.ResponseWriter, _ *http.Request) {
		serve.Answer(w, http.StatusOK, map[string]any{"sample_cancel_enabled": true})
	})
	handle("POST", "telemetry", func(w http.ResponseWriter, _ *http.Request) { // is not kept
		serve.Answer(w, http.StatusOK, map[string]string{"status": "accepted"})
	})
	handle("GET", "get_server_capabilities", s.capabilities)

	handle("POST", "create_session", endpoint(s.createSession))
	handle("POST", "session_heartbeat", endpoint(s.heartbeat))
	handle("POST", "sessions/{session}/finish", s.finishSession)
	handle("GET", "sessions", s.listSessions)
	handle("GET", "sessions/{session}", s.getSession)
	handle("POST", "retrieve_future", s.retrieve)
	handle("POST", "cancel_future", endpoint(s.giveUp))

	handle("POST", "create_model", endpoint(s.createModel))
	handle("POST", "get_info", endpoint(s.info))
	handle("POST", "unload_model", endpoint(s.unload))
	handle("POST", "forward_backward", s.forwardBackward)
	handle("POST", "forward", s.forwardBackward)
	handle("POST", "optim_step", endpoint(s.optimStep))

	handle("POST", "save_weights", endpoint(s.saveWeights))
	handle("POST", "save_weights_for_sampler", endpoint(s.saveForSampler))
	handle("POST", "save_weights_external", endpoint(s.saveExternal))
	handle("POST", "load_weights", endpoint(s.loadWeights))
	handle("POST", "weights_info", endpoint(s.weightsInfo))
	handle("GET", "checkpoints", s.listCheckpoints)
	handle("GET", "training_runs", s.listRuns)
	handle("GET", "training_runs/{run}", s.getRun)
	handle("GET", "training_runs/{run}/checkpoints", s.listCheckpoints)
	checkpoint := "training_runs/{run}/checkpoints/{kind}/{name}"
	handle("DELETE", checkpoint, s.deleteCheckpoint)
	handle("PUT", checkpoint+"/ttl", s.setTTL)
	handle("GET", checkpoint+"/external_weights_urls", s.urls)
	handle("GET", checkpoint+"/archive", s.archive)
	handle("GET", checkpoint+"/files/{file}", s.file)

	handle("POST", "create_sampling_session", endpoint(s.createSampler))
	handle("POST", "join_sampling_session", endpoint(s.joinSampler))
	handle("GET", "samplers/{sampler}", s.getSampler)
	handle("POST", "asample", endpoint(s.sample))
	for _, path := range absent {
		to.Handle(path, http.HandlerFunc(refuse))
	}
}

// absent are services of a cloud.
var absent = []string{"POST /api/v1/auth/token", "/api/v1/billing/", "POST /api/v1/billing_usage", "/api/v1/audit_log",
	"/api/v1/projects/", "/api/v1/admin/", "POST /api/v1/copy_weights", "POST /api/v1/create_custom_loss",
	"POST /api/v1/sessions/search", "PUT /api/v1/sessions/{session}/project",
	"GET /api/v1/sessions/{session}/trace_export", "POST /api/v1/retrieve_futures",
	"POST /api/v1/training_runs/{run}/checkpoints/{kind}/{name}/publish",
	"DELETE /api/v1/training_runs/{run}/checkpoints/{kind}/{name}/publish"}

func refuse(w http.ResponseWriter, r *http.Request) {
	serve.Fail(w, http.StatusNotFound, r.URL.Path+" is a service of the hosted Tinker: this server has no accounts, "+
		"bills, projects, publications, traces or losses that run on it")
}

// endpoint makes a handler of a function from a request's JSON to that of the answer.
func endpoint[In any](f func(ctx context.Context, in In) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		err := serve.Decode(r, &in)
		var out any
		if err == nil {
			out, err = f(r.Context(), in)
		}
		if err != nil {
			serve.FailAs(w, err)
			return
		}
		serve.Answer(w, http.StatusOK, out)
	}
}

func missing(what, id string) *serve.Error {
	return &serve.Error{Status: http.StatusNotFound, Type: "invalid_request_error",
		Message: fmt.Sprintf("there is no %s %.100q", what, id)}
}

// trainable says why the host's model cannot be trained, if so.
func (s *Server) trainable() error {
	model := s.host.Model()
	if policy, err := s.host.Policy(model.Name); err != nil || policy != model.Base {
		return errors.Join(err, serve.Bad("base_model", "%s is an adapter, and only a model can be trained: serve its base",
			model.Name))
	}
	return nil
}

func (s *Server) capabilities(w http.ResponseWriter, _ *http.Request) {
	model := s.host.Model()
	var all []any
	for _, name := range s.host.Names() {
		all = append(all, map[string]any{"model_name": name, "max_context_length": model.MaxLength,
			"trainable": name == model.Name && s.trainable() == nil, "sampleable": true})
	}
	serve.Answer(w, http.StatusOK, map[string]any{"supported_models": all})
}
