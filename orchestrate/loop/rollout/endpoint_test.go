package rollout

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/endpoint"
	"gyre/torch"
)

// A server that knows neither token ids nor max_tokens plays by messages: its thought, its calls and its own opening of
// the block are read, and its tokens counted.
func TestTextOfAServer(t *testing.T) {
	var mu sync.Mutex // guards asked
	var asked []map[string]any
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body := map[string]any{}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/openai/chat/completions" ||
			r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%v %v %v", r.URL, r.Header, err)
		}
		for name, says := range map[string]string{"return_token_ids": "unknown parameter",
			"max_tokens": "use max_completion_tokens instead"} {
			if body[name] != nil {
				http.Error(w, fmt.Sprintf(`{"error": {"message": %q}}`, says), http.StatusBadRequest)
				return
			}
		}
		asked = append(asked, body)
		messages := body["messages"].([]any)
		message := `{"content": "<answer>Right || Right</answer>", "reasoning_content": "hm"}`
		if len(messages) == 2 { // the first turn
			message = `{"content": " <think>one step</think><answer>right</answer>"}`
		}
		fmt.Fprintf(w, `{"choices": [{"finish_reason": "stop", "message": %s}],
			"usage": {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}}`, message)
	}))
	defer server.Close()
	tok := tokenizer(t)
	from, err := endpoint.Open(t.Context(), endpoint.Config{URL: server.URL + "/openai/", Model: "m", Key: "secret"}, tok)
	if err != nil || from.Exact {
		t.Fatalf("exact %v, %v", from, err)
	}
	defer from.Close()
	p := player(t, nil, defaults())
	p.Ask(from)
	episodes, _, err := p.Play(t.Context(), Plan{Stream: Validation, Sources: []config.Env{source(2, 1, nil)}, EnvSeed: 3,
		Sampling: torch.Sampling{Temperature: 0.5, TopP: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range episodes {
		said := tok.Decode(e.IDs, false)
		if len(e.Turns) != 2 || !e.Success || e.Logprob != nil ||
			strings.Count(said, "<think>one step</think><answer>right</answer>"+eos) != 1 ||
			strings.Count(said, "<think>hm</think><answer>Right || Right</answer>"+eos) != 1 {
			t.Errorf("%d turns, success %v:\n%s", len(e.Turns), e.Success, said)
		}
	}
	if u := from.Usage(); u.Requests != 4 || u.Prompt != 400 || u.Completion != 28 || u.Cached != 256 {
		t.Errorf("usage %v", u)
	}
	if n := len(asked); n != 4 {
		t.Fatalf("%d requests", n)
	}
	last := asked[3]
	messages := last["messages"].([]any)
	if len(messages) != 4 || last["temperature"] != 0.5 || last["max_completion_tokens"] != 64.0 ||
		fmt.Sprint(messages[2]) != "map[content:<think>one step</think><answer>right</answer> role:assistant]" {
		t.Errorf("the last request: %v", last)
	}
}
