package anthropic

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/talk"
)

// request is the body of a message that is asked for, and of a count of tokens.
type request struct {
	Model         string          `json:"model"`
	Messages      conversation    `json:"messages"`
	System        systemContent   `json:"system"`
	MaxTokens     *int            `json:"max_tokens"`
	StopSequences []string        `json:"stop_sequences"`
	Temperature   *float64        `json:"temperature"`
	TopP          *float64        `json:"top_p"`
	TopK          int             `json:"top_k"`
	Tools         tools           `json:"tools"`
	ToolChoice    toolChoice      `json:"tool_choice"`
	Thinking      *thinkingConfig `json:"thinking"`
	OutputConfig  outputConfig    `json:"output_config"`
	Thread        json.RawMessage `json:"thread"`
	Stream        bool            `json:"stream"`

	TemplateVariables map[string]json.RawMessage `json:"chat_template_kwargs"` // vLLM's
}

type toolChoice struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	OneCall bool   `json:"disable_parallel_tool_use"`
}

type thinkingConfig struct {
	Type    string `json:"type"`
	Budget  *int   `json:"budget_tokens"`
	Display string `json:"display"`
}

// outputConfig is how the output is to look; its effort means nothing here.
type outputConfig struct {
	Format json.RawMessage `json:"format"`
}

var keys = serve.Keys{
	Ignored: strings.Fields("metadata service_tier inference_geo user_profile_id workspace_id cache_control diagnostics"),
	OnlyDefault: map[string]any{"container": "", "context_management": map[string]any{}, "mcp_servers": []any{},
		"speed": "standard", "output_format": map[string]any{"type": "text"}},
}

// decode reads a request.
func decode(r *http.Request) (*request, error) {
	var q request
	if err := checkVersion(r); err != nil {
		return nil, err
	}
	if err := keys.Decode(r, &q); err != nil {
		return nil, err
	}
	return &q, q.check()
}

// check refuses what there is not.
func (q *request) check() error {
	switch kind := q.ToolChoice.Type; kind {
	case "", "auto", "none":
	case "any", "tool":
		return serve.Bad("tool_choice", "tool_choice of type %s is not supported: a call cannot be forced: use auto, "+
			"and say in the prompt which tool to call", kind)
	default:
		return serve.Bad("tool_choice", "tool_choice is of type %.40q, expected auto or none", kind)
	}
	if q.Thread != nil && string(q.Thread) != "null" {
		err := serve.Bad("thread", "thread is not supported: the server keeps no conversations: send all messages")
		err.Code = new("thread_unsupported_request") // upon which clients do
		return err
	}
	if format := q.OutputConfig.Format; format != nil && string(format) != "null" {
		return serve.Bad("output_config", "output_config.format is not supported: replies cannot be held to a JSON "+
			"schema: describe the form in the prompt, and check the reply")
	}
	if n := len(q.StopSequences); n > talk.MaxStops || slices.Contains(q.StopSequences, "") {
		return serve.Bad("stop_sequences", "stop_sequences has %d strings, expected at most %d, none of them empty", n,
			talk.MaxStops)
	}
	switch t := q.Thinking; {
	case t == nil:
	case !slices.Contains([]string{"enabled", "disabled", "adaptive"}, t.Type):
		return serve.Bad("thinking", "thinking is of type %.40q, expected enabled, disabled or adaptive", t.Type)
	case t.Display != "" && t.Display != "summarized":
		return serve.Bad("thinking", "thinking.display = %.40q is not supported: thinking is always returned: leave "+
			"it out", t.Display)
	case t.Type == "enabled" && (t.Budget == nil || *t.Budget < 1024):
		return serve.Bad("thinking", "thinking.budget_tokens is missing or too small, expected at least 1024")
	case t.Type == "enabled" && q.MaxTokens != nil && *t.Budget >= *q.MaxTokens:
		return serve.Bad("thinking", "thinking.budget_tokens is %d, expected less than max_tokens, which is %d",
			*t.Budget, *q.MaxTokens)
	}
	return nil
}

// switches are the names that chat templates give to the variable which switches thinking on.
var switches = []string{"enable_thinking", "thinking"}

// ask is what the request asks for, as package talk has it.
func (q *request) ask(t *chat.Tokenizer) (talk.Ask, error) {
	ask := talk.Ask{MaxTokens: q.MaxTokens, OneCall: q.ToolChoice.OneCall, Parameters: talk.Parameters{Model: q.Model,
		Temperature: q.Temperature, TopP: q.TopP, TopK: q.TopK, Stop: q.StopSequences, Stream: q.Stream}}
	if q.ToolChoice.Type != "none" {
		ask.Offer.Tools = q.Tools
	}
	ask.Offer.Variables = map[string]json.RawMessage{}
	for _, name := range switches {
		if q.Thinking != nil && t.ReadsVariable(name) {
			ask.Offer.Variables[name] = strconv.AppendBool(nil, q.Thinking.Type != "disabled")
		}
	}
	maps.Copy(ask.Offer.Variables, q.TemplateVariables)
	var err error
	ask.Messages, err = q.chat()
	return ask, err
}

// tools are those that the client runs.
type tools []chat.Tool

var toolKeys = serve.Keys{Ignored: strings.Fields("cache_control eager_input_streaming"),
	OnlyDefault: map[string]any{"strict": false, "defer_loading": false}}

func (t *tools) UnmarshalJSON(data []byte) error {
	return each((*[]chat.Tool)(t), "tools", data, func(t *chat.Tool, data []byte) error {
		var one struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"input_schema"`
			Type        string          `json:"type"`
		}
		_ = json.Unmarshal(data, &one) // what is wrong in it, Read says
		if one.Type != "" && one.Type != "custom" {
			return fmt.Errorf("the server does not run tools of type %.60q: give the tool a name, a description and an "+
				"input_schema, and run it yourself", one.Type)
		}
		if err := toolKeys.Read(data, &one); err != nil {
			return err
		}
		if json.Unmarshal(one.Schema, &map[string]any{}) != nil {
			return fmt.Errorf("input_schema is %.60q, expected a JSON Schema", one.Schema)
		}
		*t = chat.Tool{Name: one.Name, Description: one.Description, Parameters: one.Schema}
		return nil
	})
}
