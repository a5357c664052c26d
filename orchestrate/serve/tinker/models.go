package tinker

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"time"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/model/checkpoint/peft"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
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

	// Below: Server.mu.
	turns map[int64]chan job // by number: where a job is handed to the goroutine
	now   int64              // the job that runs or is waited for, from 1 on; 0 while the weights are loaded
	used  time.Time

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
	for part, wanted := range map[string]*bool{"attention": c.Attn, "mlp": c.MLP, "head": c.Unembed} {
		if wanted == nil || *wanted {
			lora.Targets |= torch.TargetsOf(config.Targets{part}.Modules())
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
		err = s.refusal()
	}
	if err != nil {
		return nil, err
	}
	m.id = fmt.Sprintf("%s:train:%d", ss.id, seq)
	out := promised{RequestID: m.id + ":create", ModelID: m.id}
	return s.promise(ss, out, func(f *future) error {
		if len(s.models) >= maxModels {
			return serve.Bad("", "%d models are being trained, which is the server's limit: unload one, or end its "+
				"session", maxModels)
		}
		m.owner, m.turns, m.ended, m.used = ss, map[int64]chan job{}, make(chan struct{}), time.Now()
		m.ctx, m.cancel = context.WithCancel(ss.ctx)
		s.models[m.id], ss.models = m, append(ss.models, m)
		ss.work.Go(func() { s.live(m, f, load) })
		return nil
	})
}

// live is the model's goroutine.
func (s *Server) live(m *model, opened *future, load func(*model) (any, error)) {
	defer close(m.ended)
	out, err := load(m)
	opened.finish(out, err)
	defer s.leave(m)
	for err == nil {
		s.mu.Lock()
		delete(m.turns, m.now)
		m.now++
		turn := m.turn(m.now)
		s.mu.Unlock()
		select {
		case j := <-turn:
			j.future.finish(j.run(m.ctx))
			s.queued.Add(-j.bytes)
		case <-m.ctx.Done():
			return
		}
	}
}

// turn is where the job of a number is handed over. The caller holds the lock.
func (m *model) turn(seq int64) chan job {
	if m.turns[seq] == nil {
		m.turns[seq] = make(chan job, 1)
	}
	return m.turns[seq]
}

// leave frees a model, and tells those whose turn has not come.
func (s *Server) leave(m *model) {
	m.learner.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	m.cancel()
	delete(s.models, m.id)
	for _, turn := range m.turns {
		select {
		case j := <-turn:
			j.future.finish(nil, gone("model", m.id))
			s.queued.Add(-j.bytes)
		default:
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
	out := promised{RequestID: fmt.Sprintf("%s:%d", m.id, seq), ModelID: m.id}
	return s.promise(m.owner, out, func(f *future) error {
		m.used = time.Now()
		switch {
		case m.ctx.Err() != nil:
			return gone("model", m.id)
		case s.queued.Load()+bytes > maxQueued:
			return serve.Refuse(http.StatusTooManyRequests, "too many requests wait for their turn: try again later")
		case seq < 1 || seq > m.now+maxAhead:
			return serve.Bad("seq_id", "seq_id is %d, but the next request of the model is %d", seq, max(m.now, 1))
		case seq < m.now:
			return gone("result of request", f.id)
		}
		s.queued.Add(bytes)
		m.turn(seq) <- job{f, bytes, func(ctx context.Context) (any, error) { return run(ctx, m) }}
		return nil
	})
}

// load makes the weights of a model: those in dir, or where dir is "" an adapter that follows from the seed, or a copy
// of the host's model.
func (s *Server) load(m *model, dir string, seed uint64) error {
	set, err := trainable(s.host.Model(), m.lora, dir, seed)
	if err != nil {
		return err
	}
	weights, err := s.weights(set, dir)
	if err != nil {
		return err
	}
	learner, err := train.NewLearner(weights, train.Placement{PassTokens: passTokens}, &train.Optimization{})
	if err != nil {
		weights.Close()
		return err
	}
	learner.Trains = set
	m.learner.Close()
	m.learner = learner
	return nil
}

// trainable is the set that a description stands for: of rank 0 all weights of the model that is served, otherwise an
// adapter beside it with the values in dir, or where dir is "" with new ones that follow from the seed.
func trainable(served host.Model, lora torch.LoRA, dir string, seed uint64) (checkpoint.Trainable, error) {
	if lora.Rank == 0 {
		return checkpoint.AllWeights{Source: served.Dir, DType: torch.F32}, nil
	}
	base, err := filepath.Abs(served.Dir)
	return checkpoint.Adapter{LoRA: lora, Dir: dir, Seed: seed,
		Saved: peft.Config{Base: base, Alpha: lora.Scale * float64(lora.Rank)}}, err
}

func (s *Server) weights(set checkpoint.Trainable, dir string) (*torch.Model, error) {
	served := s.host.Model()
	if set.Base() != "" {
		return set.Attach(served.Base, torch.HeadLM, checkpoint.Ranks{})
	}
	dir = cmp.Or(dir, served.Dir)
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
	data := map[string]any{"arch": served.Shape.Family, "model_name": served.Name}
	if at, err := filepath.Abs(served.Name); err == nil && atomicfile.Exists(at, "tokenizer.json") {
		data["tokenizer_id"] = at // the client would cut a part off some paths
	}
	return map[string]any{"type": "get_info", "model_id": m.id, "model_data": data, "is_lora": m.lora.Rank > 0,
		"lora_rank": m.lora.Rank, "model_name": served.Name}, nil
}

// unload frees a model.
func (s *Server) unload(_ *http.Request, in struct {
	ID string `json:"model_id"`
}) (any, error) {
	m, err := s.model(in.ID)
	if err != nil {
		return nil, err
	}
	out := promised{RequestID: m.id + ":unload", ModelID: m.id}
	return s.promise(m.owner, out, func(f *future) error {
		delete(s.models, m.id)
		m.cancel()
		m.owner.work.Go(func() {
			<-m.ended
			f.finish(map[string]string{"type": "unload_model", "model_id": m.id}, nil)
		})
		return nil
	})
}
