package talk

import (
	"encoding/json"
	"math/rand/v2"
	"slices"

	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
	"gyre/torch"
)

// Parameters are what requests of all forms may say. Pointers tell null from zero.
type Parameters struct {
	Model          string   `json:"model"`
	Temperature    *float64 `json:"temperature"`
	TopP           *float64 `json:"top_p"`
	MinP           float64  `json:"min_p"`
	TopK           int      `json:"top_k"`
	N              *int     `json:"n"`
	Seed           *int64   `json:"seed"`
	Stop           Stops    `json:"stop"`
	StopTokenIDs   []int32  `json:"stop_token_ids"`
	MinTokens      int      `json:"min_tokens"`
	IgnoreEOS      bool     `json:"ignore_eos"`
	ReturnTokenIDs bool     `json:"return_token_ids"`
	Stream         bool     `json:"stream"`
	StreamOptions  struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// Stops are strings that end a reply: one or a list.
type Stops []string

func (s *Stops) UnmarshalJSON(data []byte) error {
	var one string
	if err := json.Unmarshal(data, (*[]string)(s)); err == nil {
		return nil
	}
	if json.Unmarshal(data, &one) != nil {
		return serve.Bad("stop", "stop is %.80s, expected a string or a list of strings", data)
	}
	*s = Stops{one}
	return nil
}

// Limits of one request, so that no client takes everything.
const (
	MaxChoices = 128
	MaxStops   = 16
)

// Requests are the host's that one prompt becomes: n, which differ in their seeds.
func (t *Talks) Requests(p *Parameters, prompt []int32, maxTokens *int, alternatives int) ([]host.Request, error) {
	policy, err := t.Host.Policy(p.Model)
	if err != nil {
		return nil, err
	}
	n, seed := serve.Given(p.N, 1), uint64(serve.Given(p.Seed, rand.Int64()))
	s := host.Sampling()
	if s.TopK, err = serve.TopK(p.TopK); err != nil {
		return nil, err
	}
	s.MinP, s.MinTokens, s.IgnoreEOS = p.MinP, p.MinTokens, p.IgnoreEOS
	s.Alternatives = alternatives
	s.Temperature, s.TopP = serve.Given(p.Temperature, s.Temperature), serve.Given(p.TopP, s.TopP)
	s.MaxTokens = serve.Given(maxTokens, s.MaxTokens)
	switch {
	case n < 1 || n > MaxChoices:
		return nil, serve.Bad("n", "n is %d, expected 1 to %d", n, MaxChoices)
	case len(p.Stop) > MaxStops || slices.Contains(p.Stop, ""):
		return nil, serve.Bad("stop", "stop has %d strings, expected at most %d, none of them empty", len(p.Stop),
			MaxStops)
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
