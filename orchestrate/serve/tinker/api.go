package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
)

// Options say where checkpoints lie and how much clients may hold. Zero values have a default.
type Options struct {
	Dir       string        // for what clients save; made when somebody saves
	Silence   time.Duration // after which a session that is not heard of ends; 2 minutes
	KeyNeeded bool          // requests carry a key, so that a plain URL downloads nothing
	Warn      func(text string)
}

// maxModels learn at a time.
const maxModels = 32

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

	mu       sync.Mutex // guards what follows, and the fields of its values that say so
	sessions map[string]*session
	models   map[string]*model
	samplers map[string]*sampler
	futures  map[string]*future
}

// New makes a server of a host's model. Close it before the host.
func New(h *host.Host, o Options) *Server {
	o.Silence = cmp.Or(o.Silence, 2*time.Minute)
	s := &Server{host: h, options: o, slots: make(chan struct{}, 128), sessions: map[string]*session{},
		models: map[string]*model{}, samplers: map[string]*sampler{}, futures: map[string]*future{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := atomicfile.Sweep(o.Dir); err != nil { // of a server that was killed
		s.warn("%v", err)
	}
	s.cache = cache{host: h, loaded: map[string]*loaded{}}
	s.watcher.Go(s.watch)
	return s
}

// Close ends all sessions and frees the models.
func (s *Server) Close() {
	s.cancel()
	s.watcher.Wait()
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.sessions))
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
	answer := func(out any) http.Handler {
		return serve.Endpoint(func(*http.Request, struct{}) (any, error) { return out, nil })
	}
	checkpoint := "training_runs/{run}/checkpoints/{kind}/{name}"
	for path, handler := range map[string]http.Handler{
		"GET healthz":                 answer(map[string]string{"status": "ok"}),
		"POST client/config":          answer(struct{}{}),
		"POST client/dynamic_config":  answer(map[string]bool{"sample_cancel_enabled": true}),
		"POST telemetry":              answer(map[string]string{"status": "accepted"}), // is not kept
		"GET get_server_capabilities": serve.Endpoint(s.capabilities),

		"POST create_session":            serve.Endpoint(s.createSession),
		"POST session_heartbeat":         serve.Endpoint(s.heartbeat),
		"POST sessions/{session}/finish": serve.Endpoint(s.finishSession),
		"POST retrieve_future":           http.HandlerFunc(s.retrieve),
		"POST cancel_future":             serve.Endpoint(s.giveUp),

		"POST create_model":     serve.Endpoint(s.createModel),
		"POST get_info":         serve.Endpoint(s.info),
		"POST unload_model":     serve.Endpoint(s.unload),
		"POST forward_backward": serve.Endpoint(s.forwardBackward),
		"POST forward":          serve.Endpoint(s.forwardBackward),
		"POST optim_step":       serve.Endpoint(s.optimStep),

		"POST save_weights":                            serve.Endpoint(s.saveWeights),
		"POST save_weights_for_sampler":                serve.Endpoint(s.saveForSampler),
		"POST save_weights_external":                   serve.Endpoint(s.saveExternal),
		"POST load_weights":                            serve.Endpoint(s.loadWeights),
		"POST weights_info":                            serve.Endpoint(s.weightsInfo),
		"GET checkpoints":                              serve.Endpoint(s.listCheckpoints),
		"GET training_runs/{run}":                      serve.Endpoint(s.getRun),
		"GET training_runs/{run}/checkpoints":          serve.Endpoint(s.listCheckpoints),
		"DELETE " + checkpoint:                         serve.Endpoint(s.deleteCheckpoint),
		"PUT " + checkpoint + "/ttl":                   serve.Endpoint(s.setTTL),
		"GET " + checkpoint + "/external_weights_urls": serve.Endpoint(s.urls),
		"GET " + checkpoint + "/archive":               http.HandlerFunc(s.archive),
		"GET " + checkpoint + "/files/{file}":          http.HandlerFunc(s.file),

		"POST create_sampling_session": serve.Endpoint(s.createSampler),
		"POST join_sampling_session":   serve.Endpoint(s.joinSampler),
		"GET samplers/{sampler}":       serve.Endpoint(s.getSampler),
		"POST asample":                 serve.Endpoint(s.sample),
		"":                             serve.Endpoint(absent),
	} {
		method, path, _ := strings.Cut(path, " ")
		to.Handle(strings.TrimSpace(method+" "+root+path), handler)
	}
}

// absent answers for services of a cloud, and for what there is nowhere.
func absent(r *http.Request, _ struct{}) (any, error) {
	return nil, serve.Refuse(http.StatusNotFound, "%s %.200q is not here: this server has no accounts, bills, audits, "+
		"projects, publications, traces or losses that run on it", r.Method, r.URL.Path)
}

func missing(what, id string) *serve.Error {
	return serve.Refuse(http.StatusNotFound, "there is no %s %.100q", what, id)
}

// refusal says why the host's model cannot be trained, if so.
func (s *Server) refusal() error {
	model := s.host.Model()
	if policy, err := s.host.Policy(model.Name); err != nil || policy != model.Base {
		return errors.Join(err, serve.Bad("base_model", "%s is an adapter, and only a model can be trained: serve "+
			"its base", model.Name))
	}
	return nil
}

func (s *Server) capabilities(*http.Request, struct{}) (any, error) {
	model := s.host.Model()
	var all []any
	for _, name := range s.host.Names() {
		all = append(all, map[string]any{"model_name": name, "max_context_length": model.MaxLength,
			"trainable": name == model.Name && s.refusal() == nil, "sampleable": true})
	}
	return map[string]any{"supported_models": all}, nil
}
