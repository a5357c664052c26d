package tinker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/serve"
	"gyre/torch"
)

// model is one that learns. Its goroutine runs its jobs one after another.
type model struct {
	id       string
	owner    *session
	lora     torch.LoRA // rank 0: a full copy
	metadata map[string]any
	ctx      context.Context // ends with the session, or when the model is unloaded
	cancel   context.CancelFunc
	ended    chan struct{} // closed once the weights are freed

	mu   sync.Mutex
	jobs map[int64]job
	next int64 // the number of the job that comes next, from 1 on
	wake chan struct{}
	used time.Time

	// Below: the goroutine only.
	learner   *train.Learner
	snapshots int
}

// job is a request of a model.
type job struct {
	future *future
	bytes  int64
	run    func(ctx context.Context) (any, error)
}

const (
	maxQueued  = 1 << 30 // bytes of all requests that wait for their turn
	maxAhead   = 1 << 16 // jobs that may wait for one before them
	passTokens = 2048    // of one forward and backward pass
	alpha      = 32      // of all adapters, as in "LoRA Without Regret" (Schulman and Thinking Machines, 2025)
)

// loraConfig describes an adapter; without one, or with rank 0, all weights are trained.
type loraConfig struct {
	Rank    int32   `json:"rank"`
	Seed    *uint64 `json:"seed"`
	Unembed *bool   `json:"train_unembed"`
	MLP     *bool   `json:"train_mlp"`
	Attn    *bool   `json:"train_attn"`
}

type optimizerConfig struct {
	Type string `json:"type"`
}

func (o *optimizerConfig) check() error {
	if o != nil && o.Type != "adamw" {
		return serve.Bad("optimizer_config", "there is no optimizer %.40q, expected \"adamw\"", o.Type)
	}
	return nil
}

// adapter is the adapter that is asked for.
func (c *loraConfig) adapter(shape torch.ModelConfig) (lora torch.LoRA, seed uint64, err error) {
	if c == nil || c.Rank == 0 {
		return lora, 0, nil
	}
	if c.Rank < 0 || int64(c.Rank) > shape.HiddenSize {
		return lora, 0, serve.Bad("lora_config", "the rank is %d, expected 1 to %d, the model's width, or 0 to train "+
			"all weights", c.Rank, shape.HiddenSize)
	}
	lora = torch.LoRA{Rank: c.Rank, Scale: alpha / float64(c.Rank)}
	for _, part := range []struct {
		wanted *bool
		names  []string
	}{
		{c.Attn, []string{"q_proj", "k_proj", "v_proj", "o_proj"}},
		{c.MLP, []string{"gate_proj", "up_proj", "down_proj"}},
		{c.Unembed, []string{"lm_head"}},
	} {
		if part.wanted == nil || *part.wanted {
			lora.Targets |= torch.TargetsOf(part.names)
		}
	}
	if lora.Targets == 0 {
		return lora, 0, serve.Bad("lora_config", "nothing is to be trained: set train_attn, train_mlp or train_unembed")
	}
	return lora, serve.Given(c.Seed, rand.Uint64()), nil
}

func (s *Server) createModel(_ *http.Request, in struct {
	Session   string           `json:"session_id"`
	Seq       int64            `json:"model_seq_id"`
	Base      string           `json:"base_model"`
	LoRA      *loraConfig      `json:"lora_config"`
	Optimizer *optimizerConfig `json:"optimizer_config"`
	Metadata  map[string]any   `json:"user_metadata"`
}) (any, error) {
	if served := s.host.Model().Name; in.Base != served {
		return nil, serve.Bad("base_model", "this server trains %q, not %.200q", served, in.Base)
	}
	if err := in.Optimizer.check(); err != nil {
		return nil, err
	}
	lora, seed, err := in.LoRA.adapter(s.host.Model().Shape)
	if err != nil {
		return nil, err
	}
	return s.open(in.Session, in.Seq, &model{lora: lora, metadata: in.Metadata}, func(m *model) (any, error) {
		return map[string]string{"type": "create_model", "model_id": m.id}, s.load(m, "", seed)
	})
}

// open adds a model to a session. Its goroutine begins with load, whose result is that of the future.
func (s *Server) open(session string, seq int64, m *model, load func(*model) (any, error)) (any, error) {
	ss, err := s.session(session)
	if err == nil {
		err = s.trainable()
	}
	if err != nil {
		return nil, err
	}
	m.id = fmt.Sprintf("%s:train:%d", ss.id, seq)
	m.owner, m.jobs, m.next, m.wake = ss, map[int64]job{}, 1, make(chan struct{}, 1)
	m.ended, m.used = make(chan struct{}), time.Now()
	f, fresh, err := s.begin(ss, m.id+":create")
	if err != nil {
		return nil, err
	}
	out := promised{RequestID: f.id, ModelID: m.id}
	if !fresh {
		return out, nil
	}
	m.ctx, m.cancel = context.WithCancel(ss.ctx)
	s.mu.Lock()
	full := len(s.models) >= s.options.MaxModels
	if !full {
		s.models[m.id] = m
		ss.models = append(ss.models, m)
	} else {
		s.drop(f)
	}
	s.mu.Unlock()
	if full {
		return nil, serve.Bad("", "%d models are being trained, which is the server's limit: unload one, or end its "+
			"session", s.options.MaxModels)
	}
	return out, s.launch(ss, func() { m.live(f, load, s) })
}

// live is the model's goroutine.
func (m *model) live(opened *future, load func(*model) (any, error), s *Server) {
	defer close(m.ended)
	defer m.cancel()
	out, err := load(m)
	opened.finish(out, err)
	if err != nil {
		s.mu.Lock()
		delete(s.models, m.id)
		s.mu.Unlock()
		return
	}
	defer func() { m.learner.Close() }()
	for {
		j, ok := m.take()
		if !ok {
			return
		}
		j.future.finish(j.run(m.ctx))
		s.queued.Add(-j.bytes)
	}
}

// take waits for the job that comes next.
func (m *model) take() (job, bool) {
	for {
		m.mu.Lock()
		j, here := m.jobs[m.next]
		if here {
			delete(m.jobs, m.next)
			m.next++
		}
		m.mu.Unlock()
		if m.ctx.Err() != nil {
			return job{}, false
		}
		if here {
			return j, true
		}
		select {
		case <-m.wake:
		case <-m.ctx.Done():
			return job{}, false
		}
	}
}

// submit queues a job under its number. The same number again is the same request. A mistake in what is asked for is
// the job's failure, since the client has used the number up: the next request would wait for it for ever.
func (s *Server) submit(id string, seq, bytes int64,
	run func(ctx context.Context, m *model) (any, error)) (any, error) {
	m, err := s.model(id)
	if err != nil {
		return nil, err
	}
	if s.queued.Load()+bytes > maxQueued {
		return nil, serve.Refuse(http.StatusTooManyRequests, "too many requests wait for their turn: try again later")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used = time.Now()
	if seq < 1 || seq > m.next+maxAhead {
		return nil, serve.Bad("seq_id", "seq_id is %d, but the next request of the model is %d", seq, m.next)
	}
	f, fresh, err := s.begin(m.owner, fmt.Sprintf("%s:%d", m.id, seq))
	if err != nil {
		return nil, err
	}
	out := promised{RequestID: f.id, ModelID: m.id}
	if !fresh {
		return out, nil
	}
	if seq < m.next {
		s.mu.Lock()
		s.drop(f)
		s.mu.Unlock()
		return nil, gone("result of request", f.id)
	}
	s.queued.Add(bytes)
	m.jobs[seq] = job{f, bytes, func(ctx context.Context) (any, error) { return run(ctx, m) }}
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return out, nil
}

// model finds one, whose session has thereby been heard of.
func (s *Server) model(id string) (*model, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.models[id]
	if m == nil {
		return nil, missing("model", id)
	}
	m.owner.seen = time.Now()
	return m, nil
}

// load makes the weights of a model: those in dir, or where dir is "" an adapter that follows from the seed, or a copy
// of the host's model.
func (s *Server) load(m *model, dir string, seed uint64) error {
	weights, err := s.weights(m.lora, dir, seed)
	if err != nil {
		return err
	}
	learner, err := train.NewLearner(weights, train.Placement{PassTokens: passTokens}, &train.Optimization{})
	if err != nil {
		weights.Close()
		return err
	}
	m.learner.Close()
	m.learner = learner
	return nil
}

func (s *Server) weights(lora torch.LoRA, dir string, seed uint64) (*torch.Model, error) {
	served := s.host.Model()
	if lora.Rank > 0 {
		return checkpoint.NewAdapter(served.Base, lora, torch.HeadLM, checkpoint.Ranks{}, dir, seed)
	}
	if dir == "" {
		dir = served.Dir
	}
	on := served.Shape.Placement
	on.Frozen = false
	opened, err := experiment.OpenModel(dir, torch.HeadLM, on)
	if err != nil {
		return nil, err
	}
	loaded, _, err := opened.Load()
	return loaded, err
}

func (s *Server) info(_ *http.Request, in struct {
	ID string `json:"model_id"`
}) (any, error) {
	m, err := s.model(in.ID)
	if err != nil {
		return nil, err
	}
	served := s.host.Model()
	data := map[string]any{"arch": served.Shape.Family.String(), "model_name": served.Name}
	if at, err := filepath.Abs(served.Name); err == nil && atomicfile.Exists(at, "tokenizer.json") {
		data["tokenizer_id"] = at // the client would cut a part off some paths
	}
	return map[string]any{"type": "get_info", "model_id": m.id, "model_data": data, "is_lora": m.lora.Rank > 0,
		"lora_rank": m.lora.Rank, "model_name": served.Name}, nil
}

// unload frees a model.
func (s *Server) unload(r *http.Request, in struct {
	ID string `json:"model_id"`
}) (any, error) {
	m, err := s.model(in.ID)
	if err != nil {
		return nil, err
	}
	f, fresh, err := s.begin(m.owner, m.id+":unload")
	if err != nil || !fresh {
		return promised{RequestID: m.id + ":unload", ModelID: m.id}, err
	}
	s.mu.Lock()
	delete(s.models, m.id)
	s.mu.Unlock()
	m.cancel()
	select {
	case <-m.ended:
	case <-r.Context().Done():
	}
	f.finish(map[string]string{"type": "unload_model", "model_id": m.id}, nil)
	return promised{RequestID: f.id, ModelID: m.id}, nil
}
