package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gyre/internal/child/childtest"
	"gyre/internal/exitcode"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// openAI is a server around the local engine, as far as evaluations ask: models, chat with prompt_token_ids, and
// completions of token ids. It may fail as servers do.
type openAI struct {
	*httptest.Server
	mu     sync.Mutex // guards driver and next: the engine is one goroutine's
	driver *generation.Driver
	words  *chat.Tokenizer
	next   uint64

	flaky     bool
	asked     atomic.Int64 // completions
	answered  atomic.Int64
	mostAsked atomic.Int64 // answers, after which it is gone; 0 = never
	done      chan struct{}
}

func serveTiny(t *testing.T, path string) *openAI {
	t.Helper()
	c, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := session.OpenEvaluator(t.Context(), c, session.Evaluated{}, ranks.Alone(), metrics.NewConsole(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	s := &openAI{driver: generation.New(e.Sampler.Engine, e.Sampler.Tokenizer), words: e.Sampler.Tokenizer,
		done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"object": "list", "data": [{"id": "tiny", "object": "model"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", s.chat)
	mux.HandleFunc("POST /v1/completions", s.complete)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		close(s.done)
		s.Server.Close()
		e.Close()
	})
	return s
}

func (s *openAI) chat(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Messages       []chat.Message
		ReturnTokenIDs bool `json:"return_token_ids"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ids, err := s.words.EncodeMessages(body.Messages, true)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.answer(w, torch.Request{Prompt: ids, Sampling: torch.Sampling{MaxTokens: 1, TopP: 1}})
}

func (s *openAI) complete(w http.ResponseWriter, r *http.Request) {
	n := s.asked.Add(1)
	if most := s.mostAsked.Load(); most > 0 && n > most {
		<-s.done
		return
	}
	if s.flaky {
		switch n % 10 {
		case 3:
			http.Error(w, `{"error": {"message": "overloaded"}}`, http.StatusServiceUnavailable)
			return
		case 5:
			w.Header().Set("Retry-After", "0.05")
			http.Error(w, `{"error": {"message": "slow down"}}`, http.StatusTooManyRequests)
			return
		case 7:
			select { // hangs
			case <-r.Context().Done():
			case <-s.done:
			}
			return
		case 9:
			fmt.Fprint(w, `{"choices": [{"tok`) // is cut off
			return
		}
	}
	var body struct {
		Prompt      []int32
		MaxTokens   int `json:"max_tokens"`
		Temperature float64
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.answer(w, torch.Request{Prompt: body.Prompt,
		Sampling: torch.Sampling{MaxTokens: body.MaxTokens, Temperature: body.Temperature, TopP: 1}})
}

func (s *openAI) answer(w http.ResponseWriter, r torch.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	r.ID, r.StopIDs = s.next, s.words.StopIDs()
	err := s.driver.Submit(generation.Request{Request: r})
	var outs []torch.Output
	for err == nil && len(outs) == 0 {
		outs, err = s.driver.Step()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.answered.Add(1)
	json.NewEncoder(w).Encode(map[string]any{"prompt_token_ids": r.Prompt, "choices": []any{map[string]any{
		"finish_reason": outs[0].Finish.String(), "token_ids": outs[0].Tokens}},
		"usage": map[string]int{"prompt_tokens": len(r.Prompt), "completion_tokens": len(outs[0].Tokens)}})
}

// A server of the checkpoint that was evaluated gives the very table, whatever fails on the way, and asked again,
// nothing is asked of the server.
func TestEndpointGivesTheTableOfTheEngine(t *testing.T) {
	dir := t.TempDir()
	tiny := tinyConfig(t, dir, "")
	args := []string{"eval", tiny, "validation.envs.0.groups=24", "validation.temperature=0", "--keep", "kept"}
	want := mustIn(t, dir, args...)
	if strings.Count(want, "\n") < 8 {
		t.Fatalf("no table:\n%s", want)
	}
	s := serveTiny(t, tiny)
	s.flaky = true
	over := append(args, "--endpoint", s.URL, "--served-model", "tiny", "--prices", "1,2", "--patience", "3",
		"--output", "remote.jsonl")
	code, got, stderr := runIn(t, dir, over...)
	if code != 0 || got != want {
		t.Errorf("exit code %d\n%s\nwant\n%s\n%s", code, got, want, stderr)
	}
	for _, part := range []string{"token ids", "429 ×", "503 ×", "timeout ×", "connection ×", "cost $", "is kept in kept"} {
		if !strings.Contains(stderr, part) {
			t.Errorf("%q is missing:\n%s", part, stderr)
		}
	}
	if n := strings.Count(string(readFile(t, filepath.Join(dir, "remote.jsonl"))), "\n"); n != 24 {
		t.Errorf("%d episodes, want 24", n)
	}
	asked := s.asked.Load()
	if code, got, stderr := runIn(t, dir, over...); code != 0 || got != want || s.asked.Load() != asked {
		t.Errorf("again: exit code %d, %d more requests\n%s\n%s", code, s.asked.Load()-asked, got, stderr)
	}
	if json := mustIn(t, dir, append(over, "--json")...); json != mustIn(t, dir, append(args, "--json")...) {
		t.Errorf("other numbers: %s", json)
	}
}

// Killed in the middle, an evaluation goes on from the replies that it had.
func TestEndpointGoesOn(t *testing.T) {
	dir := t.TempDir()
	tiny := tinyConfig(t, dir, "")
	args := []string{"eval", tiny, "validation.envs.0.groups=24", "validation.temperature=0"}
	want := mustIn(t, dir, args...)
	s := serveTiny(t, tiny)
	s.mostAsked.Store(20)
	args = append(args, "--endpoint", s.URL, "--concurrency", "4", "--keep", "kept")
	cmd := gyre(t, dir, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		files, err := filepath.Glob(filepath.Join(dir, "kept", "*.replies.jsonl"))
		if err == nil && len(files) == 1 && strings.Count(string(readFile(t, files[0])), "\n") >= 19 {
			break // the probe was the first of 20 requests
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("no replies are kept")
		}
	}
	childtest.Kill(t, cmd)
	s.mostAsked.Store(0)
	answered := s.answered.Load()
	code, got, stderr := runIn(t, dir, args...)
	if code != 0 || got != want {
		t.Errorf("exit code %d\n%s\nwant\n%s\n%s", code, got, want, stderr)
	}
	if !strings.Contains(stderr, "(19 kept from before)") {
		t.Errorf("not from where it was (%d requests since):\n%s", s.answered.Load()-answered, stderr)
	}
}

// What is wrong with a server or with the flags about it is said before anything is played.
func TestEndpointErrors(t *testing.T) {
	dir := t.TempDir()
	tiny := tinyConfig(t, dir, "")
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, `{"error": {"message": "bad key"}}`, http.StatusUnauthorized)
	}))
	defer refuses.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	os.Unsetenv("GYRE_TEST_NO_KEY")
	for want, c := range map[string]struct {
		code int
		args []string
	}{
		"expected http://HOST:PORT":       {1, []string{"--endpoint", "localhost"}},
		"--key-env names the variable":    {1, []string{"--endpoint", refuses.URL}},
		"connection refused":              {1, []string{"--endpoint", gone.URL}},
		"the variable is not set":         {exitcode.Usage, []string{"--endpoint", gone.URL, "--key-env", "GYRE_TEST_NO_KEY"}},
		"name it with --endpoint URL":     {exitcode.Usage, []string{"--prices", "1,2"}},
		"expected two numbers":            {exitcode.Usage, []string{"--endpoint", gone.URL, "--prices", "1"}},
		"expected 0 to 100 percentage":    {exitcode.Usage, []string{"--until-width", "-1"}},
		"the server plays, with the mode": {exitcode.Usage, []string{"--endpoint", gone.URL, "--adapter", "x"}},
	} {
		code, _, stderr := runIn(t, dir, append([]string{"eval", tiny}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, want %d and %q:\n%s", c.args, code, c.code, want, stderr)
		}
	}
}
