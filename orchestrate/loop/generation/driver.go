// Package generation drives an engine: it submits requests, steps until their replies are complete and hands them out,
// while they grow or when they are finished. Playing episodes, `gyre generate`, the proof that sampler = trainer and
// the benchmarks all go through it.
//
//	driver := generation.New(engine, tokenizer)
//	err := driver.Submit(generation.Request{Request: request, Grown: func(p generation.Piece) { fmt.Print(p.Text) }})
//	err = driver.Run(ctx, func(out torch.Output) error { … })
//
// The text of a growing reply is well-formed UTF-8 at any moment, holds special tokens that delimit and none that ends
// it, and ends before a stop string of the request: what could still become part of one is held back. A driver belongs
// to one goroutine, as its engine does.
package generation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/chat/bpe"
	"gyre/torch"
)

// Engine decodes with continuous batching. Requests are submitted at any time, Step advances all of them by a token,
// Progress tells what they grew by, Poll takes those that have finished, Abort ends one early. SetVocabulary comes
// before the first stop string. Several ranks may be one engine: see [torch.Engine.TensorParallel].
type Engine interface {
	Submit(torch.Request) error
	Step() (unfinished int, err error)
	Progress() ([]torch.Partial, error)
	Poll() ([]torch.Output, error)
	Abort(id uint64) error
	SetVocabulary([][]byte) error
	// TensorParallel runs run, which submits and steps, where this rank's engine takes requests. Where it follows
	// another's it computes its shard of that one's steps until run has returned there.
	TensorParallel(ctx context.Context, run func() error) error
	// Follows tells whether requests go to another rank's engine.
	Follows() bool
}

// Tokenizer gives tokens their text.
type Tokenizer interface {
	Stream(skipSpecial bool) bpe.Stream
	Vocabulary() [][]byte
}

// Source answers requests: a Driver with the engine of this process, package endpoint with a server.
type Source interface {
	Submit(Request) error
	// Step returns replies that have become complete. It waits a moment for them and may return none.
	Step() ([]torch.Output, error)
	// Release gives up everything unfinished.
	Release() error
	// TensorParallel and Follows are an Engine's; a server has one process to do with.
	TensorParallel(ctx context.Context, run func() error) error
	Follows() bool
}

// Chat is a prompt as messages, for servers that take text. Prefix opens the reply.
type Chat struct {
	Messages []chat.Message
	Tools    []chat.Tool
	Prefix   string
}

// Request asks for a reply.
type Request struct {
	torch.Request
	// Chat, if not nil, says what Prompt says in messages.
	Chat func() Chat
	// Grown, if not nil, is called by Step with what is new of the reply; the last call has Last set.
	Grown func(Piece)
}

// Piece is what is new of a growing reply. Pieces of one reply joined are the whole of it.
type Piece struct {
	Tokens   []int32
	Logprobs []float32 // as in [torch.Output]
	// Alternatives are those of each token, where the request asks for them.
	Alternatives [][]torch.Alternative
	Text         string // see the package comment; empty without a tokenizer
	Last         bool
}

// Driver steps an engine.
type Driver struct {
	Engine Engine
	// Tolerant hands out a request whose policy has diverged, while those of other policies go on, as an output that
	// ends with [torch.FinishNotFinite]. Otherwise it is an error of the step.
	Tolerant   bool
	tokenizer  Tokenizer
	vocabulary bool // the engine has it
	live       map[uint64]*reply
	growing    int // live replies that somebody watches
}

// reply is one that is being sampled.
type reply struct {
	grown func(Piece)
	sent  int // tokens
	text  *Text
}

// New makes a driver. The tokenizer may be nil where nobody asks for text or stop strings.
func New(engine Engine, tokenizer Tokenizer) *Driver {
	return &Driver{Engine: engine, tokenizer: tokenizer, live: map[uint64]*reply{}}
}

// Submit queues a request.
func (d *Driver) Submit(r Request) error {
	if _, taken := d.live[r.ID]; taken {
		return fmt.Errorf("request %d is being sampled already", r.ID)
	}
	if len(r.StopStrings) > 0 && !d.vocabulary {
		if d.tokenizer == nil {
			return fmt.Errorf("request %d stops at strings, which needs a tokenizer", r.ID)
		}
		if err := d.Engine.SetVocabulary(d.tokenizer.Vocabulary()); err != nil {
			return err
		}
		d.vocabulary = true
	}
	if err := d.Engine.Submit(r.Request); err != nil {
		return err
	}
	live := &reply{grown: r.Grown}
	if r.Grown != nil {
		d.growing++
		if d.tokenizer != nil {
			live.text = NewText(d.tokenizer, r.StopStrings)
		}
	}
	d.live[r.ID] = live
	return nil
}

// TensorParallel is the engine's.
func (d *Driver) TensorParallel(ctx context.Context, run func() error) error {
	return d.Engine.TensorParallel(ctx, run)
}

// Follows is the engine's.
func (d *Driver) Follows() bool { return d.Engine.Follows() }

// Unfinished counts the requests whose replies are not complete.
func (d *Driver) Unfinished() int { return len(d.live) }

// Step advances all replies by one step of the engine and returns those that it finished.
func (d *Driver) Step() ([]torch.Output, error) {
	unfinished, err := d.Engine.Step()
	if err != nil {
		return nil, err
	}
	if d.growing > 0 {
		partial, err := d.Engine.Progress()
		if err != nil {
			return nil, err
		}
		for _, p := range partial {
			if r := d.live[p.ID]; r != nil && r.grown != nil {
				r.send(p.Position, p.Tokens, p.Logprobs, p.Alternatives)
			}
		}
	}
	finished, err := d.Engine.Poll()
	if err != nil {
		return nil, err
	}
	for _, out := range finished {
		if err := d.finish(out); err != nil {
			return nil, err
		}
		if out.Finish == torch.FinishNotFinite && !d.Tolerant {
			return nil, fmt.Errorf("request %d: its policy's logits are %w: it has diverged", out.ID,
				torch.ErrNotFinite)
		}
	}
	if unfinished == 0 && len(d.live) > 0 {
		return nil, fmt.Errorf("the engine forgot %d requests, %d among them", len(d.live),
			slices.Min(slices.Collect(maps.Keys(d.live))))
	}
	return finished, nil
}

func (d *Driver) finish(out torch.Output) error {
	r, asked := d.live[out.ID]
	if !asked {
		return fmt.Errorf("the engine finished request %d, which was not submitted", out.ID)
	}
	delete(d.live, out.ID)
	if r.grown != nil {
		d.growing--
		r.send(0, out.Tokens, out.Logprobs, out.Alternatives)
		last := Piece{Last: true}
		if r.text != nil {
			last.Text = r.text.Finish()
		}
		r.grown(last)
	}
	return nil
}

// send passes on what is new of a reply's tokens from position on.
func (r *reply) send(position int, tokens []int32, logprobs []float32, beside [][]torch.Alternative) {
	known := r.sent - position
	if known < 0 || known >= len(tokens) {
		return
	}
	piece := Piece{Tokens: tokens[known:], Logprobs: logprobs[known:]}
	if beside != nil {
		piece.Alternatives = beside[known:]
	}
	if r.text != nil {
		piece.Text = r.text.Add(piece.Tokens)
	}
	r.sent = position + len(tokens)
	r.grown(piece)
}

// Run steps until every reply is complete and calls finished, which may submit more, with each. At the end of ctx,
// and when anything fails, what is unfinished is given up.
func (d *Driver) Run(ctx context.Context, finished func(torch.Output) error) error {
	for len(d.live) > 0 {
		if err := ctx.Err(); err != nil {
			return errors.Join(context.Cause(ctx), d.Release())
		}
		outputs, err := d.Step()
		for _, out := range outputs {
			if err == nil {
				err = finished(out)
			}
		}
		if err != nil {
			return errors.Join(err, d.Release())
		}
	}
	return nil
}

// RowSeed keys the draws of row i, or of choice i, of a seed: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)
// over its place in the sequence that the seed starts.
func RowSeed(seed uint64, i int) uint64 {
	z := seed + (uint64(i)+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Withdraw gives up requests that are unfinished and returns what was drawn of them. What others have asked for goes
// on.
func (d *Driver) Withdraw(ids []uint64) ([]torch.Output, error) {
	for _, id := range ids {
		if err := d.Engine.Abort(id); err != nil {
			return nil, err
		}
	}
	outputs, err := d.Engine.Poll()
	for _, out := range outputs {
		if live := d.live[out.ID]; live != nil && live.grown != nil {
			d.growing--
		}
		delete(d.live, out.ID)
	}
	return outputs, err
}

// Release gives up everything unfinished and leaves nothing behind in the engine.
func (d *Driver) Release() error {
	finished, err := d.Engine.Poll() // what is finished can no longer be aborted
	problems := []error{err}
	for _, out := range finished {
		delete(d.live, out.ID)
	}
	for _, id := range slices.Sorted(maps.Keys(d.live)) {
		problems = append(problems, d.Engine.Abort(id))
	}
	_, err = d.Engine.Poll()
	d.live, d.growing = map[uint64]*reply{}, 0
	return errors.Join(append(problems, err)...)
}
