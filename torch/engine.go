package torch

/*
#include "gyre_engine.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"
)

// EngineConfig (gyre_engine_config) bounds an engine. KVBytes is the budget of the pool of keys and values (0 = enough
// for MaxSequences × MaxLength), MaxSequences the sequences that decode together, MaxLength prompt plus output of one
// sequence, MaxBatchTokens the rows of one forward pass (longer prompts are computed in chunks). With PrefixCache,
// requests whose token ids begin alike share the keys and values of that beginning, those of finished requests
// included, and the results are the same bits as without. With CUDAGraphs, a GPU repeats steps that only decode as CUDA
// graphs.
//
// SpeculativeTokens bounds the next tokens that a pass tries beside a sequence's last one, where these are likely to
// be drawn and pay (always, with AlwaysSpeculate); 0: none. The results are the same bits. A device other than the
// CPU, whose rows depend on the pass around them, tries none.
type EngineConfig struct {
	KVBytes, MaxSequences, MaxLength, MaxBatchTokens int64
	PrefixCache                                      bool
	CUDAGraphs                                       bool
	SpeculativeTokens                                int64
	AlwaysSpeculate                                  bool
}

// SpeculativeTokens are what an engine tries where nobody says otherwise.
const SpeculativeTokens = 8

// Sampling (gyre_sampling) says how tokens are chosen. Order, as in vLLM: stop ids are masked while MinTokens forbids
// them, logits are divided by the temperature, then min-p, top-k and top-p cut the distribution, each on what the one
// before it left.
type Sampling struct {
	Temperature float64 // 0 = greedy: the lowest id on ties; log-probs are then those of temperature 1
	TopK        int     // keep the most likely tokens, lower ids first on ties; 0 = off
	TopP        float64 // keep the most likely tokens until their mass reaches it; 1 = off
	MinP        float64 // keep tokens at least so many times as likely as the most likely one; 0 = off
	MaxTokens   int     // the engine's MaxLength ends a sequence too
	MinTokens   int     // no stop id among these, and no stop string that ends before the last of them
	Seed        uint64  // the draw of output token p depends on (Seed, p) alone
	IgnoreEOS   bool    // stop ids do not stop
	// Alternatives are the likeliest tokens told beside each one that is drawn, at most MaxAlternatives.
	Alternatives int
}

// MaxAlternatives bounds Sampling.Alternatives.
const MaxAlternatives = C.GYRE_MAX_ALTERNATIVES

// Alternative (gyre_alternative) is a token that could have been drawn, with its log-prob as in [Output].
type Alternative struct {
	Token   int32
	Logprob float32
}

// Request asks for a continuation of Prompt.
type Request struct {
	ID          uint64 // unique among unfinished requests
	Prompt      []int32
	Sampling    Sampling
	StopIDs     []int32
	StopStrings []string // need [Engine.SetVocabulary]
	// Policy is the base of the engine's model, or an adapter beside that base; nil: the engine's model. It may be
	// closed before the request is finished.
	Policy *Model
	// Drawn says how many of the prompt's last tokens were drawn for this request before, when it was given up: its
	// reply goes on from there, to the tokens that it would have had. The output has them again, with log-probs of 0.
	Drawn int
	// Keep says when its keys and values stay in the engine after it has drawn a token, until [Engine.Forget] or
	// another request of its id. The engine has to have room for MaxSequences sequences of MaxLength tokens.
	Keep Keep
	// Kept: they did, and this request goes on from them, whatever weights computed them.
	Kept bool
}

// Keep is when a request leaves its keys and values in the engine: when it is aborted, or when its MaxTokens end it,
// too.
type Keep int32

const (
	KeepAborted Keep = C.GYRE_KEEP_ABORTED
	KeepCut     Keep = C.GYRE_KEEP_CUT
)

// Finish is the reason why a sequence ended.
type Finish int32

// A stop id or stop string, a length limit, [Engine.Abort], or logits that are not finite while other policies sample
// in the same engine.
const (
	FinishStop      Finish = C.GYRE_FINISH_STOP
	FinishLength    Finish = C.GYRE_FINISH_LENGTH
	FinishAbort     Finish = C.GYRE_FINISH_ABORT
	FinishNotFinite Finish = C.GYRE_FINISH_NOT_FINITE
)

var finishNames = [...]string{FinishStop: "stop", FinishLength: "length", FinishAbort: "abort",
	FinishNotFinite: "not_finite"}

// String is the finish_reason of generation APIs: "stop", "length" or "abort"; or "not_finite".
func (f Finish) String() string {
	if f < FinishStop || int(f) >= len(finishNames) {
		return fmt.Sprintf("Finish(%d)", int(f))
	}
	return finishNames[f]
}

// Output is a finished request. Logprobs are those of the policy being trained (logits/temperature, whole vocabulary;
// the bits of [Model.Logprobs]), SamplingLogprobs those of the filtered distribution that was sampled (0 for greedy).
type Output struct {
	ID               uint64
	Tokens           []int32 // the new tokens, a stop token included
	Logprobs         []float32
	SamplingLogprobs []float32
	Alternatives     [][]Alternative // of each token, in order of likelihood, lower ids first on ties
	Finish           Finish
	CachedTokens     int  // prompt tokens whose keys and values were found in the prefix cache
	Kept             bool // its keys and values stay in the engine
}

// EnginePhase (gyre_engine_phase) is one kind of an engine's work: the time spent on it and what was computed in that
// time.
type EnginePhase struct {
	Seconds float64
	Work    Work
}

// EngineStats (gyre_engine_stats_t) says what requests and memory an engine has now, and counts what it has done since
// it was made.
type EngineStats struct {
	Waiting, Running, Finished int64 // requests; Finished: not polled yet
	BlocksTotal, BlocksFree    int64 // blocks of keys and values; free ones hold nothing
	BlocksCached               int64 // held by the prefix cache alone: given up when needed
	BlocksPeak                 int64 // most blocks that running requests have held together
	BlockTokens                int64 // positions in a block
	// prompt tokens of requests that have started, and those of them found in the prefix cache
	PromptTokens, CachedTokens int64
	PrefillTokens              int64 // rows computed of prompts, and of anything computed again
	DecodeTokens               int64 // rows computed of freshly drawn tokens, and of proposed ones
	HeadRows                   int64 // rows of logits
	Preemptions, Steps         int64
	ProposedTokens             int64       // by speculation, in rows beside those of the drawn tokens before them
	AcceptedTokens             int64       // of them: those that were drawn
	Prefill, Decode            EnginePhase // in the decoder; a pass of both kinds is split in proportion to its rows
	Sample                     EnginePhase // computing logits and drawing from them
	KVBytes                    int64       // address space of the pool, 0 before the first step and after Sleep
}

// Engine generates by continuous batching over the model's own weights: an update of the model is in effect with the
// next step. A request's tokens and log-probs do not depend on what else the engine is doing.
type Engine struct {
	handle[*C.gyre_engine]

	// Below: executor thread only.
	outputs []C.gyre_output
	tokens  []int32
	values  [2][]float32
	beside  []Alternative // empty until somebody asks for them
}

// NewEngine makes an engine. The model stays in memory until the engine is closed.
func NewEngine(m *Model, config EngineConfig) (*Engine, error) {
	// Any single output fits in the poll buffers, so polling always makes progress.
	capacity := max(config.MaxLength, 4096)
	e := &Engine{}
	e.model, e.free = m, func(h *C.gyre_engine) { C.gyre_engine_free(h) }
	err := m.with(func(h *C.gyre_model) code {
		return C.gyre_engine_new(h, as[C.gyre_engine_config](&config), &e.c)
	})
	if err != nil {
		return nil, err
	}
	e.outputs, e.tokens = make([]C.gyre_output, 64), make([]int32, capacity)
	e.values = [2][]float32{make([]float32, capacity), make([]float32, capacity)}
	return e, nil
}

// SetVocabulary gives the bytes of every token id, which stop strings are looked for in.
func (e *Engine) SetVocabulary(vocabulary [][]byte) error {
	offsets := make([]int64, 1, len(vocabulary)+1)
	data := make([]byte, 0, 8*len(vocabulary)+1)
	for _, token := range vocabulary {
		data = append(data, token...)
		offsets = append(offsets, int64(len(data)))
	}
	return e.with(func(h *C.gyre_engine) code {
		return C.gyre_engine_set_vocabulary(h, (*C.uint8_t)(unsafe.SliceData(data)), (*C.int64_t)(&offsets[0]),
			C.int64_t(len(vocabulary)))
	})
}

// Submit queues a request. One that is malformed, or could not run even alone, gives an error that matches
// [ErrInvalidArgument].
func (e *Engine) Submit(r Request) error {
	return e.with(func(h *C.gyre_engine) code {
		var pin runtime.Pinner
		defer pin.Unpin()
		request := C.gyre_request{
			id: C.uint64_t(r.ID), prompt: pinned[C.int32_t](&pin, r.Prompt), prompt_len: C.int64_t(len(r.Prompt)),
			sampling: *as[C.gyre_sampling](&r.Sampling),
			stop_ids: pinned[C.int32_t](&pin, r.StopIDs), num_stop_ids: C.int64_t(len(r.StopIDs)), drawn: C.int64_t(r.Drawn),
			keep: C.int32_t(r.Keep), kept: C.bool(r.Kept),
		}
		if n := len(r.StopStrings); n > 0 {
			strings, lengths := make([]*C.char, n), make([]C.int64_t, n)
			for i, s := range r.StopStrings {
				strings[i], lengths[i] = pinned[C.char](&pin, append([]byte(s), 0)), C.int64_t(len(s))
			}
			request.stop_strings, request.num_stop_strings = pinned[*C.char](&pin, strings), C.int64_t(n)
			request.stop_string_lens = pinned[C.int64_t](&pin, lengths)
		}
		if r.Sampling.Alternatives > 0 && e.beside == nil {
			e.beside = make([]Alternative, len(e.tokens)*MaxAlternatives)
		}
		if r.Policy != nil {
			request.policy = r.Policy.open()
		}
		return C.gyre_engine_submit(h, &request)
	})
}

// Step runs one forward pass and draws one token for each sequence whose prompt is complete. It returns how many
// requests are waiting or running afterwards. Weights that give logits which are not finite make an error that matches
// [ErrNotFinite], or end with FinishNotFinite where requests of other policies go on.
func (e *Engine) Step() (unfinished int, err error) {
	var n C.int64_t
	err = e.with(func(h *C.gyre_engine) code { return C.gyre_engine_step(h, &n) })
	return int(n), err
}

// Partial is what an unfinished request has drawn since [Engine.Progress] told of it last.
type Partial struct {
	ID               uint64
	Position         int // of the first of these tokens in the reply
	Tokens           []int32
	Logprobs         []float32
	SamplingLogprobs []float32
	Alternatives     [][]Alternative
}

// Progress takes the tokens that unfinished requests have drawn since the last call, in the order of submission: for
// those who show replies while they grow, or [Engine.Abort] them at a text of their own. A finished request is polled
// whole, what was told included.
func (e *Engine) Progress() ([]Partial, error) {
	var all []Partial
	err := e.take(true, func(o Output, position int) {
		all = append(all, Partial{ID: o.ID, Position: position, Tokens: o.Tokens, Logprobs: o.Logprobs,
			SamplingLogprobs: o.SamplingLogprobs, Alternatives: o.Alternatives})
	})
	return all, err
}

// Poll takes all finished outputs, in the order in which they finished.
func (e *Engine) Poll() ([]Output, error) {
	var all []Output
	err := e.take(false, func(o Output, _ int) { all = append(all, o) })
	return all, err
}

// take fills the engine's buffers until nothing comes and hands on copies of what they held, with the position of the
// first token in the reply.
func (e *Engine) take(unfinished bool, each func(o Output, position int)) error {
	return e.with(func(h *C.gyre_engine) code {
		for {
			var count C.int64_t
			status := C.gyre_engine_poll(h, C.bool(unfinished), &e.outputs[0], C.int64_t(len(e.outputs)),
				(*C.int32_t)(&e.tokens[0]), floats(e.values[0]), floats(e.values[1]),
				(*C.gyre_alternative)(unsafe.Pointer(unsafe.SliceData(e.beside))), C.int64_t(len(e.tokens)), &count)
			if status != C.GYRE_OK || count == 0 {
				return status
			}
			for _, o := range e.outputs[:count] {
				from, to := int(o.token_offset), int(o.token_offset+o.num_tokens)
				out := Output{ID: uint64(o.id), Finish: Finish(o.finish), CachedTokens: int(o.cached_tokens),
					Kept: bool(o.kept), Tokens: slices.Clone(e.tokens[from:to]),
					Logprobs: slices.Clone(e.values[0][from:to]), SamplingLogprobs: slices.Clone(e.values[1][from:to])}
				for i := from; i < to && o.alternatives > 0; i++ {
					at := i * MaxAlternatives
					out.Alternatives = append(out.Alternatives, slices.Clone(e.beside[at:at+int(o.alternatives)]))
				}
				each(out, int(o.position))
			}
		}
	})
}

// Abort ends an unfinished request; its output so far is polled. An unknown id gives an error that matches
// [ErrNotFound].
func (e *Engine) Abort(id uint64) error {
	return e.with(func(h *C.gyre_engine) code { return C.gyre_engine_abort(h, C.uint64_t(id)) })
}

// Forget frees the keys and values that requests have left behind (Request.Keep).
func (e *Engine) Forget() error {
	return e.with(func(h *C.gyre_engine) code { return C.gyre_engine_forget(h) })
}

// Sleep frees the pool of keys and values and the packed weights until the next step, so that training can have the
// memory. The prefix cache is emptied, unfinished requests are computed again.
func (e *Engine) Sleep() error {
	return e.with(func(h *C.gyre_engine) code { return C.gyre_engine_sleep(h) })
}

// TensorParallel samples with the other ranks of [Model.TensorParallel], all of which call it: on the first of them run
// submits requests and makes steps; the others compute their shards of these steps until it returns. The end of ctx,
// and an error of run, fail the group. In one process it is run alone.
func (e *Engine) TensorParallel(ctx context.Context, run func() error) error {
	var group *Group
	execute(func() { group = e.model.sampling })
	if group == nil {
		return run()
	}
	// not by the executor: it may wait for another rank
	stop := context.AfterFunc(ctx, func() { group.Abort(context.Cause(ctx).Error()) })
	defer stop()
	if group.Rank() == 0 {
		if err := run(); err != nil {
			group.Abort(err.Error())
			return err
		}
		return e.with(func(h *C.gyre_engine) code { return C.gyre_engine_dismiss(h) })
	}
	for more := C.bool(true); more; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := e.with(func(h *C.gyre_engine) code { return C.gyre_engine_follow(h, &more) })
		if err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
	return nil
}

// Follows tells whether another rank's engine takes the requests.
func (e *Engine) Follows() (follows bool) {
	execute(func() { follows = e.model.sampling.Rank() > 0 })
	return follows
}

// Stats reports the engine's state.
func (e *Engine) Stats() (EngineStats, error) {
	var s EngineStats
	err := e.with(func(h *C.gyre_engine) code {
		C.gyre_engine_stats(h, as[C.gyre_engine_stats_t](&s))
		return C.GYRE_OK
	})
	return s, err
}
