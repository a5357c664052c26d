package openai

import (
	"encoding/json"
	"net/http"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/talk"
)

// chatRequest is the body of a chat completion.
type chatRequest struct {
	talk.Parameters
	Messages            messages        `json:"messages"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Logprobs            bool            `json:"logprobs"`
	TopLogprobs         int             `json:"top_logprobs"`
	Tools               json.RawMessage `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	ParallelToolCalls   *bool           `json:"parallel_tool_calls"`

	TemplateVariables map[string]json.RawMessage `json:"chat_template_kwargs"` // vLLM's
}

// chatChoice is one reply of an answer, whole (Message) or in parts (Delta).
type chatChoice struct {
	Index        int           `json:"index"`
	Message      *message      `json:"message,omitempty"`
	Delta        *delta        `json:"delta,omitempty"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	TokenIDs     []int32       `json:"token_ids,omitempty"`
}

type chatLogprobs struct {
	Content []tokenLogprob `json:"content"`
	Refusal *string        `json:"refusal"`
}

// delta is what is new of a message.
type delta struct {
	Role      string      `json:"role,omitempty"`
	Content   *string     `json:"content,omitempty"`
	Reasoning string      `json:"reasoning_content,omitempty"`
	ToolCalls []callDelta `json:"tool_calls,omitempty"`
}

type callDelta struct {
	Index int `json:"index"`
	chat.ToolCall
}

// chatJob is a chat completion that is being answered.
type chatJob struct {
	*talk.Turn
	api      *API
	request  chatRequest
	template answer[chatChoice] // what all parts of the answer share
}

// Chat answers POST /v1/chat/completions.
func (a *API) Chat(w http.ResponseWriter, r *http.Request) {
	j, err := a.openChat(r)
	if err != nil {
		serve.Fail(w, err)
		return
	}
	defer j.Cancel()
	j.answer(&events{serve.Events{W: w}})
}

// openChat reads the request and starts its choices.
func (a *API) openChat(r *http.Request) (*chatJob, error) {
	j := &chatJob{api: a}
	if err := keys.Decode(r, &j.request); err != nil {
		return nil, err
	}
	return j, j.open(r)
}

// open starts the choices of a request.
func (j *chatJob) open(r *http.Request) error {
	q := &j.request
	if q.TopLogprobs > 0 && !q.Logprobs {
		return serve.Bad("top_logprobs", "top_logprobs is given without logprobs: set logprobs to true")
	}
	limit := q.MaxCompletionTokens
	if limit == nil {
		limit = q.MaxTokens
	}
	offered, err := offer(q)
	if err != nil {
		return err
	}
	j.template = answer[chatChoice]{ID: j.api.talks.ID("chatcmpl"), Object: "chat.completion.chunk", Created: now(),
		Model: q.Model, Choices: []chatChoice{}}
	j.Turn, err = j.api.talks.Open(r, talk.Ask{Parameters: q.Parameters, Messages: q.Messages, Offer: offered,
		MaxTokens: limit, Alternatives: q.TopLogprobs, OneCall: !serve.Given(q.ParallelToolCalls, true)})
	return err
}

// messageOf makes the message of a reply's text and calls.
func messageOf(whole *talk.Reply) *message {
	m := &message{Role: "assistant", Reasoning: whole.Thinking, ToolCalls: whole.Calls}
	if whole.Text != "" || len(whole.Calls) == 0 {
		m.Content = &whole.Text
	}
	return m
}

// answer sends the parts of the choices as they come, or puts them together.
func (j *chatJob) answer(e *events) {
	n := j.Choices()
	said, choices := make([]part, n), make([]chatChoice, n)
	if j.request.ReturnTokenIDs {
		j.template.PromptTokenIDs = j.Prompt
	}
	for i := range n {
		j.send(e, chatChoice{Index: i, Delta: &delta{Role: "assistant", Content: new("")}})
	}
	count := &usage{Prompt: len(j.Prompt), Total: len(j.Prompt)}
	err := j.Play(func(p talk.Piece, whole *talk.Reply) error {
		i, more := p.Choice, j.api.part(p, j.request.Logprobs, j.request.ReturnTokenIDs)
		said[i].add(more)
		if !more.empty() {
			j.send(e, chatChoiceOf(i, more))
		}
		if whole != nil {
			m := messageOf(whole)
			choices[i] = chatChoiceOf(i, said[i])
			choices[i].Delta, choices[i].Message = nil, m
			choices[i].FinishReason = finishReason(whole.Output.Finish, len(m.ToolCalls) > 0)
			j.send(e, chatChoice{Index: i, Delta: &delta{}, FinishReason: choices[i].FinishReason})
			count.add(len(whole.Output.Tokens), whole.Output.CachedTokens)
		}
		return e.Err
	})
	whole, part := j.template, j.template
	whole.Object, whole.Choices, whole.Usage, part.Usage = "chat.completion", choices, count, count
	e.finish(&j.request.Parameters, err, whole, part)
}

// send sends a part of a choice, where the answer comes in parts.
func (j *chatJob) send(e *events, c chatChoice) {
	if j.request.Stream {
		chunk := j.template
		chunk.Choices = []chatChoice{c}
		e.Send("", chunk)
		j.template.PromptTokenIDs = nil // once
	}
}

func chatChoiceOf(index int, p part) chatChoice {
	c := chatChoice{Index: index, Delta: &delta{Reasoning: p.thinking}, TokenIDs: p.ids}
	for n, call := range p.calls {
		c.Delta.ToolCalls = append(c.Delta.ToolCalls, callDelta{p.before + n, call})
	}
	if p.text != "" {
		c.Delta.Content = &p.text
	}
	if len(p.logprobs) > 0 {
		c.Logprobs = &chatLogprobs{Content: p.logprobs}
	}
	return c
}
