package tinker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sourcegraph/conc/pool"

	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
	"gyre/torch"
)

// sampleRequest asks for samples of a prompt, and for what the model says of the prompt itself.
type sampleRequest struct {
	Session string `json:"sampling_session_id"`
	Seq     int64  `json:"seq_id"`
	Samples *int   `json:"num_samples"`
	Prompt  struct {
		Chunks []struct {
			Type   string  `json:"type"`
			Tokens []int32 `json:"tokens"`
		} `json:"chunks"`
	} `json:"prompt"`
	Params struct {
		MaxTokens   *int            `json:"max_tokens"`
		Seed        *int64          `json:"seed"`
		Stop        json.RawMessage `json:"stop"`
		Temperature *float64        `json:"temperature"`
		TopK        *int            `json:"top_k"`
		TopP        *float64        `json:"top_p"`
	} `json:"sampling_params"`
	PromptLogprobs bool            `json:"prompt_logprobs"`
	LastN          *int            `json:"prompt_logprobs_last_n"`
	TopPrompt      int             `json:"topk_prompt_logprobs"`
	TopSample      int             `json:"topk_sample_logprobs"`
	Targets        json.RawMessage `json:"target_prompt_logprobs"`
	Alternatives   int             `json:"prompt_alt_tokens_k"`

	prompt  []int32
	request host.Request
}

const (
	maxSamples = 1024 // of one request
	maxTop     = 1024
)

// check reads what a request says into the form that the host takes.
func (in *sampleRequest) check(vocabulary int64) error {
	for _, c := range in.Prompt.Chunks {
		if c.Type != "" && c.Type != "encoded_text" {
			return serve.Bad("prompt", "a chunk of the prompt is of type %.40q: this server has models of text only",
				c.Type)
		}
		in.prompt = append(in.prompt, c.Tokens...)
	}
	for i, id := range in.prompt {
		if id < 0 || int64(id) >= vocabulary {
			return serve.Bad("prompt", "token %d of the prompt is %d, expected 0 to %d", i, id, vocabulary-1)
		}
	}
	samples := serve.Given(in.Samples, 1)
	in.Samples = &samples
	switch {
	case len(in.prompt) == 0:
		return serve.Bad("prompt", "the prompt has no tokens")
	case samples < 1 || samples > maxSamples:
		return serve.Bad("num_samples", "num_samples is %d, expected 1 to %d", samples, maxSamples)
	case in.TopPrompt < 0 || in.TopSample < 0 || max(in.TopPrompt, in.TopSample) > maxTop:
		return serve.Bad("topk_prompt_logprobs", "topk_prompt_logprobs and topk_sample_logprobs may be 0 to %d", maxTop)
	case in.LastN != nil && (*in.LastN < 1 || *in.LastN >= len(in.prompt) || !in.PromptLogprobs):
		return serve.Bad("prompt_logprobs_last_n", "prompt_logprobs_last_n goes with prompt_logprobs and is 1 to %d",
			len(in.prompt)-1)
	case len(in.Targets) > 0 && string(in.Targets) != "null" || in.Alternatives != 0:
		return serve.Bad("target_prompt_logprobs", "target_prompt_logprobs and prompt_alt_tokens_k are not here: "+
			"forward with target_tokens of shape [N, K] gives the log-probs of any tokens")
	}
	in.request = host.Request{Prompt: in.prompt, Sampling: host.Sampling()}
	to, p := &in.request.Sampling, in.Params
	to.Temperature, to.TopP = serve.Given(p.Temperature, to.Temperature), serve.Given(p.TopP, to.TopP)
	var err error
	if to.TopK, err = serve.TopK(serve.Given(p.TopK, 0)); err != nil {
		return err
	}
	if p.MaxTokens != nil {
		if *p.MaxTokens < 1 {
			return serve.Bad("max_tokens", "max_tokens is %d, expected at least 1", *p.MaxTokens)
		}
		to.MaxTokens = *p.MaxTokens
	}
	to.Seed = uint64(serve.Given(p.Seed, rand.Int64()))
	return in.stops()
}

// stops reads what ends a reply: nothing said, the model's own ends; an empty list, nothing ends it.
func (in *sampleRequest) stops() error {
	var text string
	var texts []string
	raw, to := in.Params.Stop, &in.request
	switch {
	case len(raw) == 0 || string(raw) == "null":
	case json.Unmarshal(raw, &text) == nil:
		to.StopStrings = []string{text}
	case json.Unmarshal(raw, &to.StopIDs) == nil:
		to.Sampling.IgnoreEOS = len(to.StopIDs) == 0
	case json.Unmarshal(raw, &texts) == nil:
		to.StopIDs, to.StopStrings = nil, texts
	default:
		return serve.Bad("stop", "stop is no text, list of texts or list of tokens: %.100s", raw)
	}
	return nil
}

func (s *Server) sample(_ *http.Request, in sampleRequest) (any, error) {
	p, err := s.sampler(in.Session)
	if err == nil {
		err = in.check(s.host.Model().Shape.VocabSize)
	}
	if err != nil {
		return nil, err
	}
	out := promised{RequestID: fmt.Sprintf("%s:%d", p.id, in.Seq)}
	for i := range *in.Samples {
		out.Sequences = append(out.Sequences, fmt.Sprintf("%s/%d", out.RequestID, i))
	}
	return s.promise(p.owner, out, func(f *future) error {
		p.owner.work.Go(func() { f.finish(s.draw(f.ctx, p, in)) })
		return nil
	})
}

// draw makes a request's samples.
func (s *Server) draw(ctx context.Context, p *sampler, in sampleRequest) (any, error) {
	from := &loaded{host: s.host}
	var err error
	if p.dir != "" {
		from, err = s.cache.take(p)
		if err != nil {
			return nil, err
		}
		defer s.cache.back(from)
		in.request.Policy = from.policy
	} else if in.request.Policy, err = s.host.Policy(p.name); err != nil {
		return nil, err
	}
	outputs := make([]torch.Output, *in.Samples)
	all := pool.New().WithContext(ctx).WithCancelOnError() // one that fails: the others are not wanted any more
	for i := range outputs {
		all.Go(func(ctx context.Context) (err error) {
			r := in.request
			r.Sampling.Seed = generation.RowSeed(r.Sampling.Seed, i)
			outputs[i], err = s.reply(ctx, from.host, r)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	return s.answer(ctx, from.host, in, outputs)
}

// reply draws one sample. Samples wait here for their turn, so that the host's queue has room for others.
func (s *Server) reply(ctx context.Context, h *host.Host, r host.Request) (torch.Output, error) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return torch.Output{}, context.Cause(ctx)
	}
	defer func() { <-s.slots }()
	stream, err := backoff.Retry(ctx, func() (*host.Stream, error) {
		stream, err := h.Generate(ctx, r)
		if err != nil && !errors.Is(err, host.ErrBusy) {
			err = backoff.Permanent(err)
		}
		return stream, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(50*time.Millisecond)), backoff.WithMaxElapsedTime(0))
	if err != nil {
		return torch.Output{}, err
	}
	return stream.Wait()
}

// answer makes a SampleResponse.
func (s *Server) answer(ctx context.Context, h *host.Host, in sampleRequest, outputs []torch.Output) (any, error) {
	var out sampleResponse
	policy := in.request.Policy
	if policy == nil {
		policy = h.Model().Base
	}
	n := len(in.prompt)
	for _, o := range outputs {
		sequence := &sampledSequence{Tokens: bytesOf(o.Tokens), Logprobs: bytesOf(o.Logprobs)}
		if o.Finish == torch.FinishLength {
			sequence.Reason = 1
		}
		if in.TopSample > 0 {
			var err error
			whole := append(in.prompt[:n:n], o.Tokens...)
			if sequence.Top, err = s.top(ctx, h, policy, whole, n, in.TopSample); err != nil {
				return nil, err
			}
		}
		out.Sequences, out.Cached = append(out.Sequences, sequence), int32(outputs[0].CachedTokens)
	}
	if in.PromptLogprobs {
		first := 0
		if in.LastN != nil {
			first = n - *in.LastN
		}
		scores, err := h.Logprobs(ctx, policy, in.prompt, first)
		if err != nil {
			return nil, err
		}
		out.Logprobs = bytesOf(scores)
	}
	if in.TopPrompt > 0 {
		var err error
		if out.Top, err = s.top(ctx, h, policy, in.prompt, 0, in.TopPrompt); err != nil {
			return nil, err
		}
	}
	return marshal(&out)
}
