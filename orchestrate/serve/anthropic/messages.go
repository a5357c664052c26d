package anthropic

import (
	"net/http"
	"strings"

	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/talk"
	"gyre/torch"
)

// job is a message that is on its way to who asked.
type job struct {
	*talk.Turn
	api     *API
	request *request
	id      string
}

// Messages answers POST /v1/messages.
func (a *API) Messages(w http.ResponseWriter, r *http.Request) {
	j, err := a.open(r)
	if err != nil {
		serve.Fail(w, err)
		return
	}
	defer j.Cancel()
	j.answer(w)
}

func (a *API) open(r *http.Request) (*job, error) {
	q, err := decode(r)
	if err != nil {
		return nil, err
	}
	if q.MaxTokens == nil {
		return nil, serve.Bad("max_tokens", "max_tokens is missing: say how many tokens the reply may have")
	}
	ask, err := q.ask(a.talks.Host.Tokenizer())
	if err != nil {
		return nil, err
	}
	j := &job{api: a, request: q, id: a.talks.ID("msg")}
	j.Turn, err = a.talks.Open(r, ask)
	return j, err
}

// CountTokens answers POST /v1/messages/count_tokens. Nothing is said in a session: its own prompt may have more
// tokens, where a client leaves out what was thought.
func (a *API) CountTokens(r *http.Request, _ struct{}) (any, error) {
	q, err := decode(r)
	if err != nil {
		return nil, err
	}
	if _, err := a.talks.Host.Policy(q.Model); err != nil {
		return nil, err
	}
	if _, err := a.talks.Session(r); err != nil {
		return nil, err
	}
	ask, err := q.ask(a.talks.Host.Tokenizer())
	if err != nil {
		return nil, err
	}
	ids, err := a.talks.Encode(nil, ask.Messages, ask.Offer)
	return object{"input_tokens": len(ids)}, err
}

// answer plays the reply and tells of it, as it comes or as a whole.
func (j *job) answer(w http.ResponseWriter) {
	s := &speech{events: serve.Events{W: w}, on: j.request.Stream, content: []object{}}
	s.send("message_start", object{"message": j.message(s, nil)})
	s.send("ping", object{})
	var whole *talk.Reply
	err := j.Play(func(p talk.Piece, reply *talk.Reply) error {
		whole = reply
		s.say(p.Thinking, p.Text)
		for _, call := range p.Calls {
			s.call(call)
		}
		return s.events.Err
	})
	switch {
	case s.events.Err != nil: // nobody listens
		return
	case err != nil && s.events.Started:
		_, body := errorOf(err, w.Header().Get(serve.RequestID))
		s.events.Send("error", body)
		return
	case err != nil:
		serve.Fail(w, err)
		return
	}
	s.stop()
	if !s.on {
		serve.Answer(w, http.StatusOK, j.message(s, whole))
		return
	}
	reason, sequence := j.reason(whole)
	s.send("message_delta", object{"delta": object{"stop_reason": reason, "stop_sequence": sequence},
		"usage": j.usage(&whole.Output)})
	s.send("message_stop", object{})
}

// message is the answer; without a reply it has just begun.
func (j *job) message(s *speech, whole *talk.Reply) object {
	m := object{"id": j.id, "type": "message", "role": "assistant", "model": j.request.Model, "content": s.content,
		"stop_reason": nil, "stop_sequence": nil}
	if whole == nil {
		m["usage"] = j.usage(&torch.Output{})
		return m
	}
	m["stop_reason"], m["stop_sequence"] = j.reason(whole)
	m["usage"] = j.usage(&whole.Output)
	return m
}

// usage counts tokens. Those of the prompt that are cached are told apart.
func (j *job) usage(out *torch.Output) object {
	return object{"input_tokens": len(j.Prompt) - out.CachedTokens, "cache_read_input_tokens": out.CachedTokens,
		"cache_creation_input_tokens": 0, "output_tokens": len(out.Tokens)}
}

// reason says why the reply ended, and at which of the stop sequences.
func (j *job) reason(whole *talk.Reply) (reason string, sequence *string) {
	if len(whole.Calls) > 0 {
		return "tool_use", nil
	}
	if whole.Output.Finish == torch.FinishLength {
		return "max_tokens", nil
	}
	first, text := -1, j.api.talks.Host.Tokenizer().Said(whole.Output.Tokens)
	for _, stop := range j.request.StopSequences {
		if at := strings.Index(text, stop); at >= 0 && (first < 0 || at < first) {
			first, sequence = at, &stop
		}
	}
	if sequence != nil {
		return "stop_sequence", sequence
	}
	return "end_turn", nil
}
