package tinker

import (
	"cmp"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gyre/internal/atomicfile"
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

// listCheckpoints lists those of a run, or of all.
func (s *Server) listCheckpoints(r *http.Request, _ struct{}) (any, error) {
	run := r.PathValue("run")
	if run != "" && !runNames.MatchString(run) {
		return nil, missing("training run", run)
	}
	all := s.list(run)
	return map[string]any{"checkpoints": all,
		"cursor": map[string]int{"offset": 0, "limit": len(all), "total_count": len(all)}}, nil
}

// getRun describes a model that learns, or that checkpoints were left of.
func (s *Server) getRun(r *http.Request, _ struct{}) (any, error) {
	id := r.PathValue("run")
	out := map[string]any{"training_run_id": id, "base_model": s.host.Model().Name, "model_owner": "local",
		"corrupted": false, "last_checkpoint": nil, "last_sampler_checkpoint": nil}
	describe := func(rank int32, used time.Time, metadata map[string]any) {
		out["is_lora"], out["lora_rank"] = rank > 0, rank
		out["last_request_time"], out["user_metadata"] = used, metadata
	}
	if runNames.MatchString(id) {
		for _, c := range slices.Backward(s.list(id)) { // the newest comes last
			describe(c.state.LoRA.Rank, c.Time, c.state.Model)
			switch c.place.kind {
			case training:
				out["last_checkpoint"] = c
			case sampling:
				out["last_sampler_checkpoint"] = c
			}
		}
	}
	if m, err := s.model(id); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		describe(m.lora.Rank, m.used, m.metadata)
	}
	if out["is_lora"] == nil {
		return nil, missing("training run", id)
	}
	return out, nil
}

func (s *Server) weightsInfo(_ *http.Request, in struct {
	Path string `json:"tinker_path"`
}) (any, error) {
	_, st, err := s.lookUp(in.Path)
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

func (s *Server) deleteCheckpoint(r *http.Request, _ struct{}) (any, error) {
	p, err := s.asked(r)
	if err == nil {
		err = atomicfile.RemoveDir(s.dir(p))
	}
	if err == nil {
		s.cache.forget(filepath.Join(s.dir(p), "actor"))
	}
	return struct{}{}, err
}

// setTTL gives a checkpoint another end, or with null none.
func (s *Server) setTTL(r *http.Request, in struct {
	TTL *int64 `json:"ttl_seconds"`
}) (any, error) {
	p, err := s.asked(r)
	if err != nil {
		return nil, err
	}
	at, err := until(in.TTL)
	if err != nil {
		return nil, err
	}
	text := []byte{}
	if at != nil {
		text, _ = at.MarshalText() // a year of four digits has a text
	}
	return struct{}{}, os.WriteFile(filepath.Join(s.dir(p), ttlName), text, 0o644)
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
