package experiment

import (
	"context"
	"fmt"
	"sync"

	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/checkpoint"
	"gyre/torch"
)

// Host holds what runs in one process share: the base that their adapters lie beside, and the engine that samples for
// all of them in one batch.
type Host struct {
	mu     sync.Mutex // of opening; the guests take turns otherwise
	base   *torch.Model
	dir    string // of the base
	engine *torch.Engine
	shared *generation.Shared
}

// NewHost holds nothing yet: the first guest opens what the others share. Close it after they have left.
func NewHost() *Host { return &Host{shared: generation.NewShared()} }

// Close frees the base and the engine.
func (h *Host) Close() {
	if h.engine != nil {
		h.engine.Close()
	}
	if h.base != nil {
		h.base.Close()
	}
}

// Guest is a run at a host; nil is a run alone, which opens its own.
type Guest struct {
	*generation.Member
	host *Host
}

// Join waits for the run's first turn. Leave ends its stay.
func (h *Host) Join(ctx context.Context) (*Guest, error) {
	member, err := h.shared.Join(ctx)
	return &Guest{member, h}, err
}

// Base is the model that the policy's adapter lies beside.
func (g *Guest) Base(policy *Model, ranks checkpoint.Ranks) (base *torch.Model, notes []string, err error) {
	if g == nil {
		return policy.LoadBase(ranks)
	}
	h := g.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.base == nil {
		if h.base, notes, err = policy.LoadBase(ranks); err != nil {
			return nil, nil, err
		}
		h.dir = policy.Dir
	}
	if h.dir != policy.Dir {
		return nil, nil, fmt.Errorf("its base is %s, but that of the runs in this process is %s", policy.Dir, h.dir)
	}
	return h.base.Share(), notes, nil
}

// engineOf is the engine that samples from an experiment's policy.
func (g *Guest) engineOf(policy *torch.Model, e *Experiment) (generation.Sampler, error) {
	c := e.Config
	own := torch.EngineConfig{
		KVBytes: int64(c.Engine.KVMiB) << 20, MaxSequences: int64(c.Engine.MaxSequences),
		MaxLength: int64(c.Rollout.MaxLength), MaxBatchTokens: int64(c.Engine.MaxBatchTokens),
		PrefixCache: c.Engine.PrefixCache, CUDAGraphs: c.Engine.CUDAGraphs,
		AlwaysSpeculate: c.Engine.Speculation == "always",
	}
	if c.Engine.Speculation != "off" {
		own.SpeculativeTokens = int64(c.Engine.SpeculativeTokens)
	}
	if g == nil {
		return NewEngine(policy, own, e.Draft)
	}
	h := g.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.engine == nil {
		var err error
		if h.engine, err = NewEngine(h.base, own, e.Draft); err != nil {
			return nil, err
		}
		h.shared.Use(h.engine)
	}
	g.Policy = policy
	return g.Member, nil
}
