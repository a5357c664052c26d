package openai

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"gyre/internal/nearest"
	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
	"gyre/torch"
)

// parameters are what requests of all forms may say. Pointers tell null from zero.
type parameters struct {
	Model          string   `json:"model"`
	Temperature    *float64 `json:"temperature"`
	TopP           *float64 `json:"top_p"`
	MinP           float64  `json:"min_p"`
	TopK           int      `json:"top_k"`
	N              *int     `json:"n"`
	Seed           *int64   `json:"seed"`
	Stop           stops    `json:"stop"`
	StopTokenIDs   []int32  `json:"stop_token_ids"`
	MinTokens      int      `json:"min_tokens"`
	IgnoreEOS      bool     `json:"ignore_eos"`
	ReturnTokenIDs bool     `json:"return_token_ids"`
	Stream         bool     `json:"stream"`
	StreamOptions  struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// stops are strings that end a reply: one or a list.
type stops []string

func (s *stops) UnmarshalJSON(data []byte) error {
	var one string
	if err := json.Unmarshal(data, (*[]string)(s)); err == nil {
		return nil
	}
	if json.Unmarshal(data, &one) != nil {
		return serve.Bad("stop", "stop is %.80s, expected a string or a list of strings", data)
	}
	*s = stops{one}
	return nil
}

// ignored are parameters that mean nothing here.
var ignored = strings.Fields("user store metadata service_tier safety_identifier prompt_cache_key " +
	"prompt_cache_retention reasoning_effort reasoning verbosity include truncation background prediction")

// onlyDefault are parameters that may be given, but not changed: what they would do is not there.
var onlyDefault = map[string]any{
	"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "logit_bias": map[string]any{},
	"best_of": 1.0, "echo": false, "suffix": "", "skip_special_tokens": true, "include_stop_str_in_output": false,
	"add_generation_prompt": true, "continue_final_message": false, "add_special_tokens": true,
	"functions": []any{}, "modalities": []any{"text"}, "previous_response_id": "", "conversation": "",
	"chat_template_kwargs": map[string]any{}, "response_format": map[string]any{"type": "text"},
	"text": map[string]any{"format": map[string]any{"type": "text"}},
}

// decode reads a request and refuses parameters that are unknown or not supported.
func decode(r *http.Request, v any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	r.Body = io.NopCloser(bytes.NewReader(data))
	if err := serve.Decode(r, &fields); err != nil {
		return err
	}
	var known []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v).Elem()) {
		if tag := f.Tag.Get("json"); tag != "" {
			known = append(known, tag)
		}
	}
	for name, value := range fields {
		only, limited := onlyDefault[name]
		switch {
		case string(value) == "null" || slices.Contains(known, name) || slices.Contains(ignored, name):
		case limited:
			var given any
			if json.Unmarshal(value, &given) != nil || !reflect.DeepEqual(given, only) {
				return serve.Bad(name, "%s = %.80s is not supported: leave it out", name, value)
			}
		default:
			return serve.Bad(name, "there is no parameter %.80q%s", name, nearest.Hint(name, known))
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	return serve.Decode(r, v)
}

// limits of one request, so that no client takes everything.
const (
	maxChoices = 128
	maxStops   = 16
)

// requests are the host's that one prompt becomes: n, which differ in their seeds.
func (a *API) requests(p *parameters, prompt []int32, maxTokens *int, alternatives int) ([]host.Request, error) {
	policy, err := a.host.Policy(p.Model)
	if err != nil {
		return nil, err
	}
	n, seed := serve.Given(p.N, 1), uint64(serve.Given(p.Seed, rand.Int64()))
	s := host.Sampling()
	s.TopK, s.MinP, s.MinTokens, s.IgnoreEOS = max(p.TopK, 0), p.MinP, p.MinTokens, p.IgnoreEOS // -1 is off, as in vLLM
	s.Alternatives = alternatives
	s.Temperature, s.TopP = serve.Given(p.Temperature, s.Temperature), serve.Given(p.TopP, s.TopP)
	s.MaxTokens = serve.Given(maxTokens, s.MaxTokens)
	switch {
	case n < 1 || n > maxChoices:
		return nil, serve.Bad("n", "n is %d, expected 1 to %d", n, maxChoices)
	case len(p.Stop) > maxStops || slices.Contains(p.Stop, ""):
		return nil, serve.Bad("stop", "stop has %d strings, expected at most %d, none of them empty", len(p.Stop),
			maxStops)
	case maxTokens != nil && *maxTokens < 1:
		return nil, serve.Bad("max_tokens", "a reply of %d tokens is asked for, expected at least 1", *maxTokens)
	case alternatives < 0 || alternatives > torch.MaxAlternatives:
		return nil, serve.Bad("top_logprobs", "%d alternatives are asked for, expected 0 to %d", alternatives,
			torch.MaxAlternatives)
	}
	list := make([]host.Request, n)
	for i := range list {
		s.Seed = generation.RowSeed(seed, i)
		list[i] = host.Request{Prompt: prompt, Sampling: s, StopIDs: p.StopTokenIDs, StopStrings: p.Stop,
			Policy: policy}
	}
	return list, nil
}
