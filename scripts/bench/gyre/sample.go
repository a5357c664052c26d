package gyre

import (
	"fmt"
	"time"

	"gyre/orchestrate/loop/generation"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
	"gyre/torch"
)

// batchTokens is the trainer's default (engine.max_batch_tokens).
const batchTokens = 1024

// sampler is an engine that fits a shape of requests.
type sampler struct {
	engine              *torch.Engine
	driver              *generation.Driver
	sequences, capacity int
	next                uint64 // request id
}

// open gives an engine for so many sequences of so many tokens: the one at hand if it has that shape.
func (s *server) open(sequences, length int) (*sampler, error) {
	if s.sampler != nil && s.sampler.sequences == sequences && s.sampler.capacity == length {
		return s.sampler, nil
	}
	if s.sampler != nil {
		s.sampler.engine.Close()
	}
	engine, err := torch.NewEngine(s.loaded, torch.EngineConfig{MaxSequences: int64(sequences),
		MaxLength: int64(length), MaxBatchTokens: batchTokens, PrefixCache: true,
		SpeculativeTokens: int64(s.Speculate)})
	if err != nil {
		return nil, err
	}
	s.holds(engine)
	s.sampler = &sampler{engine: engine, driver: generation.New(engine, nil), sequences: sequences, capacity: length}
	return s.sampler, nil
}

// submit asks for new tokens after a prompt, at temperature 1 and without an end.
func (p *sampler) submit(prompt []int32, tokens int, seed uint64, temperature float64,
	policy *torch.Model) (uint64, error) {
	p.next++
	return p.next, p.driver.Submit(generation.Request{Request: torch.Request{ID: p.next, Prompt: prompt, Policy: policy,
		Sampling: torch.Sampling{
			Temperature: temperature, TopP: 1, MaxTokens: tokens, Seed: seed + p.next, IgnoreEOS: true,
		}}})
}

// finished is what a batch of requests came to.
type finished struct {
	outputs map[uint64]torch.Output
	first   time.Duration // until no prompt was being computed any more
	later   int           // tokens sampled after that
}

// run steps the engine until all requests are done. Prompts are done with the last step that computed some of one.
func (p *sampler) run(tokens int) (finished, error) {
	begin := time.Now()
	f := finished{outputs: map[uint64]torch.Output{}}
	before, err := p.engine.Stats()
	if err != nil {
		return f, err
	}
	drawn := func(s torch.EngineStats) int64 { return s.DecodeTokens - s.ProposedTokens + s.AcceptedTokens }
	decoded := drawn(before)
	for p.driver.Unfinished() > 0 {
		outputs, err := p.driver.Step()
		if err != nil {
			return f, err
		}
		for _, o := range outputs {
			if len(o.Tokens) != tokens {
				return f, fmt.Errorf("request %d has %d tokens, expected %d", o.ID, len(o.Tokens), tokens)
			}
			f.outputs[o.ID] = o
		}
		after, err := p.engine.Stats()
		if err != nil {
			return f, err
		}
		if after.PrefillTokens > before.PrefillTokens {
			f.first, decoded = time.Since(begin), drawn(after)
		}
		before = after
	}
	f.later = int(drawn(before) - decoded)
	return f, nil
}

func (s *server) generate(t work.Task) (worker.Figures, error) {
	// A warm-up asks for fewer tokens but must leave the engine that the repeats use.
	p, err := s.open(len(t.Prompts)*t.Copies, max(len(t.Prompts[0])+t.New, 256))
	if err != nil {
		return worker.Figures{}, err
	}
	temperature := 0.0
	if t.Op == work.OpGenerate {
		temperature = 1
	}
	begin := time.Now()
	for n, prompt := range t.Prompts {
		for range t.Copies {
			if _, err := p.submit(prompt, t.New, t.Seed, temperature, s.policy(t, n)); err != nil {
				return worker.Figures{}, err
			}
		}
	}
	f, err := p.run(t.New)
	figures := worker.Figures{Seconds: time.Since(begin).Seconds(), FirstSeconds: f.first.Seconds(),
		LaterTokens: f.later}
	for _, o := range f.outputs {
		if figures.Cached += o.CachedTokens; t.Op == work.OpGreedy {
			figures.Output = o.Tokens
		}
	}
	return figures, err
}

// rolloutLength is the least capacity for a history, so that a short warm-up leaves the engine that the repeats use.
const rolloutLength = 1024

// rollout plays all episodes turn by turn; every request carries the whole history. Weights have changed since the
// repeat before, as they have between the rollouts of a run, so no keys and values survive it.
func (s *server) rollout(t work.Task) (worker.Figures, error) {
	longest := 0
	for _, episode := range t.Observations {
		n := len(episode) * t.New
		for _, ids := range episode {
			n += len(ids)
		}
		longest = max(longest, n)
	}
	p, err := s.open(len(t.Observations), max(longest, rolloutLength))
	if err != nil {
		return worker.Figures{}, err
	}
	if err := s.forget(p); err != nil {
		return worker.Figures{}, err
	}
	histories := make([][]int32, len(t.Observations))
	var figures worker.Figures
	for turn := range t.Observations[0] {
		begin := time.Now()
		asked := make([]uint64, len(histories))
		for e := range histories {
			histories[e] = append(histories[e], t.Observations[e][turn]...)
			if asked[e], err = p.submit(histories[e], t.New, t.Seed, 1, nil); err != nil {
				return figures, err
			}
		}
		f, err := p.run(t.New)
		if err != nil {
			return figures, err
		}
		for e, id := range asked {
			histories[e] = append(histories[e], f.outputs[id].Tokens...)
			figures.Cached += f.outputs[id].CachedTokens
		}
		seconds := time.Since(begin).Seconds()
		figures.TurnSeconds = append(figures.TurnSeconds, seconds)
		figures.Seconds += seconds
	}
	return figures, nil
}

// forget invalidates all keys and values, and samples a token so that what follows from new weights is done before the
// clock starts.
func (s *server) forget(p *sampler) error {
	if err := s.loaded.Touch(); err != nil {
		return err
	}
	if _, err := p.submit([]int32{1, 2, 3}, 1, 0, 1, nil); err != nil {
		return err
	}
	_, err := p.run(1)
	return err
}
