package tinker

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/serve"
)

// listed is a checkpoint in a list.
type listed struct {
	ID       string            `json:"checkpoint_id"`
	Type     string            `json:"checkpoint_type"`
	Time     time.Time         `json:"time"`
	Path     string            `json:"tinker_path"`
	Size     int64             `json:"size_bytes"`
	Public   bool              `json:"public"`
	Metadata map[string]string `json:"user_metadata"`
	Expires  *time.Time        `json:"expires_at"`

	place place
	state state
}

// list finds the checkpoints of a run, or with "" of all, the newest first.
func (s *Server) list(run string) []listed {
	all := []listed{}
	if run == "" {
		run = "*"
	}
	found, _ := filepath.Glob(filepath.Join(s.options.Dir, run, "*", "*")) // of a pattern that is well-formed
	for _, dir := range found {
		kind := filepath.Dir(dir)
		p := place{filepath.Base(filepath.Dir(kind)), filepath.Base(kind), filepath.Base(dir)}
		if p.check() != nil {
			continue
		}
		st, err := s.read(p)
		if err != nil {
			continue
		}
		all = append(all, listed{ID: p.id(), Type: kinds[p.kind], Time: st.Saved, Path: p.String(), Size: sizeOf(dir),
			Metadata: st.Metadata, Expires: st.Expires, place: p, state: st})
	}
	slices.SortFunc(all, func(a, b listed) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Path, b.Path)) })
	return all
}

func sizeOf(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error { // what is being removed counts nothing
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}

// page takes the part of a list that a request asks for.
func page[T any](r *http.Request, all []T, usual int) (part []T, cursor map[string]int) {
	number := func(name string, usual int) int {
		if n, err := strconv.Atoi(r.URL.Query().Get(name)); err == nil && n >= 0 {
			return n
		}
		return usual
	}
	offset, limit := min(number("offset", 0), len(all)), number("limit", usual)
	return all[offset:min(offset+limit, len(all))], map[string]int{"offset": offset, "limit": limit, "total_count": len(all)}
}

func (s *Server) listCheckpoints(w http.ResponseWriter, r *http.Request) {
	run := r.PathValue("run")
	if run != "" && !runNames.MatchString(run) {
		serve.FailAs(w, missing("training run", run))
		return
	}
	part, cursor := page(r, s.list(run), 1000)
	serve.Answer(w, http.StatusOK, map[string]any{"checkpoints": part, "cursor": cursor})
}

// runs describes the models that learn, and those that checkpoints were left of.
func (s *Server) runs() []map[string]any {
	type run struct {
		rank int32
		used time.Time
		meta map[string]any
		last map[string]*listed // by kind, the newest
	}
	found := map[string]*run{}
	s.mu.Lock()
	for _, m := range s.models {
		m.mu.Lock()
		found[m.id] = &run{rank: m.lora.Rank, used: m.used, meta: m.metadata, last: map[string]*listed{}}
		m.mu.Unlock()
	}
	s.mu.Unlock()
	for _, c := range s.list("") {
		f := found[c.place.run]
		if f == nil {
			f = &run{rank: c.state.LoRA.Rank, used: c.Time, meta: c.state.Model, last: map[string]*listed{}}
			found[c.place.run] = f
		}
		if f.last[c.place.kind] == nil {
			f.last[c.place.kind] = &c
		}
	}
	out := []map[string]any{}
	for id, f := range found {
		out = append(out, map[string]any{"training_run_id": id, "base_model": s.host.Model().Name, "model_owner": "local",
			"is_lora": f.rank > 0, "lora_rank": f.rank, "corrupted": false, "last_request_time": f.used,
			"last_checkpoint": f.last[training], "last_sampler_checkpoint": f.last[sampling], "user_metadata": f.meta})
	}
	slices.SortFunc(out, func(a, b map[string]any) int {
		return cmp.Or(b["last_request_time"].(time.Time).Compare(a["last_request_time"].(time.Time)),
			cmp.Compare(a["training_run_id"].(string), b["training_run_id"].(string)))
	})
	return out
}

func (s *Server) listRuns(w http.ResponseWriter, r *http.Request) {
	part, cursor := page(r, s.runs(), 20)
	serve.Answer(w, http.StatusOK, map[string]any{"training_runs": part, "cursor": cursor})
}

func (s *Server) getRun(w http.ResponseWriter, r *http.Request) {
	for _, run := range s.runs() {
		if run["training_run_id"] == r.PathValue("run") {
			serve.Answer(w, http.StatusOK, run)
			return
		}
	}
	serve.FailAs(w, missing("training run", r.PathValue("run")))
}

func (s *Server) weightsInfo(_ context.Context, in struct {
	Path string `json:"tinker_path"`
}) (any, error) {
	at, err := parsePlace(in.Path)
	if err != nil {
		return nil, err
	}
	st, err := s.read(at)
	if err != nil {
		return nil, err
	}
	names := st.LoRA.Targets.Names()
	return map[string]any{"base_model": st.Base, "is_lora": st.LoRA.Rank > 0, "lora_rank": st.LoRA.Rank,
		"train_attn": slices.Contains(names, "q_proj"), "train_mlp": slices.Contains(names, "up_proj"),
		"train_unembed": slices.Contains(names, "lm_head")}, nil
}

// asked is the checkpoint that a request's path names.
func (s *Server) asked(r *http.Request) (place, error) {
	p := place{r.PathValue("run"), r.PathValue("kind"), r.PathValue("name")}
	err := p.check()
	if err == nil {
		_, err = s.read(p)
	}
	return p, err
}

func (s *Server) deleteCheckpoint(w http.ResponseWriter, r *http.Request) {
	p, err := s.asked(r)
	if err == nil {
		err = atomicfile.RemoveDir(s.dir(p))
	}
	if err != nil {
		serve.FailAs(w, err)
		return
	}
	s.cache.forget(filepath.Join(s.dir(p), "actor"))
	serve.Answer(w, http.StatusOK, struct{}{})
}

// setTTL gives a checkpoint another end, or with null none.
func (s *Server) setTTL(w http.ResponseWriter, r *http.Request) {
	var in struct {
		TTL *int64 `json:"ttl_seconds"`
	}
	p, err := s.asked(r)
	if err == nil {
		err = serve.Decode(r, &in)
	}
	var at *time.Time
	if err == nil {
		at, err = until(in.TTL)
	}
	if err == nil {
		text := []byte{}
		if at != nil {
			text, _ = at.MarshalText() // a year of four digits has a text
		}
		err = os.WriteFile(filepath.Join(s.dir(p), ttlName), text, 0o644)
	}
	if err != nil {
		serve.FailAs(w, err)
		return
	}
	serve.Answer(w, http.StatusOK, struct{}{})
}

// expire removes checkpoints whose time has come.
func (s *Server) expire() {
	for _, c := range s.list("") {
		if c.Expires != nil && time.Now().After(*c.Expires) {
			if err := atomicfile.RemoveDir(s.dir(c.place)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.warn("removing %s, which has expired: %v", c.Path, err)
			}
		}
	}
}
