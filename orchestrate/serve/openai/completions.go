package openai

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
	"gyre/torch"
)

// prompts are texts or token ids: one, or a list.
type prompts struct {
	texts []string
	ids   [][]int32
}

func (p *prompts) UnmarshalJSON(data []byte) error {
	var text string
	var ids []int32
	switch {
	case json.Unmarshal(data, &text) == nil:
		p.texts = []string{text}
	case json.Unmarshal(data, &p.texts) == nil:
	case json.Unmarshal(data, &ids) == nil:
		p.texts, p.ids = nil, [][]int32{ids}
	case json.Unmarshal(data, &p.ids) == nil:
		p.texts = nil
	default:
		return serve.Bad("prompt", "prompt is %.80s, expected a string, token ids, or a list of these", data)
	}
	return nil
}

type completionRequest struct {
	parameters
	Prompt    prompts `json:"prompt"`
	MaxTokens *int    `json:"max_tokens"`
	Logprobs  *int    `json:"logprobs"`
	// Echo puts the prompt before the reply. With it, as with vLLM's PromptLogprobs, a reply may have no tokens.
	Echo           bool `json:"echo"`
	PromptLogprobs *int `json:"prompt_logprobs"`
}

type completionChoice struct {
	Index          int                 `json:"index"`
	Text           string              `json:"text"`
	Logprobs       *completionLogprobs `json:"logprobs"`
	FinishReason   *string             `json:"finish_reason"`
	TokenIDs       []int32             `json:"token_ids,omitempty"`
	PromptTokenIDs []int32             `json:"prompt_token_ids,omitempty"`
	// PromptLogprobs has an entry for each token of the prompt, by its id; of the first there is none.
	PromptLogprobs []map[int32]scored `json:"prompt_logprobs,omitempty"`
}

// scored is a token of a prompt.
type scored struct {
	Logprob float32 `json:"logprob"`
	Decoded string  `json:"decoded_token"`
}

// completionLogprobs has a column for each property of tokens.
type completionLogprobs struct {
	Tokens     []string             `json:"tokens"`
	Logprobs   []*float32           `json:"token_logprobs"` // null of the first token of a prompt
	Top        []map[string]float32 `json:"top_logprobs"`
	TextOffset []int                `json:"text_offset"`
}

type completionAnswer struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   *usage             `json:"usage,omitempty"`
}

// completionJob is a completion that is being answered.
type completionJob struct {
	*run
	api      *API
	request  completionRequest
	prompts  [][]int32 // by choice
	offsets  []int     // of the text that follows, by choice
	whole    []completionChoice
	template completionAnswer
	count    usage
}

// Completions answers POST /v1/completions.
func (a *API) Completions(w http.ResponseWriter, r *http.Request) {
	j, err := a.openCompletion(r)
	if err != nil {
		serve.Fail(w, err)
		return
	}
	defer j.cancel()
	e := &events{w: w}
	err = j.play(func(p piece, out *torch.Output) error {
		c := j.choice(p)
		if out != nil {
			c.FinishReason = finishReason(out.Finish, false)
			j.count.add(len(out.Tokens), out.CachedTokens)
		}
		if !j.request.Stream {
			j.whole[p.choice].append(c)
		} else if c.Text != "" || c.Logprobs != nil || c.TokenIDs != nil || out != nil {
			part := j.template
			part.Choices = []completionChoice{c}
			e.send("", part)
		}
		return e.err
	})
	answer, part := j.template, j.template
	answer.Choices, answer.Usage, part.Usage = j.whole, &j.count, &j.count
	e.finish(&j.request.parameters, err, answer, part)
}

// append adds what is new of a choice.
func (c *completionChoice) append(more completionChoice) {
	c.Index, c.FinishReason = more.Index, more.FinishReason
	c.Text += more.Text
	c.TokenIDs, c.PromptTokenIDs = append(c.TokenIDs, more.TokenIDs...), append(c.PromptTokenIDs,
		more.PromptTokenIDs...)
	if c.Logprobs == nil {
		c.Logprobs = more.Logprobs
	} else if l := more.Logprobs; l != nil {
		c.Logprobs.Tokens = append(c.Logprobs.Tokens, l.Tokens...)
		c.Logprobs.Logprobs = append(c.Logprobs.Logprobs, l.Logprobs...)
		c.Logprobs.Top = append(c.Logprobs.Top, l.Top...)
		c.Logprobs.TextOffset = append(c.Logprobs.TextOffset, l.TextOffset...)
	}
}

func (a *API) openCompletion(r *http.Request) (*completionJob, error) {
	j := &completionJob{api: a}
	q := &j.request
	if err := decode(r, q); err != nil {
		return nil, err
	}
	for _, text := range q.Prompt.texts {
		if err := a.host.CheckText(len(text)); err != nil {
			return nil, err
		}
		ids, err := a.host.Tokenizer().Encode(text, true)
		if err != nil {
			return nil, serve.Bad("prompt", "%v", err)
		}
		q.Prompt.ids = append(q.Prompt.ids, ids)
	}
	if n := len(q.Prompt.ids); n == 0 || n > maxChoices {
		return nil, serve.Bad("prompt", "there are %d prompts, expected 1 to %d", n, maxChoices)
	}
	limit, alternatives := serve.Given(q.MaxTokens, 16), serve.Given(q.Logprobs, 0) // OpenAI's default
	var all []host.Request
	more := limit != 0 || !q.Echo && q.PromptLogprobs == nil
	if !more {
		limit = 1
	}
	for _, ids := range q.Prompt.ids {
		requests, err := a.requests(&q.parameters, ids, &limit, alternatives)
		if err != nil {
			return nil, err
		}
		first, err := j.ofPrompt(r.Context(), requests[0].Policy, ids)
		if err != nil {
			return nil, err
		}
		for _, request := range requests {
			j.prompts, first.Index = append(j.prompts, request.Prompt), len(j.whole)
			j.whole, j.offsets = append(j.whole, first), append(j.offsets, strings.Count(first.Text, "")-1)
		}
		if more {
			all = append(all, requests...)
		}
		j.count.Prompt, j.count.Total = j.count.Prompt+len(ids), j.count.Total+len(ids)
	}
	j.template = completionAnswer{ID: a.id("cmpl"), Object: "text_completion", Created: now(), Model: q.Model,
		Choices: []completionChoice{}}
	var err error
	j.run, err = a.start(r.Context(), all)
	return j, err
}

// ofPrompt is what a choice says of its prompt.
func (j *completionJob) ofPrompt(ctx context.Context, policy *torch.Model,
	ids []int32) (c completionChoice, err error) {
	q := &j.request
	switch {
	case !q.Echo && q.PromptLogprobs == nil:
		return c, nil
	case q.Stream:
		return c, serve.Bad("stream", "what is said of a prompt (echo, prompt_logprobs) does not come in parts: "+
			"leave stream out")
	case q.PromptLogprobs != nil && *q.PromptLogprobs != 0 && *q.PromptLogprobs != 1:
		return c, serve.Bad("prompt_logprobs", "prompt_logprobs is %d: of the prompt's tokens themselves there are "+
			"log-probs, but not of others: give 0 or 1", *q.PromptLogprobs)
	}
	if err := j.api.host.CheckPrompt(ids); err != nil {
		return c, err
	}
	c.FinishReason = new("length")
	scores, err := j.api.host.Score(ctx, policy, ids, 0)
	if err != nil {
		return c, err
	}
	tokens := j.api.logprobs(piece{Piece: generation.Piece{Tokens: ids, Logprobs: scores}})
	if q.PromptLogprobs != nil {
		c.PromptLogprobs = []map[int32]scored{nil}
		for i, t := range tokens[1:] {
			c.PromptLogprobs = append(c.PromptLogprobs, map[int32]scored{ids[i+1]: {t.Logprob, t.Token}})
		}
	}
	if !q.Echo {
		return c, nil
	}
	l, at := &completionLogprobs{}, 0
	for i, t := range tokens {
		c.Text += t.Token
		l.Tokens, l.TextOffset = append(l.Tokens, t.Token), append(l.TextOffset, at)
		at += strings.Count(t.Token, "") - 1
		var score *float32
		var top map[string]float32
		if i > 0 {
			score, top = &t.Logprob, map[string]float32{t.Token: t.Logprob}
		}
		l.Logprobs, l.Top = append(l.Logprobs, score), append(l.Top, top)
	}
	if q.Logprobs != nil {
		c.Logprobs = l
	}
	return c, nil
}

// choice is a part of a choice, or all of it.
func (j *completionJob) choice(p piece) completionChoice {
	c := completionChoice{Index: p.choice, Text: p.Text}
	if j.request.ReturnTokenIDs {
		c.TokenIDs, c.PromptTokenIDs, j.prompts[p.choice] = p.Tokens, j.prompts[p.choice], nil // once
	}
	if j.request.Logprobs == nil || len(p.Tokens) == 0 {
		return c
	}
	c.Logprobs = &completionLogprobs{}
	for _, t := range j.api.logprobs(p) {
		c.Logprobs.Tokens = append(c.Logprobs.Tokens, t.Token)
		c.Logprobs.Logprobs = append(c.Logprobs.Logprobs, &t.Logprob)
		top := map[string]float32{}
		for _, other := range t.Top {
			if _, taken := top[other.Token]; !taken { // tokens that are no text look alike: the likeliest counts
				top[other.Token] = other.Logprob
			}
		}
		c.Logprobs.Top = append(c.Logprobs.Top, top)
		c.Logprobs.TextOffset = append(c.Logprobs.TextOffset, j.offsets[p.choice])
		j.offsets[p.choice] += strings.Count(t.Token, "") - 1 // characters, as Python counts
	}
	return c
}
