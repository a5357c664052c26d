package openai

import (
	"encoding/json"
	"net/http"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
	"gyre/torch"
)

// chatRequest is the body of a chat completion.
type chatRequest struct {
	parameters
	Messages            []message       `json:"messages"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Logprobs            bool            `json:"logprobs"`
	TopLogprobs         int             `json:"top_logprobs"`
	Tools               []tool          `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	ParallelToolCalls   *bool           `json:"parallel_tool_calls"`
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
	ToolCalls []callDelta `json:"tool_calls,omitempty"`
}

type callDelta struct {
	Index int `json:"index"`
	chat.ToolCall
}

// chatAnswer is a chat completion, or a chunk of one.
type chatAnswer struct {
	ID             string       `json:"id"`
	Object         string       `json:"object"`
	Created        int64        `json:"created"`
	Model          string       `json:"model"`
	Choices        []chatChoice `json:"choices"`
	Usage          *usage       `json:"usage,omitempty"`
	PromptTokenIDs []int32      `json:"prompt_token_ids,omitempty"`
}

// chatJob is a chat completion that is being answered.
type chatJob struct {
	*run
	api      *API
	request  chatRequest
	session  Session
	prompt   []int32
	tools    bool
	template chatAnswer // what all parts of the answer share
	whole    []chatChoice
}

// Chat answers POST /v1/chat/completions.
func (a *API) Chat(w http.ResponseWriter, r *http.Request) {
	j, err := a.openChat(r)
	if err != nil {
		serve.Fail(w, err)
		return
	}
	defer j.cancel()
	j.answer(&events{w: w})
}

// openChat reads the request and starts its choices.
func (a *API) openChat(r *http.Request) (*chatJob, error) {
	j := &chatJob{api: a}
	if err := decode(r, &j.request); err != nil {
		return nil, err
	}
	return j, j.open(r)
}

// open starts the choices of a request.
func (j *chatJob) open(r *http.Request) error {
	a, q := j.api, &j.request
	if _, err := a.host.Policy(q.Model); err != nil {
		return err
	}
	if a.sessions != nil {
		var err error
		if j.session, err = a.sessions(r); err != nil {
			return err
		}
	}
	if q.TopLogprobs > 0 && !q.Logprobs {
		return serve.Bad("top_logprobs", "top_logprobs is given without logprobs: set logprobs to true")
	}
	limit := q.MaxCompletionTokens
	if limit == nil {
		limit = q.MaxTokens
	}
	messages, err := chatMessages(q.Messages)
	if err != nil {
		return err
	}
	tools, err := chatTools(q.Tools, q.ToolChoice)
	if err != nil {
		return err
	}
	if j.prompt, err = a.encode(j.session, messages, tools); err != nil {
		return err
	}
	requests, err := a.requests(&q.parameters, j.prompt, limit, q.TopLogprobs)
	if err != nil {
		return err
	}
	if j.session != nil {
		j.session.Sample(requests)
	}
	j.tools = len(tools) > 0
	j.template = chatAnswer{ID: a.id("chatcmpl"), Created: now(), Model: q.Model, Choices: []chatChoice{}}
	j.run, err = a.start(r.Context(), requests)
	return err
}

// conclude makes the message of a reply's text and calls, and tells the session.
func (j *chatJob) conclude(text string, calls []chat.ToolCall, out torch.Output) *message {
	if parallel := j.request.ParallelToolCalls; parallel != nil && !*parallel && len(calls) > 1 {
		calls = calls[:1]
	}
	m := &message{Role: "assistant", ToolCalls: j.api.named(calls)}
	if said := content(text); text != "" || len(calls) == 0 {
		m.Content = &said
	}
	if j.session != nil {
		j.session.Replied(j.prompt, out, chat.Message{Role: "assistant", Content: text, ToolCalls: m.ToolCalls})
	}
	return m
}

// answer sends the parts of the choices as they come, or puts them together.
func (j *chatJob) answer(e *events) {
	readers, texts := make([]callReader, len(j.streams)), make([]string, len(j.streams))
	j.whole = make([]chatChoice, len(j.streams))
	if j.request.ReturnTokenIDs {
		j.template.PromptTokenIDs = j.prompt
	}
	for i := range readers {
		readers[i].on = j.tools
		j.put(e, chatChoice{Index: i, Delta: &delta{Role: "assistant", Content: new("")}})
	}
	count := &usage{Prompt: len(j.prompt), Total: len(j.prompt)}
	err := j.play(func(p piece, out *torch.Output) error {
		text := readers[p.choice].add(p.Text)
		texts[p.choice] += text
		c := chatChoice{Index: p.choice, Delta: &delta{}}
		if text != "" {
			c.Delta.Content = &text
		}
		if len(p.Tokens) > 0 && j.request.Logprobs {
			c.Logprobs = &chatLogprobs{Content: j.api.logprobs(p)}
		}
		if j.request.ReturnTokenIDs {
			c.TokenIDs = p.Tokens
		}
		if text != "" || c.Logprobs != nil || len(c.TokenIDs) > 0 {
			j.put(e, c)
		}
		if out != nil {
			rest, calls := readers[p.choice].finish()
			j.last(e, p.choice, rest, j.conclude(texts[p.choice]+rest, calls, *out), *out)
			count.add(len(out.Tokens), out.CachedTokens)
		}
		return e.err
	})
	whole, part := j.template, j.template
	whole.Object, whole.Choices, whole.Usage = "chat.completion", j.whole, count
	part.Object, part.Usage = "chat.completion.chunk", count
	e.finish(&j.request.parameters, err, whole, part)
}

// last puts what is left of a choice: the text that was held back, calls and the reason of its end.
func (j *chatJob) last(e *events, i int, rest string, m *message, out torch.Output) {
	d := &delta{}
	if rest != "" {
		d.Content = &rest
	}
	for n, call := range m.ToolCalls {
		d.ToolCalls = append(d.ToolCalls, callDelta{n, call})
	}
	if d.Content != nil || d.ToolCalls != nil {
		j.put(e, chatChoice{Index: i, Delta: d})
	}
	j.put(e, chatChoice{Index: i, Message: m, Delta: &delta{}, FinishReason: finishReason(out.Finish,
		len(m.ToolCalls) > 0)})
}

// put sends a part of a choice, or adds it to the whole.
func (j *chatJob) put(e *events, c chatChoice) {
	if j.request.Stream {
		c.Message = nil
		part := j.template
		part.Object, part.Choices = "chat.completion.chunk", []chatChoice{c}
		e.send("", part)
		j.template.PromptTokenIDs = nil // once
		return
	}
	to := &j.whole[c.Index]
	to.Index, to.Message, to.FinishReason = c.Index, c.Message, c.FinishReason
	to.TokenIDs = append(to.TokenIDs, c.TokenIDs...)
	if to.Logprobs == nil {
		to.Logprobs = c.Logprobs
	} else if c.Logprobs != nil {
		to.Logprobs.Content = append(to.Logprobs.Content, c.Logprobs.Content...)
	}
}
