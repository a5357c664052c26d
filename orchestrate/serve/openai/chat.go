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
}

// Chat answers POST /v1/chat/completions.
func (a *API) Chat(w http.ResponseWriter, r *http.Request) {
	job, err := a.openChat(r)
	if err != nil {
		serve.FailAs(w, err)
		return
	}
	defer job.close()
	if job.request.Stream {
		job.stream(w)
		return
	}
	if err := job.whole(w); err != nil {
		serve.FailAs(w, err)
	}
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

// message is a whole reply as the client gets it; the session hears of it.
func (j *chatJob) message(text string, out torch.Output) *message {
	reader := callReader{on: j.tools}
	said := reader.add(text)
	rest, calls := reader.finish()
	m := j.conclude(said+rest, calls, out)
	return m
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

func (j *chatJob) whole(w http.ResponseWriter) error {
	texts, outputs, err := j.texts()
	if err != nil {
		return err
	}
	answer := j.template
	answer.Object, answer.Usage = "chat.completion", &usage{Prompt: len(j.prompt), Total: len(j.prompt)}
	for i, out := range outputs {
		m := j.message(texts[i], out)
		reason := finishReason(out.Finish, len(m.ToolCalls) > 0)
		choice := chatChoice{Index: i, Message: m, FinishReason: &reason}
		if j.request.Logprobs {
			choice.Logprobs = &chatLogprobs{Content: j.api.logprobs(whole(out))}
		}
		if j.request.ReturnTokenIDs {
			choice.TokenIDs = out.Tokens
		}
		answer.Usage.add(len(out.Tokens), out.CachedTokens)
		answer.Choices = append(answer.Choices, choice)
	}
	if j.request.ReturnTokenIDs {
		answer.PromptTokenIDs = j.prompt
	}
	serve.Answer(w, http.StatusOK, answer)
	return nil
}

// whole is a reply as one piece.
func whole(out torch.Output) (p piece) {
	p.Tokens, p.Logprobs, p.Alternatives = out.Tokens, out.Logprobs, out.Alternatives
	return p
}

// chunk sends one part of a choice.
func (j *chatJob) chunk(e *events, choice chatChoice) {
	part := j.template
	part.Object, part.Choices = "chat.completion.chunk", []chatChoice{choice}
	e.send("", part)
	j.template.PromptTokenIDs = nil // once
}

func (j *chatJob) stream(w http.ResponseWriter) {
	e := &events{w: w}
	readers, texts := make([]callReader, len(j.streams)), make([]string, len(j.streams))
	if j.request.ReturnTokenIDs {
		j.template.PromptTokenIDs = j.prompt
	}
	for i := range readers {
		readers[i].on = j.tools
		nothing := ""
		j.chunk(e, chatChoice{Index: i, Delta: &delta{Role: "assistant", Content: &nothing}})
	}
	count := &usage{Prompt: len(j.prompt), Total: len(j.prompt)}
	seen := false
	for p := range j.pieces() {
		if !seen {
			seen = true
			j.first()
		}
		text := readers[p.choice].add(p.Text)
		texts[p.choice] += text
		choice := chatChoice{Index: p.choice, Delta: &delta{}}
		if text != "" {
			choice.Delta.Content = &text
		}
		if len(p.Tokens) > 0 && j.request.Logprobs {
			choice.Logprobs = &chatLogprobs{Content: j.api.logprobs(p)}
		}
		if j.request.ReturnTokenIDs {
			choice.TokenIDs = p.Tokens
		}
		if text != "" || choice.Logprobs != nil || len(choice.TokenIDs) > 0 {
			j.chunk(e, choice)
		}
		if p.Last {
			j.last(e, p.choice, &readers[p.choice], texts[p.choice], count)
		}
		if e.err != nil {
			return // nobody listens
		}
	}
	if err := j.failed(); err != nil {
		e.fail(err)
		return
	}
	if j.request.StreamOptions.IncludeUsage {
		part := j.template
		part.Object, part.Usage = "chat.completion.chunk", count
		e.send("", part)
	}
	e.text("", "[DONE]")
}

// last sends what is left of a choice: the text that was held back, calls and the reason of its end.
func (j *chatJob) last(e *events, i int, reader *callReader, text string, count *usage) {
	out, err := j.wait(i)
	if err != nil {
		return // failed tells of it
	}
	rest, calls := reader.finish()
	m := j.conclude(text+rest, calls, out)
	if rest != "" || len(m.ToolCalls) > 0 {
		d := &delta{}
		if rest != "" {
			d.Content = &rest
		}
		for n, call := range m.ToolCalls {
			d.ToolCalls = append(d.ToolCalls, callDelta{n, call})
		}
		j.chunk(e, chatChoice{Index: i, Delta: d})
	}
	reason := finishReason(out.Finish, len(m.ToolCalls) > 0)
	j.chunk(e, chatChoice{Index: i, Delta: &delta{}, FinishReason: &reason})
	count.add(len(out.Tokens), out.CachedTokens)
}
