package openai

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strings"

	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
	"gyre/orchestrate/serve/talk"
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
	talk.Parameters
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

// completionJob is a completion that is being answered.
type completionJob struct {
	*talk.Run
	api      *API
	request  completionRequest
	template answer[completionChoice]
	count    usage
	choices  []completionChoice // without what said holds
	said     []part             // by choice
	offsets  []int              // of the text that follows, by choice
}

// Completions answers POST /v1/completions.
func (a *API) Completions(w http.ResponseWriter, r *http.Request) {
	j, err := a.openCompletion(r)
	if err != nil {
		serve.Fail(w, err)
		return
	}
	defer j.Cancel()
	e := &events{serve.Events{W: w}}
	err = j.Play(func(p talk.Piece, out *torch.Output) error {
		i, more := p.Choice, a.part(p, j.request.Logprobs != nil, j.request.ReturnTokenIDs)
		if out != nil {
			j.choices[i].FinishReason = finishReason(out.Finish, false)
			j.count.add(len(out.Tokens), out.CachedTokens)
		}
		if !j.request.Stream {
			j.said[i].add(more)
		} else if !more.empty() || out != nil {
			chunk := j.template
			chunk.Choices = []completionChoice{j.choice(i, more)}
			e.Send("", chunk)
			j.choices[i].PromptTokenIDs = nil // once
		}
		return e.Err
	})
	whole, part := j.template, j.template
	whole.Choices, whole.Usage, part.Usage = nil, &j.count, &j.count
	for i, said := range j.said {
		whole.Choices = append(whole.Choices, j.choice(i, said))
	}
	e.finish(&j.request.Parameters, err, whole, part)
}

func (a *API) openCompletion(r *http.Request) (*completionJob, error) {
	j := &completionJob{api: a}
	q := &j.request
	if err := keys.Decode(r, q); err != nil {
		return nil, err
	}
	for _, text := range q.Prompt.texts {
		if err := a.talks.Host.CheckText(len(text)); err != nil {
			return nil, err
		}
		ids, err := a.talks.Host.Tokenizer().EncodeDocument(text)
		if err != nil {
			return nil, serve.Bad("prompt", "%v", err)
		}
		q.Prompt.ids = append(q.Prompt.ids, ids)
	}
	if n := len(q.Prompt.ids); n == 0 || n > talk.MaxChoices {
		return nil, serve.Bad("prompt", "there are %d prompts, expected 1 to %d", n, talk.MaxChoices)
	}
	limit, alternatives := serve.Given(q.MaxTokens, 16), serve.Given(q.Logprobs, 0) // OpenAI's default
	var all []host.Request
	more := limit != 0 || !q.Echo && q.PromptLogprobs == nil
	if !more {
		limit = 1
	}
	for _, ids := range q.Prompt.ids {
		requests, err := a.talks.Requests(&q.Parameters, ids, &limit, alternatives)
		if err != nil {
			return nil, err
		}
		c, said, err := j.ofPrompt(r.Context(), requests[0].Policy, ids)
		if err != nil {
			return nil, err
		}
		for range requests {
			c.Index = len(j.choices)
			j.choices, j.said, j.offsets = append(j.choices, c), append(j.said, said), append(j.offsets, 0)
		}
		if more {
			all = append(all, requests...)
		}
		j.count.Prompt, j.count.Total = j.count.Prompt+len(ids), j.count.Total+len(ids)
	}
	j.template = answer[completionChoice]{ID: a.talks.ID("cmpl"), Object: "text_completion", Created: now(), Model: q.Model,
		Choices: []completionChoice{}}
	var err error
	j.Run, err = a.talks.Start(r.Context(), all)
	return j, err
}

// ofPrompt is what a choice says of its prompt.
func (j *completionJob) ofPrompt(ctx context.Context, policy *torch.Model, ids []int32) (c completionChoice, said part,
	err error) {
	q := &j.request
	if q.ReturnTokenIDs {
		c.PromptTokenIDs = ids
	}
	switch {
	case !q.Echo && q.PromptLogprobs == nil:
		return c, said, nil
	case q.Stream:
		return c, said, serve.Bad("stream", "what is said of a prompt (echo, prompt_logprobs) does not come in parts: "+
			"leave stream out")
	case q.PromptLogprobs != nil && *q.PromptLogprobs != 0 && *q.PromptLogprobs != 1:
		return c, said, serve.Bad("prompt_logprobs", "prompt_logprobs is %d: of the prompt's tokens themselves there "+
			"are log-probs, but not of others: give 0 or 1", *q.PromptLogprobs)
	}
	if err := j.api.talks.Host.CheckPrompt(ids); err != nil {
		return c, said, err
	}
	c.FinishReason = new("length")
	scores, err := j.api.talks.Host.Logprobs(ctx, policy, ids, 0)
	if err != nil {
		return c, said, err
	}
	tokens := j.api.logprobs(talk.Piece{Piece: generation.Piece{Tokens: ids, Logprobs: scores}})
	if q.PromptLogprobs != nil {
		c.PromptLogprobs = []map[int32]scored{nil}
		for i, t := range tokens[1:] {
			c.PromptLogprobs = append(c.PromptLogprobs, map[int32]scored{ids[i+1]: {t.Logprob, t.Token}})
		}
	}
	for i, t := range tokens {
		if tokens[i].Top = []alternative{t.alternative}; q.Echo {
			said.text += t.Token
		}
	}
	if q.Echo && q.Logprobs != nil {
		said.logprobs = tokens
	}
	return c, said, nil
}

// choice is a choice that says a part of its reply, or all of it.
func (j *completionJob) choice(i int, p part) completionChoice {
	c := j.choices[i]
	c.Text, c.TokenIDs = p.text, p.ids
	if len(p.logprobs) == 0 {
		return c
	}
	c.Logprobs = &completionLogprobs{}
	for _, t := range p.logprobs {
		c.Logprobs.Tokens = append(c.Logprobs.Tokens, t.Token)
		c.Logprobs.TextOffset = append(c.Logprobs.TextOffset, j.offsets[i])
		j.offsets[i] += strings.Count(t.Token, "") - 1 // characters, as Python counts
		if math.IsNaN(float64(t.Logprob)) {
			c.Logprobs.Logprobs, c.Logprobs.Top = append(c.Logprobs.Logprobs, nil), append(c.Logprobs.Top, nil)
			continue
		}
		top := map[string]float32{}
		for _, other := range t.Top {
			if _, taken := top[other.Token]; !taken { // tokens that are no text look alike: the likeliest counts
				top[other.Token] = other.Logprob
			}
		}
		c.Logprobs.Logprobs, c.Logprobs.Top = append(c.Logprobs.Logprobs, &t.Logprob), append(c.Logprobs.Top, top)
	}
	return c
}
