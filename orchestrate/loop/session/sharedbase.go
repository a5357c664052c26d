package session

import (
	"context"
	"fmt"
	"sync"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/checkpoint"
	"gyre/torch"
)

// SharedBase is what runs in one process share: the base that their adapters lie beside, and the engine that samples
// for all of them in one batch.
type SharedBase struct {
	mu     sync.Mutex // guards base, dir and engine, until Close
	base   *torch.Model
	dir    string // of the base
	engine *torch.Engine
	shared *generation.Shared
}

// NewSharedBase holds nothing yet: the first tenant opens what the others share. Close it after they have left.
func NewSharedBase() *SharedBase { return &SharedBase{shared: generation.NewShared()} }

// Close frees the base and the engine.
func (s *SharedBase) Close() {
	if s.engine != nil {
		s.engine.Close()
	}
	if s.base != nil {
		s.base.Close()
	}
}

// Tenant is a run on a shared base; nil is a run alone, which opens its own.
type Tenant struct {
	*generation.Member
	shared *SharedBase
}

// Join waits for the run's first turn. Leave ends its stay.
func (s *SharedBase) Join(ctx context.Context) (*Tenant, error) {
	member, err := s.shared.Join(ctx)
	return &Tenant{member, s}, err
}

// Base is the model that the policy's adapter lies beside.
func (t *Tenant) Base(policy *experiment.Model, ranks checkpoint.Ranks) (base *torch.Model, notes []string, err error) {
	if t == nil {
		return policy.LoadBase(ranks)
	}
	s := t.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == nil {
		if s.base, notes, err = policy.LoadBase(ranks); err != nil {
			return nil, nil, err
		}
		s.dir = policy.Dir
	}
	if s.dir != policy.Dir {
		return nil, nil, fmt.Errorf("its base is %s, but that of the runs in this process is %s", policy.Dir, s.dir)
	}
	return s.base.Share(), notes, nil
}

// engineOf is the engine that samples from a policy.
func (t *Tenant) engineOf(policy *torch.Model, c *config.Config) (generation.Sampler, error) {
	own := torch.EngineConfig{
		KVBytes: int64(c.Engine.KVMiB) << 20, MaxSequences: int64(c.Engine.MaxSequences),
		MaxLength: int64(c.Rollout.MaxLength), MaxBatchTokens: int64(c.Engine.MaxBatchTokens),
		PrefixCache: true, CUDAGraphs: c.Engine.CUDAGraphs,
	}
	if c.Engine.Speculation == "auto" {
		own.SpeculativeTokens = torch.SpeculativeTokens
	}
	if t == nil {
		return torch.NewEngine(policy, own)
	}
	s := t.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.engine == nil {
		var err error
		if s.engine, err = torch.NewEngine(s.base, own); err != nil {
			return nil, err
		}
		s.shared.Use(s.engine)
	}
	t.Policy = policy
	return t.Member, nil
}
