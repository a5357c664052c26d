package tinker

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/serve"
	"gyre/torch"
)

// The kinds of checkpoints: with the optimizer's state, to sample from, and for other programs.
const (
	training = "weights"
	sampling = "sampler_weights"
	external = "external_weights"
)

// kinds are what clients call them.
var kinds = map[string]string{training: "training", sampling: "sampler", external: "external"}

// place is where a checkpoint lies: tinker://RUN/KIND/NAME.
type place struct{ run, kind, name string }

const scheme = "tinker://"

var (
	runNames  = regexp.MustCompile(`^[A-Z2-7]{26}:train:[0-9]{1,9}$`)
	goodNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

func (p place) String() string { return scheme + p.run + "/" + p.kind + "/" + p.name }

// id is what a client calls the checkpoint among those of its run.
func (p place) id() string { return p.kind + "/" + p.name }

// check refuses names that could lead anywhere else.
func (p place) check() error {
	if !runNames.MatchString(p.run) || kinds[p.kind] == "" || !goodNames.MatchString(p.name) {
		return serve.Bad("path", "%.200q is no checkpoint's name: a name has letters, digits, dots, hyphens and "+
			"underscores, 128 at most, and a path is %sMODEL_ID/KIND/NAME as this server gave it", p.String(), scheme)
	}
	return nil
}

// dir is the folder of a place that was checked.
func (s *Server) dir(p place) string { return filepath.Join(s.options.Dir, p.run, p.kind, p.name) }

// state is what a checkpoint says of itself.
type state struct {
	Base     string            `json:"base_model"`
	Print    string            `json:"base_fingerprint"`
	LoRA     torch.LoRA        `json:"lora"`
	Saved    time.Time         `json:"saved"`
	Expires  *time.Time        `json:"expires,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Model    map[string]any    `json:"model_metadata,omitempty"`
}

// ttlName is the file that holds another end of a checkpoint's life than the one that it was saved with.
const ttlName = "expires.json"

// read says what a checkpoint is.
func (s *Server) read(p place) (state, error) {
	var st state
	err := checkpoint.ReadState(s.dir(p), &st)
	if err != nil {
		if _, there := os.Stat(s.dir(p)); errors.Is(there, fs.ErrNotExist) {
			return st, missing("checkpoint", p.String())
		}
		return st, err
	}
	if end, err := os.ReadFile(filepath.Join(s.dir(p), ttlName)); err == nil {
		var at time.Time
		st.Expires = nil
		if at.UnmarshalText(end) == nil && !at.IsZero() {
			st.Expires = &at
		}
	}
	return st, nil
}

// saving is what requests to save have in common.
type saving struct {
	ID        string            `json:"model_id"`
	Seq       int64             `json:"seq_id"`
	Path      *string           `json:"path"`
	Overwrite bool              `json:"overwrite"`
	TTL       *int64            `json:"ttl_seconds"`
	Metadata  map[string]string `json:"user_metadata"`
}

func (s *Server) saveWeights(_ *http.Request, in saving) (any, error) { return s.save(in, training) }

// save writes a checkpoint when the model's turn comes, encrypted to age's recipients if there are any.
func (s *Server) save(in saving, kind string, recipients ...string) (any, error) {
	return s.submit(in.ID, in.Seq, 0, func(ctx context.Context, m *model) (any, error) {
		if in.Path == nil {
			return nil, serve.Bad("path", "the name of the checkpoint is missing")
		}
		at := place{in.ID, kind, *in.Path}
		if err := at.check(); err != nil {
			return nil, err
		}
		expires, err := until(in.TTL)
		if err != nil {
			return nil, err
		}
		if !in.Overwrite && atomicfile.Exists(s.dir(at)) {
			return nil, serve.Bad("path", "there is a checkpoint %s already: give another name, or overwrite it", at)
		}
		p, err := s.write(ctx, m, filepath.Dir(s.dir(at)), at.name, kind == training)
		if err != nil {
			return nil, err
		}
		if len(recipients) > 0 {
			if err := encrypt(filepath.Join(p.Dir, "actor"), recipients); err != nil {
				return nil, errors.Join(err, p.Discard())
			}
		}
		if err := atomicfile.RemoveDir(s.dir(at)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(err, p.Discard())
		}
		print, err := checkpoint.Fingerprint(s.host.Model().Dir)
		if err != nil {
			return nil, errors.Join(err, p.Discard())
		}
		err = p.Commit(state{Base: s.host.Model().Name, Print: print, LoRA: m.lora, Saved: time.Now().UTC(),
			Expires: expires, Metadata: in.Metadata, Model: m.metadata})
		return map[string]string{"path": at.String()}, err
	})
}

// until is the end of a life of so many seconds.
func until(ttl *int64) (*time.Time, error) {
	if ttl == nil {
		return nil, nil
	}
	if *ttl < 1 || *ttl > 10*366*24*3600 {
		return nil, serve.Bad("ttl_seconds", "ttl_seconds is %d, expected 1 to 10 years, or none", *ttl)
	}
	at := time.Now().UTC().Add(time.Duration(*ttl) * time.Second)
	return &at, nil
}

// write puts a model's weights into a new folder of parent that has no name yet: the layout of a run's checkpoint.
func (s *Server) write(ctx context.Context, m *model, parent, name string,
	optimizer bool) (*checkpoint.Pending, error) {
	p, err := checkpoint.Begin(parent, name)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(p.Dir, "actor")
	err = os.Mkdir(dir, 0o755)
	if err == nil {
		err = m.learner.Trains.Save(ctx, m.learner.Model, dir)
	}
	if err == nil && optimizer {
		err = checkpoint.SaveOptimizer(ctx, optimizerOf(p.Dir), m.learner.Model, m.learner.Optimizer)
	}
	if err != nil {
		return nil, errors.Join(err, p.Discard())
	}
	return p, nil
}

func optimizerOf(dir string) string { return filepath.Join(dir, "optimizer.safetensors") }

// loadWeights gives a model the weights of a checkpoint, or makes one of them.
func (s *Server) loadWeights(_ *http.Request, in struct {
	ID        string           `json:"model_id"`
	Seq       int64            `json:"seq_id"`
	Session   string           `json:"session_id"`
	ModelSeq  int64            `json:"model_seq_id"`
	Base      string           `json:"base_model"`
	Metadata  map[string]any   `json:"user_metadata"`
	Path      string           `json:"path"`
	Optimizer bool             `json:"optimizer"`
	Config    *optimizerConfig `json:"optimizer_config"`
}) (any, error) {
	restore := func(m *model) (any, error) {
		at, st, err := s.found(in.Path, in.Base)
		if err == nil {
			err = in.Config.check()
		}
		if err != nil {
			return nil, err
		}
		if m.lora != st.LoRA {
			return nil, serve.Bad("path", "%s is of another kind (%+v) than the model (%+v)", at, st.LoRA, m.lora)
		}
		err = s.load(m, filepath.Join(s.dir(at), "actor"), 0)
		if err == nil && in.Optimizer {
			err = checkpoint.LoadOptimizer(optimizerOf(s.dir(at)), m.learner.Model, m.learner.Optimizer)
		}
		return map[string]string{"type": "load_weights", "path": in.Path, "model_id": m.id}, err
	}
	if in.Session != "" {
		_, st, err := s.found(in.Path, in.Base)
		if err != nil {
			return nil, err
		}
		return s.open(in.Session, in.ModelSeq, &model{lora: st.LoRA, metadata: in.Metadata}, restore)
	}
	return s.submit(in.ID, in.Seq, 0, func(_ context.Context, m *model) (any, error) { return restore(m) })
}

// lookUp finds a checkpoint.
func (s *Server) lookUp(path string) (at place, st state, err error) {
	name, ours := strings.CutPrefix(path, scheme)
	parts := strings.Split(name, "/")
	if !ours || len(parts) != 3 {
		return at, st, serve.Bad("path", "%.200q is no checkpoint, expected %sMODEL_ID/KIND/NAME", path, scheme)
	}
	at = place{parts[0], parts[1], parts[2]}
	if err = at.check(); err == nil {
		st, err = s.read(at)
	}
	return at, st, err
}

// found looks a checkpoint up, and refuses one of another base.
func (s *Server) found(path, wanted string) (place, state, error) {
	served := s.host.Model()
	at, st, err := s.lookUp(path)
	if err == nil && wanted != "" && wanted != served.Name {
		err = serve.Bad("base_model", "this server has %q, not %.200q", served.Name, wanted)
	}
	if err != nil {
		return at, st, err
	}
	print, err := checkpoint.Fingerprint(served.Dir)
	if err == nil && print != st.Print {
		err = serve.Bad("path", "%s was trained on another base (%s) than the one that is served (%s)", at, st.Base,
			served.Name)
	}
	return at, st, err
}
