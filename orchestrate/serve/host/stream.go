package host

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"gyre/orchestrate/loop/generation"
	"gyre/torch"
)

// Request asks for a continuation of Prompt.
type Request struct {
	Prompt   []int32
	Sampling torch.Sampling // MaxTokens 0: as many as there is room for
	// StopIDs end the reply beside the model's own, which Sampling.IgnoreEOS switches off with them.
	StopIDs     []int32
	StopStrings []string
	// Policy is the model or an adapter beside its base: [Host.Policy], or what [Host.Do] made. nil is the model. Who
	// closes it waits for nobody.
	Policy *torch.Model
}

// Sampling is that of a request which says nothing: the whole distribution at temperature 1.
func Sampling() torch.Sampling { return torch.Sampling{Temperature: 1, TopP: 1} }

// PromptError says that a prompt cannot be continued.
type PromptError struct {
	problem string
	TooLong bool // or something else is wrong with it
}

func (e *PromptError) Error() string { return e.problem }

// Generate queues a request. The stream delivers its reply; the end of ctx aborts it.
func (h *Host) Generate(ctx context.Context, r Request) (*Stream, error) {
	if err := h.check(&r); err != nil {
		return nil, err
	}
	if h.closes.Load() {
		return nil, ErrClosed
	}
	if h.asked.Add(1) > h.options.MaxSequences+h.options.MaxWaiting {
		h.asked.Add(-1)
		return nil, ErrBusy
	}
	s := &Stream{host: h, ctx: ctx, id: h.nextID.Add(1), changed: make(chan struct{}, 1),
		ended: make(chan struct{})}
	refused := make(chan error, 1)
	request := generation.Request{Grown: s.add, Request: torch.Request{ID: s.id, Prompt: r.Prompt,
		Sampling: r.Sampling, StopIDs: slices.Concat(h.stop, r.StopIDs), StopStrings: r.StopStrings, Policy: r.Policy}}
	err := h.enter(ctx, func() {
		err := h.driver.Submit(request)
		if err == nil {
			h.live[s.id] = s
		}
		refused <- err
	})
	if err == nil {
		err = <-refused
	}
	if err != nil {
		h.asked.Add(-1)
		return nil, err
	}
	s.stop = context.AfterFunc(ctx, func() { // without an error when the loop has ended
		_ = h.enter(context.WithoutCancel(ctx), func() { h.abort(s.id) })
	})
	return s, nil
}

// CheckPrompt sees that a prompt can be continued or scored.
func (h *Host) CheckPrompt(ids []int32) error {
	vocabulary := h.model.Shape.VocabSize
	outside := slices.IndexFunc(ids, func(id int32) bool { return id < 0 || int64(id) >= vocabulary })
	switch {
	case len(ids) == 0:
		return &PromptError{problem: "the prompt has no tokens"}
	case outside >= 0:
		return &PromptError{problem: fmt.Sprintf("token %d of the prompt is %d, but the model's vocabulary has ids 0 "+
			"to %d", outside, ids[outside], vocabulary-1)}
	case len(ids) > h.model.MaxLength:
		return h.full(ids)
	}
	return nil
}

func (h *Host) full(ids []int32) error {
	return &PromptError{fmt.Sprintf("the prompt has %d tokens, but prompt and reply together may have %d", len(ids),
		h.model.MaxLength), true}
}

// check sees that a prompt can be continued, and fills in what the request leaves open.
func (h *Host) check(r *Request) error {
	if err := h.CheckPrompt(r.Prompt); err != nil {
		return err
	}
	room := h.model.MaxLength - len(r.Prompt)
	if room < 1 {
		return h.full(r.Prompt)
	}
	if r.Sampling.MaxTokens == 0 || r.Sampling.MaxTokens > room {
		r.Sampling.MaxTokens = room
	}
	if r.Policy == nil {
		r.Policy = h.policies[h.options.Name]
	}
	return nil
}

// Stream is a reply as it grows, for one reader.
type Stream struct {
	host *Host
	ctx  context.Context
	id   uint64
	stop func() bool // no longer watches ctx

	changed chan struct{} // there are new pieces; holds one
	ended   chan struct{} // closed once there will be no more

	mu     sync.Mutex // guards pieces
	pieces []generation.Piece

	// Written before ended is closed, read after.
	output torch.Output
	err    error
}

// add is called by the loop.
func (s *Stream) add(p generation.Piece) {
	s.mu.Lock()
	s.pieces = append(s.pieces, p)
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// end is called by the loop, once.
func (s *Stream) end(out torch.Output, err error) {
	s.output, s.err = out, err
	s.host.asked.Add(-1)
	close(s.ended)
}

// take gives what is new.
func (s *Stream) take() []generation.Piece {
	s.mu.Lock()
	defer s.mu.Unlock()
	pieces := s.pieces
	s.pieces = nil
	return pieces
}

// Pieces yields what is new of the reply as it is drawn, until it is complete or ctx ends. See [Stream.Wait] for which
// of them it was.
func (s *Stream) Pieces() iter.Seq[generation.Piece] {
	return func(yield func(generation.Piece) bool) {
		for more := true; more; {
			select {
			case <-s.changed:
			case <-s.ended:
				more = false
			case <-s.ctx.Done():
				return
			}
			for _, p := range s.take() {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// Wait returns the whole reply once it is complete, or the cause of ctx's end, or why the engine failed.
func (s *Stream) Wait() (torch.Output, error) {
	select {
	case <-s.ended:
	case <-s.ctx.Done():
		return torch.Output{}, context.Cause(s.ctx)
	}
	s.stop()
	switch {
	case s.err != nil:
		return s.output, s.err
	case s.output.Finish == torch.FinishAbort && s.ctx.Err() != nil:
		return s.output, context.Cause(s.ctx)
	case s.output.Finish == torch.FinishNotFinite:
		return s.output, fmt.Errorf("the logits of the model are %w: it has diverged", torch.ErrNotFinite)
	}
	return s.output, nil
}
