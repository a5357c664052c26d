package endpoint

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/chat/bpe"
	"gyre/torch"
)

var words = sync.OnceValues(func() ([]byte, error) {
	return bpe.Train([]string{"system user assistant Answer. One, 2, <end>? Right Left"}, 300,
		[]string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
})

func tokenizer(t *testing.T) *chat.Tokenizer {
	t.Helper()
	data, err := words()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"tokenizer.json": string(data),
		"tokenizer_config.json": `{"eos_token": "<|im_end|>"}`, "chat_template.jinja": chat.ChatML} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := chat.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// model is a server of OpenAI's API whose every answer is the choice.
type model struct {
	url    string
	exact  bool // it takes and returns token ids
	choice string
	tok    *chat.Tokenizer
	refuse func(r request) string // "" = nothing

	mu    sync.Mutex // guards asked
	asked []request
}

func serveModel(t *testing.T, m *model) *model {
	t.Helper()
	m.tok = tokenizer(t)
	m.url = serveAnswers(t, m.answer).URL
	return m
}

func (m *model) answer(w http.ResponseWriter, r *http.Request) {
	var body request
	if r.Method == http.MethodGet {
		fmt.Fprint(w, `{"data": [{"id": "tiny"}]}`)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	m.asked = append(m.asked, body)
	m.mu.Unlock()
	if m.refuse != nil && m.refuse(body) != "" {
		http.Error(w, m.refuse(body), http.StatusBadRequest)
		return
	}
	ids := body.Prompt
	if m.exact && ids == nil {
		var said []chat.Message
		for _, one := range body.Messages {
			said = append(said, chat.Message{Role: one.Role, Content: one.Content})
		}
		ids, _ = m.tok.EncodeMessages(said, true)
	}
	prompt, _ := json.Marshal(ids)
	fmt.Fprintf(w, `{"prompt_token_ids": %s, "choices": [%s], "usage": {"prompt_tokens": 7, "completion_tokens": 3, `+
		`"prompt_tokens_details": {"cached_tokens": 2}}}`, prompt, m.choice)
}

// last is what the server was asked last.
func (m *model) last() request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[len(m.asked)-1]
}

func openServer(t *testing.T, m *model, c Config) *Server {
	t.Helper()
	c.URL = m.url
	s, err := Open(t.Context(), c, m.tok)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// asked is a request for a reply.
func asked(id uint64, stops ...string) generation.Request {
	r := generation.Request{Chat: func() generation.Chat {
		return generation.Chat{Prefix: "<think>", Messages: []chat.Message{{Role: "user", Content: "Left?"},
			{Role: "assistant", Content: "look"}, {Role: "tool", Content: "a wall"}},
			Tools: []chat.Tool{{Name: "look", Description: "looks"}}}
	}}
	r.ID, r.Prompt, r.StopStrings = id, []int32{3, 4, 5}, stops
	r.Sampling = torch.Sampling{MaxTokens: 9, Temperature: 1, TopP: 1, Seed: 1 << 33}
	return r
}

// replied submits a request and waits for its reply.
func replied(t *testing.T, s *Server, r generation.Request) (torch.Output, error) {
	t.Helper()
	if err := s.Submit(r); err != nil {
		t.Fatal(err)
	}
	for {
		outs, err := s.Step()
		if err != nil {
			return torch.Output{}, err
		}
		if len(outs) > 0 {
			return outs[0], nil
		}
	}
}

// A server that takes and returns our ids is asked for ids, with all that the sampling says.
func TestReplyInIDs(t *testing.T) {
	m := serveModel(t, &model{exact: true, choice: `{"token_ids": [7, 8], "finish_reason": "length"}`})
	s := openServer(t, m, Config{})
	if !s.Exact || s.Model != "tiny" {
		t.Fatalf("exact %v, model %q", s.Exact, s.Model)
	}
	out, err := replied(t, s, asked(5, "END"))
	if err != nil || out.ID != 5 || !slices.Equal(out.Tokens, []int32{7, 8}) || out.Finish != torch.FinishLength ||
		out.CachedTokens != 2 {
		t.Errorf("%+v, %v", out, err)
	}
	if r := m.last(); !slices.Equal(r.Prompt, []int32{3, 4, 5}) || !r.ReturnTokenIDs || !r.IncludeStop ||
		r.MaxTokens != 9 || *r.Seed != 1 || *r.TopK != 0 || !slices.Equal(r.Stop, []string{"END"}) {
		t.Errorf("asked for %+v", r)
	}
	m.choice = `{"token_ids": [7, 300], "finish_reason": "stop"}`
	if _, err := replied(t, s, asked(6)); err == nil || !strings.Contains(err.Error(), "token_ids hold 300, expected 0 to") {
		t.Errorf("an id that is none: %v", err)
	}
	m.choice = `{"message": {"content": "Right"}, "finish_reason": "stop"}`
	if _, err := replied(t, s, asked(7)); err == nil || !strings.Contains(err.Error(), "without token_ids") {
		t.Errorf("no ids: %v", err)
	}
}

// Any other server is asked in messages, and what it says becomes tokens here.
func TestReplyInText(t *testing.T) {
	m := serveModel(t, &model{choice: `{"message": {"content": "Right"}, "finish_reason": "stop"}`})
	s := openServer(t, m, Config{})
	if s.Exact {
		t.Fatal("exact without token ids")
	}
	for choice, want := range map[string]string{
		`{"message": {"content": "Right"}, "finish_reason": "stop"}`:                            "Right<|im_end|>",
		`{"message": {"content": " <think>Right "}, "finish_reason": "stop"}`:                   "Right<|im_end|>",
		`{"message": {"content": "Right"}, "finish_reason": "length"}`:                          "Right",
		`{"message": {"content": "Right</a>Left"}, "finish_reason": "stop"}`:                    "Right</a>",
		`{"message": {"content": null}, "finish_reason": "length"}`:                             "<|im_end|>",
		`{"message": {"content": "so", "reasoning_content": "hm"}, "finish_reason": "stop"}`:    "hm</think>so<|im_end|>",
		`{"message": {"content": "a</think>b", "reasoning": "hm"}, "finish_reason": "stop"}`:    "a</think>b<|im_end|>",
		`{"message": {"tool_calls": [{"function": {"name": "f", "arguments": "{\"x\": 1}"}}]}}`: `<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call><|im_end|>`,
		`{"message": {"tool_calls": [{"function": {"name": "f", "arguments": "x"}}]}}`:          `<tool_call>{"name": "f", "arguments": "x"}</tool_call><|im_end|>`,
		`{"message": {"content": "Right<|im_start|>"}, "finish_reason": "stop"}`:                "Right<|im_start|><|im_end|>",
	} {
		m.choice = choice
		out, err := replied(t, s, asked(5, "</a>"))
		if got := m.tok.Decode(out.Tokens, false); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", choice, got, err, want)
		}
		if n := len(slices.DeleteFunc(slices.Clone(out.Tokens), func(id int32) bool { return !m.tok.Special(id) })); n > 1 {
			t.Errorf("%s: %d special tokens", choice, n) // a text has none but the one at its end
		}
	}
	r := m.last()
	if len(r.Messages) != 3 || r.Messages[2] != (message{"user", "<tool_response>\na wall\n</tool_response>"}) ||
		len(r.Tools) != 1 || r.Tools[0].Function.Name != "look" || r.Prompt != nil || r.Stop != nil || r.TopK != nil {
		t.Errorf("asked for %+v", r)
	}
	m.choice = `{}, {}`
	if _, err := replied(t, s, asked(5)); err == nil || !strings.Contains(err.Error(), "2 choices in an answer") {
		t.Errorf("two choices: %v", err)
	}
}

// A server that has another name for the limit of tokens is asked by that name.
func TestTheNameOfTheLimit(t *testing.T) {
	m := serveModel(t, &model{choice: `{"message": {"content": "Right"}}`, refuse: func(r request) string {
		if r.MaxTokens > 0 {
			return `{"error": {"message": "use max_completion_tokens"}}`
		}
		return ""
	}})
	s := openServer(t, m, Config{})
	if _, err := replied(t, s, asked(1)); err != nil || m.last().MaxCompletionTokens != 9 {
		t.Errorf("%v, asked for %+v", err, m.last())
	}
	before := len(m.asked)
	if _, err := replied(t, s, asked(2)); err != nil || len(m.asked) != before+1 {
		t.Errorf("it is not remembered: %v after %d requests", err, len(m.asked)-before)
	}
}

// Replies are kept, those of the line that was cut off aside, and what is kept is not asked for again.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept", "replies.jsonl")
	m := serveModel(t, &model{exact: true, choice: `{"token_ids": [7], "finish_reason": "stop"}`})
	first := openServer(t, m, Config{Journal: path})
	for id := range uint64(3) {
		if _, err := replied(t, first, asked(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil || strings.Count(string(data), "\n") != 3 {
		t.Fatalf("%v, kept:\n%s", err, data)
	}
	if err := os.WriteFile(path, data[:len(data)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	m.choice = `{"token_ids": [8], "finish_reason": "stop"}`
	second := openServer(t, m, Config{Journal: path})
	for id, want := range []int32{7, 7, 8} {
		if out, err := replied(t, second, asked(uint64(id))); err != nil || !slices.Equal(out.Tokens, []int32{want}) {
			t.Errorf("request %d: %v, %v; want %d", id, out.Tokens, err, want)
		}
	}
	if u := second.Usage(); u.Requests != 3 || u.Kept != 2 || u.Prompt != 21 || u.Completion != 9 || u.Cached != 6 {
		t.Errorf("usage %+v", u)
	}
	again, err := os.ReadFile(path)
	if err != nil || strings.Count(string(again), "\n") != 3 || !strings.HasPrefix(string(again), string(data[:len(data)/3])) {
		t.Errorf("%v, kept:\n%s", err, again)
	}
	if _, err := replied(t, second, asked(0, "END")); err != nil || second.Usage().Kept != 2 {
		t.Errorf("another request was taken for one that is kept: %v", err)
	}
}

// What is given up is not handed out, and the server can be asked again.
func TestRelease(t *testing.T) {
	m := serveModel(t, &model{exact: true, choice: `{"token_ids": [7], "finish_reason": "stop"}`})
	s := openServer(t, m, Config{})
	hanging := serveAnswers(t, hangs)
	s.client.base = hanging.URL
	if err := s.Submit(asked(1)); err != nil {
		t.Fatal(err)
	}
	if outs, err := s.Step(); len(outs) != 0 || err != nil {
		t.Errorf("%v, %v", outs, err)
	}
	if err := s.Release(); err != nil {
		t.Fatal(err)
	}
	s.client.base = m.url + "/v1"
	if out, err := replied(t, s, asked(2)); err != nil || out.ID != 2 {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestUsage(t *testing.T) {
	a := Usage{Requests: 3, Kept: 1, Prompt: 2_000_000, Cached: 5, Completion: 500_000, Texts: 2,
		Retries: map[string]int{"503": 2}}
	b := Usage{Requests: 1, Prompt: 1_000_000, Retries: map[string]int{"503": 2, "timeout": 1}}
	if got := a.Plus(b).Since(b); got.String() != a.String() || got.Texts != 2 || len(got.Retries) != 1 {
		t.Errorf("%+v, want %+v", got, a)
	}
	if got := a.Plus(b).String(); got != "4 requests (1 kept from before), 3000000 prompt tokens (5 cached), 500000 "+
		"completion tokens; made again: 503 ×4, timeout ×1" {
		t.Error(got)
	}
	if got := (Prices{Prompt: 1, Completion: 4}).Cost(a); got != 4 {
		t.Errorf("cost %v, want 4", got)
	}
}
