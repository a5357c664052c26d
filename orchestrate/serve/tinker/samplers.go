package tinker

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
	"gyre/torch"
)

// sampler is what a client samples from: weights that do not change.
type sampler struct {
	id       string
	owner    *session
	name     string // of a model that the host has; "" with a dir
	dir      string // where the weights of a checkpoint lie
	lora     torch.LoRA
	path     string              // that the client gave; "" for none
	snapshot *checkpoint.Pending // the folder of weights without a name; nil for others
	clones   atomic.Int64        // clients that share it
}

func (s *Server) createSampler(_ *http.Request, in struct {
	Session string `json:"session_id"`
	Seq     int64  `json:"sampling_session_seq_id"`
	Base    string `json:"base_model"`
	Path    string `json:"model_path"`
}) (any, error) {
	ss, err := s.session(in.Session)
	if err != nil {
		return nil, err
	}
	p := &sampler{path: in.Path}
	if in.Path == "" {
		if _, err := s.host.Policy(in.Base); err != nil {
			return nil, err
		}
		p.name = in.Base
	} else {
		at, st, err := s.found(in.Path, in.Base)
		if err != nil {
			return nil, err
		}
		p.dir, p.lora = filepath.Join(s.dir(at), "actor"), st.LoRA
	}
	if err := s.addSampler(ss, in.Seq, p); err != nil {
		return nil, err
	}
	return map[string]string{"type": "create_sampling_session", "sampling_session_id": p.id}, nil
}

// snapshots is the folder of a model's weights that have no name.
const snapshots = "snapshots"

// maxSamplers bounds a session's, each of which may hold a folder.
const maxSamplers = 4096

// addSampler adds a sampler to a session, under the number that the client gives it.
func (s *Server) addSampler(ss *session, seq int64, p *sampler) error {
	p.id, p.owner = fmt.Sprintf("%s:sample:%d", ss.id, seq), ss
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ss.ctx.Err() != nil:
		return gone("session", ss.id)
	case s.samplers[p.id] != nil: // a request that is sent again
		return nil
	case len(ss.samplers) >= maxSamplers:
		return serve.Bad("", "the session has %d samplers: begin another", maxSamplers)
	}
	s.samplers[p.id] = p
	ss.samplers = append(ss.samplers, p)
	return nil
}

// saveForSampler saves weights under a name, or makes a sampler of them as they are when the request's turn comes.
func (s *Server) saveForSampler(_ *http.Request, in struct {
	saving
	Sampler *int64 `json:"sampling_session_seq_id"`
	Kind    string `json:"kind"`
}) (any, error) {
	if in.Path != nil {
		in.Overwrite = false
		return s.save(in.saving, sampling)
	}
	return s.submit(in.ID, in.Seq, 0, func(ctx context.Context, m *model) (any, error) {
		if in.Sampler == nil {
			return nil, serve.Bad("path", "the name of the checkpoint is missing, or the number of a sampler")
		}
		if in.Kind != "" && in.Kind != "snapshot" {
			return nil, serve.Bad("kind", "a sampler of kind %.40q is not here, but \"snapshot\": weights that "+
				"change while "+
				"a reply is sampled are no policy's", in.Kind)
		}
		p := &sampler{lora: m.lora}
		m.snapshots++
		parent, name := filepath.Join(s.options.Dir, m.id, snapshots), fmt.Sprint(m.snapshots)
		var err error
		if p.snapshot, err = s.write(ctx, m, parent, name, false); err != nil {
			return nil, err
		}
		p.dir = filepath.Join(p.snapshot.Dir, "actor")
		if err := s.addSampler(m.owner, *in.Sampler, p); err != nil {
			return nil, cmp.Or(p.snapshot.Discard(), err)
		}
		return map[string]string{"sampling_session_id": p.id}, nil
	})
}

func (s *Server) getSampler(r *http.Request, _ struct{}) (any, error) {
	p, err := s.sampler(r.PathValue("sampler"))
	if err != nil {
		return nil, err
	}
	out := map[string]any{"sampler_id": p.id, "base_model": cmp.Or(p.name, s.host.Model().Name)}
	if p.path != "" {
		out["model_path"] = p.path
	}
	return out, nil
}

func (s *Server) joinSampler(_ *http.Request, in struct {
	ID string `json:"sampling_session_id"`
}) (any, error) {
	p, err := s.sampler(in.ID)
	if err != nil {
		return nil, err
	}
	return map[string]any{"type": "join_sampling_session", "client_counter": p.clones.Add(1)}, nil
}

// cache holds the weights of checkpoints that are sampled from, and some that were.
type cache struct {
	host   *host.Host
	mu     sync.Mutex         // guards loaded, and the fields of its values that say so
	loaded map[string]*loaded // by dir
}

// idleBytes bounds the weights that are kept although nobody samples from them.
const idleBytes = 1 << 30

// loaded are weights in memory: an adapter beside the host's base, or a host of their own.
type loaded struct {
	once   sync.Once // fills in what follows
	host   *host.Host
	policy *torch.Model // nil: the host's
	bytes  int64
	err    error

	// Below: cache.mu.
	users int
	used  time.Time
}

// take loads the weights of a sampler unless they are there. The caller hands them back.
func (c *cache) take(p *sampler) (*loaded, error) {
	c.mu.Lock()
	l := c.loaded[p.dir]
	if l == nil {
		l = &loaded{host: c.host}
		c.loaded[p.dir] = l
	}
	l.users++
	c.mu.Unlock()
	l.once.Do(func() { l.err = c.load(l, p) })
	if l.err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.loaded[p.dir] == l { // the next one tries again
			delete(c.loaded, p.dir)
		}
	}
	return l, l.err
}

func (c *cache) load(l *loaded, p *sampler) (err error) {
	served := c.host.Model()
	set, err := trainable(served, p.lora, p.dir, 0)
	if err != nil {
		return err
	}
	l.bytes = 4 * set.Count(served.Shape)
	if set.Base() != "" {
		l.policy, err = set.Attach(served.Base, torch.HeadLM, checkpoint.Ranks{})
		return err
	}
	l.host, err = host.Open(context.Background(), host.Options{Dir: p.dir, Placement: served.Shape.Placement,
		MaxLength: int64(served.MaxLength)})
	return err
}

// back hands weights back, and frees those that were used longest ago where too many are idle.
func (c *cache) back(l *loaded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.users, l.used = l.users-1, time.Now()
	for {
		oldest, total := "", int64(0)
		for dir, other := range c.loaded {
			if other.users > 0 {
				continue
			}
			total += other.bytes
			if oldest == "" || other.used.Before(c.loaded[oldest].used) {
				oldest = dir
			}
		}
		if total <= idleBytes {
			return
		}
		c.loaded[oldest].free(c.host)
		delete(c.loaded, oldest)
	}
}

// free closes what nobody uses.
func (l *loaded) free(shared *host.Host) {
	if l.policy != nil {
		l.policy.Close()
	}
	if l.host != shared && l.host != nil {
		l.host.Close()
	}
}

// forget frees weights that nobody will ask for again.
func (c *cache) forget(dir string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.loaded[dir]; l != nil {
		delete(c.loaded, dir)
		l.free(c.host)
	}
}

func (c *cache) close() {
	for dir := range c.loaded { // nobody samples any more
		c.forget(dir)
	}
}
