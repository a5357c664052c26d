package openai

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/chat/replies"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/talk"
	"gyre/torch"
)

// responseRequest is the body of the Responses API. A conversation comes whole, or goes on from a response that is
// stored.
type responseRequest struct {
	Model             string          `json:"model"`
	Input             responseInput   `json:"input"`
	Instructions      string          `json:"instructions"`
	MaxOutputTokens   *int            `json:"max_output_tokens"`
	Temperature       *float64        `json:"temperature"`
	TopP              *float64        `json:"top_p"`
	Seed              *int64          `json:"seed"`
	Tools             json.RawMessage `json:"tools"`
	ToolChoice        json.RawMessage `json:"tool_choice"`
	ParallelToolCalls *bool           `json:"parallel_tool_calls"`
	Stream            bool            `json:"stream"`
	Store             *bool           `json:"store"`
	Previous          string          `json:"previous_response_id"`

	TemplateVariables map[string]json.RawMessage `json:"chat_template_kwargs"` // vLLM's
}

type object = map[string]any

// responseJob is a response that is being answered.
type responseJob struct {
	chatJob
	owner    [sha256.Size]byte
	store    bool
	previous *string
	said     []chat.Message // the conversation, without instructions
}

// Responses answers POST /v1/responses.
func (a *API) Responses(w http.ResponseWriter, r *http.Request) {
	j, err := a.openResponse(r)
	if err != nil {
		serve.Fail(w, err)
		return
	}
	defer j.Cancel()
	j.template.ID = "resp_" + rand.Text() // which nobody guesses
	j.respond(&events{serve.Events{W: w}})
}

// openResponse starts the chat that a response is.
func (a *API) openResponse(r *http.Request) (*responseJob, error) {
	var q responseRequest
	if err := keys.Decode(r, &q); err != nil {
		return nil, err
	}
	before, err := a.before(r, q.Previous)
	if err != nil {
		return nil, err
	}
	j := &responseJob{chatJob: chatJob{api: a}, owner: ownerOf(r), store: serve.Given(q.Store, true),
		said: slices.Concat(before, q.Input)}
	if q.Previous != "" {
		j.previous = &q.Previous
	}
	if j.request.Messages = j.said; q.Instructions != "" {
		j.request.Messages = slices.Concat(messages{{Role: "system", Content: q.Instructions}}, j.said)
	}
	j.request.Parameters = talk.Parameters{Model: q.Model, Temperature: q.Temperature, TopP: q.TopP, Seed: q.Seed,
		Stream: q.Stream}
	j.request.Tools, j.request.ToolChoice = q.Tools, q.ToolChoice
	j.request.TemplateVariables = q.TemplateVariables
	j.request.MaxTokens, j.request.ParallelToolCalls = q.MaxOutputTokens, q.ParallelToolCalls
	return j, j.open(r)
}

// finished is the answer with its reply, which is stored if the request does not say otherwise.
func (j *responseJob) finished(items []object, whole *talk.Reply) object {
	answer := j.response(items, &whole.Output)
	if j.store {
		j.api.stored.add(storedResponse{id: j.template.ID, owner: j.owner, answer: answer,
			messages: slices.Concat(j.said, []chat.Message{whole.Message()})})
	}
	return answer
}

// written is an item of text: what was thought, or the message.
type written struct {
	kind   string // reasoning or message
	prefix string // of its id
	events string // what its deltas are called
	part   string // its part's type
	at     int    // its place in the output
	text   strings.Builder
}

// writings are the items of a kind of text.
var writings = map[replies.Kind]written{
	replies.Thinking: {kind: "reasoning", prefix: "rs_", events: "response.reasoning_text.", part: "reasoning_text"},
	replies.Content:  {kind: "message", prefix: "msg_", events: "response.output_text.", part: "output_text"},
}

func (w *written) id(j *responseJob) string { return w.prefix + j.template.ID }

// item is the whole of it; without a status of "completed" it has no text yet.
func (w *written) item(j *responseJob, status string) object {
	it := object{"type": w.kind, "id": w.id(j), "status": status, "content": []object{}}
	if status == "completed" {
		it["content"] = []object{w.content(w.text.String())}
	}
	if w.kind == "message" {
		it["role"] = "assistant"
	} else {
		it["summary"] = []object{}
	}
	return it
}

func (w *written) content(text string) object {
	c := object{"type": w.part, "text": text}
	if w.kind == "message" {
		c["annotations"], c["logprobs"] = []any{}, []any{}
	}
	return c
}

func callItemOf(call chat.ToolCall) object {
	return object{"type": "function_call", "id": "fc_" + call.ID, "call_id": call.ID, "name": call.Function.Name,
		"arguments": call.Function.Arguments, "status": "completed"}
}

// response is the answer with these items; without an output it is still in progress.
func (j *responseJob) response(items []object, out *torch.Output) object {
	q := j.request
	answer := object{"id": j.template.ID, "object": "response", "created_at": j.template.Created, "model": q.Model,
		"status": "in_progress", "output": items, "error": nil, "incomplete_details": nil, "instructions": nil,
		"metadata": object{}, "parallel_tool_calls": q.ParallelToolCalls == nil || *q.ParallelToolCalls,
		"temperature": q.Temperature, "top_p": q.TopP, "tool_choice": "auto", "tools": []any{}, "usage": nil,
		"max_output_tokens": q.MaxTokens, "store": j.store,
		"previous_response_id": j.previous}
	if out == nil {
		return answer
	}
	answer["status"] = "completed"
	if out.Finish == torch.FinishLength {
		answer["status"], answer["incomplete_details"] = "incomplete", object{"reason": "max_output_tokens"}
	}
	answer["usage"] = object{"input_tokens": len(j.Prompt), "output_tokens": len(out.Tokens),
		"total_tokens":          len(j.Prompt) + len(out.Tokens),
		"input_tokens_details":  object{"cached_tokens": out.CachedTokens, "cache_write_tokens": 0},
		"output_tokens_details": object{"reasoning_tokens": 0}}
	return answer
}

// telling is a response that is on its way to who asked: as the events of its items, or as a whole.
type telling struct {
	*responseJob
	to     *events
	number int        // of events
	texts  []*written // in the order in which they began
}

// respond plays a response and tells of it.
func (j *responseJob) respond(e *events) {
	t := &telling{responseJob: j, to: e}
	t.send("response.created", object{"response": j.response([]object{}, nil)})
	t.send("response.in_progress", object{"response": j.response([]object{}, nil)})
	var whole *talk.Reply
	err := j.Play(func(p talk.Piece, reply *talk.Reply) error {
		t.say(replies.Thinking, p.Thinking)
		t.say(replies.Content, p.Text)
		whole = reply
		return e.Err
	})
	switch {
	case err != nil && j.request.Stream:
		t.send("error", object{"message": serve.Told(err), "code": nil, "param": nil})
		return
	case err != nil:
		e.fail(err)
		return
	}
	items := t.end(messageOf(whole))
	answer := j.finished(items, whole)
	if !j.request.Stream {
		serve.Answer(e.W, http.StatusOK, answer)
		return
	}
	kind := "response.completed"
	if whole.Output.Finish == torch.FinishLength {
		kind = "response.incomplete"
	}
	t.send(kind, object{"response": answer})
}

// send sends an event, if events were asked for.
func (t *telling) send(kind string, fields object) {
	if t.request.Stream {
		fields["type"], fields["sequence_number"] = kind, t.number
		t.number++
		t.to.Send(kind, fields)
	}
}

// at is the place of an event in a text.
func (t *telling) at(w *written, fields object) object {
	fields["item_id"], fields["output_index"], fields["content_index"] = w.id(t.responseJob), w.at, 0
	return fields
}

// begin tells of an item of text that begins.
func (t *telling) begin(kind replies.Kind) *written {
	w := writings[kind]
	w.at = len(t.texts)
	t.texts = append(t.texts, &w)
	t.send("response.output_item.added", object{"output_index": w.at, "item": w.item(t.responseJob, "in_progress")})
	t.send("response.content_part.added", t.at(&w, object{"part": w.content("")}))
	return &w
}

// say tells of more of a text, which its first words begin.
func (t *telling) say(kind replies.Kind, said string) {
	if said == "" {
		return
	}
	i := slices.IndexFunc(t.texts, func(w *written) bool { return w.kind == writings[kind].kind })
	if i < 0 {
		i = t.begin(kind).at
	}
	w := t.texts[i]
	w.text.WriteString(said)
	delta := object{"delta": said}
	if w.kind == "message" {
		delta["logprobs"] = []any{}
	}
	t.send(w.events+"delta", t.at(w, delta))
}

// end tells of the items, which are whole, and gives them.
func (t *telling) end(m *message) (items []object) {
	if m.Content != nil && *m.Content == "" {
		t.begin(replies.Content)
	}
	for i, w := range t.texts {
		text := w.text.String()
		items = append(items, w.item(t.responseJob, "completed"))
		done := object{"text": text}
		if w.kind == "message" {
			done["logprobs"] = []any{}
		}
		t.send(w.events+"done", t.at(w, done))
		t.send("response.content_part.done", t.at(w, object{"part": w.content(text)}))
		t.send("response.output_item.done", object{"output_index": i, "item": items[i]})
	}
	for _, call := range m.ToolCalls {
		i, it := len(items), callItemOf(call)
		items = append(items, it)
		t.send("response.output_item.added", object{"output_index": i, "item": it})
		t.send("response.function_call_arguments.done", object{"output_index": i, "item_id": it["id"],
			"name": it["name"], "arguments": it["arguments"]})
		t.send("response.output_item.done", object{"output_index": i, "item": it})
	}
	return items
}
