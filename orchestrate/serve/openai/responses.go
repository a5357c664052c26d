package openai

import (
	"encoding/json"
	"net/http"
	"strings"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
	"gyre/torch"
)

// responseRequest is the body of the Responses API. Nothing is stored, so a conversation comes whole with each request.
type responseRequest struct {
	Model             string          `json:"model"`
	Input             responseInput   `json:"input"`
	Instructions      string          `json:"instructions"`
	MaxOutputTokens   *int            `json:"max_output_tokens"`
	Temperature       *float64        `json:"temperature"`
	TopP              *float64        `json:"top_p"`
	Seed              *int64          `json:"seed"`
	Tools             []tool          `json:"tools"`
	ToolChoice        json.RawMessage `json:"tool_choice"`
	ParallelToolCalls *bool           `json:"parallel_tool_calls"`
	Stream            bool            `json:"stream"`
}

// responseInput is a text, or a list of messages, calls and their results.
type responseInput []message

func (in *responseInput) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*in = responseInput{{Role: "user", Content: new(content(text))}}
		return nil
	}
	var items []struct {
		Type      string          `json:"type"`
		Role      string          `json:"role"`
		Content   *content        `json:"content"`
		CallID    string          `json:"call_id"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Output    *content        `json:"output"`
	}
	if err := json.Unmarshal(data, &items); err != nil {
		return serve.Bad("input", "input: expected a string or a list of items: %v", err)
	}
	for i, item := range items {
		switch item.Type {
		case "", "message":
			*in = append(*in, message{Role: item.Role, Content: item.Content})
		case "function_call":
			call := chat.ToolCall{ID: item.CallID, Function: chat.Call{Name: item.Name, Arguments: item.Arguments}}
			if n := len(*in); n > 0 && (*in)[n-1].Role == "assistant" {
				(*in)[n-1].ToolCalls = append((*in)[n-1].ToolCalls, call)
			} else {
				*in = append(*in, message{Role: "assistant", ToolCalls: []chat.ToolCall{call}})
			}
		case "function_call_output":
			*in = append(*in, message{Role: "tool", Content: item.Output, ToolCallID: item.CallID})
		default:
			return serve.Bad("input", "item %d of input is of type %.40q, expected message, function_call or "+
				"function_call_output", i, item.Type)
		}
	}
	return nil
}

type object = map[string]any

// Responses answers POST /v1/responses.
func (a *API) Responses(w http.ResponseWriter, r *http.Request) {
	j, err := a.openResponse(r)
	if err != nil {
		serve.Fail(w, err)
		return
	}
	defer j.cancel()
	j.template.ID = a.id("resp")
	j.respond(&events{w: w})
}

// openResponse starts the chat that a response is.
func (a *API) openResponse(r *http.Request) (*chatJob, error) {
	var q responseRequest
	if err := decode(r, &q); err != nil {
		return nil, err
	}
	j := &chatJob{api: a}
	if q.Instructions != "" {
		q.Input = append(responseInput{{Role: "system", Content: new(content(q.Instructions))}}, q.Input...)
	}
	j.request.parameters = parameters{Model: q.Model, Temperature: q.Temperature, TopP: q.TopP, Seed: q.Seed,
		Stream: q.Stream}
	j.request.Messages, j.request.Tools, j.request.ToolChoice = q.Input, q.Tools, q.ToolChoice
	j.request.MaxTokens, j.request.ParallelToolCalls = q.MaxOutputTokens, q.ParallelToolCalls
	return j, j.open(r)
}

// items are what a message becomes.
func (j *chatJob) items(m *message) []object {
	items := []object{}
	if m.Content != nil {
		items = append(items, j.textItem(string(*m.Content), "completed"))
	}
	for _, call := range m.ToolCalls {
		items = append(items, object{"type": "function_call", "id": "fc_" + call.ID, "call_id": call.ID,
			"name": call.Function.Name, "arguments": call.Function.Arguments, "status": "completed"})
	}
	return items
}

func (j *chatJob) textItem(text, status string) object {
	return object{"type": "message", "id": "msg_" + j.template.ID, "role": "assistant", "status": status,
		"content": []object{textPart(text)}}
}

func textPart(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
}

// response is the answer with these items; without an output it is still in progress.
func (j *chatJob) response(items []object, out *torch.Output) object {
	q := j.request
	answer := object{"id": j.template.ID, "object": "response", "created_at": j.template.Created, "model": q.Model,
		"status": "in_progress", "output": items, "error": nil, "incomplete_details": nil, "instructions": nil,
		"metadata": object{}, "parallel_tool_calls": q.ParallelToolCalls == nil || *q.ParallelToolCalls,
		"temperature": q.Temperature, "top_p": q.TopP, "tool_choice": "auto", "tools": []any{}, "usage": nil,
		"max_output_tokens": q.MaxTokens, "store": false}
	if out == nil {
		return answer
	}
	answer["status"] = "completed"
	if out.Finish == torch.FinishLength {
		answer["status"], answer["incomplete_details"] = "incomplete", object{"reason": "max_output_tokens"}
	}
	answer["usage"] = object{"input_tokens": len(j.prompt), "output_tokens": len(out.Tokens),
		"total_tokens":          len(j.prompt) + len(out.Tokens),
		"input_tokens_details":  object{"cached_tokens": out.CachedTokens, "cache_write_tokens": 0},
		"output_tokens_details": object{"reasoning_tokens": 0}}
	return answer
}

// respond tells of a response as the events of its items, or as a whole.
func (j *chatJob) respond(e *events) {
	number := 0
	send := func(kind string, fields object) {
		if j.request.Stream {
			fields["type"], fields["sequence_number"] = kind, number
			number++
			e.send(kind, fields)
		}
	}
	send("response.created", object{"response": j.response([]object{}, nil)})
	send("response.in_progress", object{"response": j.response([]object{}, nil)})
	reader, text := callReader{on: j.tools}, strings.Builder{}
	item := "msg_" + j.template.ID
	at := func(fields object) object {
		fields["item_id"], fields["output_index"], fields["content_index"] = item, 0, 0
		return fields
	}
	say := func(said string) {
		if said == "" {
			return
		}
		if text.Len() == 0 {
			open := j.textItem("", "in_progress")
			open["content"] = []object{}
			send("response.output_item.added", object{"output_index": 0, "item": open})
			send("response.content_part.added", at(object{"part": textPart("")}))
		}
		text.WriteString(said)
		send("response.output_text.delta", at(object{"delta": said, "logprobs": []any{}}))
	}
	var out torch.Output
	err := j.play(func(p piece, whole *torch.Output) error {
		say(reader.add(p.Text))
		if whole != nil {
			out = *whole
		}
		return e.err
	})
	switch {
	case err != nil && j.request.Stream:
		send("error", object{"message": err.Error(), "code": nil, "param": nil})
		return
	case err != nil:
		e.fail(err)
		return
	}
	rest, calls := reader.finish()
	say(rest)
	items := j.items(j.conclude(text.String(), calls, out))
	for i, it := range items {
		if it["type"] == "message" && text.Len() > 0 {
			send("response.output_text.done", at(object{"text": text.String(), "logprobs": []any{}}))
			send("response.content_part.done", at(object{"part": textPart(text.String())}))
		} else {
			send("response.output_item.added", object{"output_index": i, "item": it})
		}
		if it["type"] == "function_call" {
			send("response.function_call_arguments.done", object{"output_index": i, "item_id": it["id"],
				"name": it["name"], "arguments": it["arguments"]})
		}
		send("response.output_item.done", object{"output_index": i, "item": it})
	}
	if !j.request.Stream {
		serve.Answer(e.w, http.StatusOK, j.response(items, &out))
		return
	}
	kind := "response.completed"
	if out.Finish == torch.FinishLength {
		kind = "response.incomplete"
	}
	send(kind, object{"response": j.response(items, &out)})
}
