package openai

import (
	"net/http"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/talk"
	"gyre/torch"
)

// part is what is new of a choice, or all of it.
type part struct {
	text     string
	thinking string
	calls    []chat.ToolCall
	before   int            // calls that came earlier
	logprobs []tokenLogprob // where they are asked for
	ids      []int32        // likewise
}

func (a *API) part(p talk.Piece, logprobs, ids bool) part {
	out := part{text: p.Text, thinking: p.Thinking, calls: p.Calls, before: p.Before}
	if logprobs {
		out.logprobs = a.logprobs(p)
	}
	if ids {
		out.ids = p.Tokens
	}
	return out
}

func (p *part) add(more part) {
	p.text, p.thinking = p.text+more.text, p.thinking+more.thinking
	p.calls = append(p.calls, more.calls...)
	p.logprobs = append(p.logprobs, more.logprobs...)
	p.ids = append(p.ids, more.ids...)
}

func (p part) empty() bool {
	return p.text == "" && p.thinking == "" && len(p.calls) == 0 && len(p.logprobs) == 0 && len(p.ids) == 0
}

// answer is a completion, or a chunk of one, with choices C.
type answer[C any] struct {
	ID             string  `json:"id"`
	Object         string  `json:"object"`
	Created        int64   `json:"created"`
	Model          string  `json:"model"`
	Choices        []C     `json:"choices"`
	Usage          *usage  `json:"usage,omitempty"`
	PromptTokenIDs []int32 `json:"prompt_token_ids,omitempty"`
}

// events are those of an answer.
type events struct{ serve.Events }

// fail tells of an error, also in the middle of an answer.
func (e *events) fail(err error) {
	if !e.Started {
		serve.Fail(e.W, err)
		return
	}
	e.Send("", map[string]any{"error": serve.ErrorOf(err)})
}

// finish ends an answer: with an error, as a whole, or as the last events of a stream.
func (e *events) finish(p *talk.Parameters, err error, whole, usage any) {
	switch {
	case e.Err != nil: // nobody listens
	case err != nil:
		e.fail(err)
	case !p.Stream:
		serve.Answer(e.W, http.StatusOK, whole)
	default:
		if p.StreamOptions.IncludeUsage {
			e.Send("", usage)
		}
		e.Text("", "[DONE]")
	}
}

// finishReason is the reason as OpenAI calls it.
func finishReason(f torch.Finish, called bool) *string {
	reason := f.String()
	if called {
		reason = "tool_calls"
	}
	return &reason
}
