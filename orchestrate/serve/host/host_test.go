package host

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"gyre/orchestrate/model/checkpoint/policyinit"
	"gyre/torch"
)

// open serves a policy of a few thousand parameters.
func open(t *testing.T, change func(*Options)) *Host {
	t.Helper()
	dir, o := t.TempDir(), policyinit.Defaults
	o.Hidden, o.Layers, o.Heads, o.KVHeads, o.Intermediate, o.Vocab, o.Std = 16, 2, 2, 1, 32, 259, 0.2
	o.MaxPositions = 1 << 16
	if _, err := policyinit.Create(dir, o); err != nil {
		t.Fatal(err)
	}
	options := Options{Dir: dir, Name: "tiny", Placement: torch.Placement{Device: "cpu", Compute: torch.ComputeF32}}
	if change != nil {
		change(&options)
	}
	h, err := Open(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func request(seed uint64, tokens int) Request {
	r := Request{Prompt: []int32{5, 6, 7, int32(8 + seed%100)}, Sampling: Sampling()}
	r.Sampling.Seed, r.Sampling.MaxTokens, r.Sampling.IgnoreEOS = seed, tokens, true
	return r
}

// Whoever asks gets what the same request gives alone, with the log-probs of the trainer, piece by piece and whole.
func TestManyAreServedExactly(t *testing.T) {
	h := open(t, nil)
	ask := func(seed uint64) torch.Output {
		s, err := h.Generate(t.Context(), request(seed, 24))
		if err != nil {
			t.Error(err)
			return torch.Output{}
		}
		var tokens []int32
		var logprobs []float32
		for p := range s.Pieces() {
			tokens, logprobs = append(tokens, p.Tokens...), append(logprobs, p.Logprobs...)
		}
		out, err := s.Wait()
		if err != nil || !slices.Equal(tokens, out.Tokens) || !slices.Equal(logprobs, out.Logprobs) ||
			out.Finish != torch.FinishLength {
			t.Errorf("seed %d: pieces %v and %v, whole %+v (%v)", seed, tokens, logprobs, out, err)
		}
		return out
	}
	alone := make([]torch.Output, 12)
	for i := range alone {
		alone[i] = ask(uint64(i))
	}
	var all sync.WaitGroup
	for i := range alone {
		all.Go(func() {
			if out := ask(uint64(i)); !slices.Equal(out.Tokens, alone[i].Tokens) ||
				!slices.Equal(out.Logprobs, alone[i].Logprobs) {
				t.Errorf("request %d differs in company", i)
			}
		})
	}
	all.Wait()
	err := h.Do(t.Context(), func() error {
		ids := slices.Concat(request(3, 0).Prompt, alone[3].Tokens)
		logprobs, err := h.Model().Base.Logprobs(torch.Pack([][]int32{ids}, nil), 1)
		if err == nil && !slices.Equal(logprobs[4:], alone[3].Logprobs) {
			t.Errorf("drawn with %v, scored %v", alone[3].Logprobs, logprobs[4:])
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// settled waits until nothing is asked of the engine.
func settled(t *testing.T, h *Host) torch.EngineStats {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s := h.Stats()
		if s.Running+s.Waiting == 0 && h.Unfinished() == 0 {
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("a minute later %+v", s)
		}
	}
}

func TestAClientThatVanishesFreesItsBlocks(t *testing.T) {
	h := open(t, func(o *Options) { o.MaxLength = 40000 })
	ctx, cancel := context.WithCancel(t.Context())
	var streams []*Stream
	for i := range 4 {
		s, err := h.Generate(ctx, request(uint64(i), 39000))
		if err != nil {
			t.Fatal(err)
		}
		for range s.Pieces() {
			break // it has begun
		}
		streams = append(streams, s)
	}
	if s := h.Stats(); s.Running == 0 || s.BlocksFree+s.BlocksCached == s.BlocksTotal {
		t.Errorf("while they run: %+v", s)
	}
	cancel()
	for _, s := range streams {
		if _, err := s.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("a request that was given up: %v", err)
		}
	}
	if s := settled(t, h); s.BlocksFree+s.BlocksCached != s.BlocksTotal {
		t.Errorf("afterwards blocks are held: %+v", s)
	}
}

func TestTheQueueIsBounded(t *testing.T) {
	h := open(t, func(o *Options) { o.MaxSequences, o.MaxWaiting = 1, 1 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		if _, err := h.Generate(ctx, request(1, 30000)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Generate(ctx, request(1, 1)); !errors.Is(err, ErrBusy) {
		t.Errorf("the third of two: %v", err)
	}
	cancel()
	settled(t, h)
	if _, err := h.Generate(t.Context(), request(1, 1)); err != nil {
		t.Errorf("after the others: %v", err)
	}
}

func TestCloseFinishesWhatRuns(t *testing.T) {
	h := open(t, nil)
	s, err := h.Generate(t.Context(), request(1, 50))
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	if out, err := s.Wait(); err != nil || len(out.Tokens) != 50 {
		t.Errorf("the request that was running: %+v, %v", out, err)
	}
	if _, err := h.Generate(t.Context(), request(1, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("a request after Close: %v", err)
	}
	if err := h.Do(t.Context(), func() error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("Do after Close: %v", err)
	}
	h.Close()
}

func TestWhatCannotBeServed(t *testing.T) {
	h := open(t, nil)
	for name, prompt := range map[string][]int32{"empty": nil, "foreign": {259}, "negative": {-1},
		"long": make([]int32, 32768)} {
		r := request(1, 1)
		r.Prompt = prompt
		var refused *PromptError
		if _, err := h.Generate(t.Context(), r); !errors.As(err, &refused) {
			t.Errorf("%s prompt: %v", name, err)
		}
	}
	r := request(1, 1)
	r.Sampling.TopP = 2
	if _, err := h.Generate(t.Context(), r); !errors.Is(err, torch.ErrInvalidArgument) {
		t.Errorf("top-p 2: %v", err)
	}
	var unknown *UnknownModelError
	if _, err := h.Policy("tinny"); !errors.As(err, &unknown) ||
		err.Error() != `no model is called "tinny" (did you mean tiny?): there are ["tiny"]` {
		t.Errorf("unknown name: %v", err)
	}
	if err := h.Do(t.Context(), func() error { panic("oops") }); err == nil {
		t.Error("a panic is no error")
	}
	if n := h.Unfinished(); n != 0 {
		t.Errorf("%d requests are left", n)
	}
}
