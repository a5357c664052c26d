package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gyre/orchestrate/model/chat/bpe"
	"gyre/orchestrate/model/checkpoint/policyinit"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/anthropic"
	"gyre/orchestrate/serve/gateway"
	"gyre/orchestrate/serve/host"
	"gyre/orchestrate/serve/openai"
	"gyre/torch"
)

// served is a server under test, whose model thinks and calls tools at random: its tokens are phrases too.
type served struct {
	*testing.T
	url  string
	host *host.Host
}

// start starts a server; templates are those of package session.
func start(t *testing.T, template string, change func(*host.Options, *serve.Options)) *served {
	t.Helper()
	phrases := []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "</think>", "</think>\n\n", "<think>\n"}
	for i := range 60 {
		phrases = append(phrases, fmt.Sprintf("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": %d, \"b\": 2.50}}"+
			"\n</tool_call>", i), fmt.Sprintf("<think>\nthought %d ", i), fmt.Sprintf(" word%d ", i), fmt.Sprintf("</think>\n\nsaid %d ", i))
	}
	like, dir, o := t.TempDir(), t.TempDir(), policyinit.Defaults
	o.Hidden, o.Layers, o.Heads, o.KVHeads, o.Intermediate, o.Vocab, o.Std = 16, 2, 2, 1, 32, 259, 0.2
	o.MaxPositions = 1 << 16
	if _, err := policyinit.Create(like, o); err != nil {
		t.Fatal(err)
	}
	tokenizer, err := bpe.Train([]string{"."}, 256+len(phrases), phrases)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(like, "tokenizer.json"), tokenizer, 0o644); err != nil {
		t.Fatal(err)
	}
	o.Tokenizer = like
	if _, err := policyinit.Create(dir, o); err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join("..", "session", "testdata", template))
	if err != nil {
		t.Fatal(err)
	}
	ho := host.Options{Dir: dir, Name: "tiny", ChatTemplate: string(source),
		Placement: torch.Placement{Device: "cpu", Compute: torch.ComputeF32}}
	so := serve.Options{Listen: "127.0.0.1:0", MaxBody: 1 << 20, MaxConnections: 100, Log: io.Discard}
	if change != nil {
		change(&ho, &so)
	}
	s := &served{T: t}
	if s.host, err = host.Open(context.Background(), ho); err != nil {
		t.Fatal(err)
	}
	server := serve.New(s.host, so)
	sessions := gateway.New(s.host.Tokenizer(), 100, time.Hour)
	sessions.Mount(server, openai.Mount(server, sessions.Of), anthropic.Mount(server, sessions.Of))
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- server.Run(ctx, func(url string) { ready <- url }) }()
	select {
	case s.url = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		s.host.Close()
	})
	return s
}

// do sends a request of the version and returns its answer.
func (s *served) do(method, path, body string, headers ...string) (*http.Response, string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("anthropic-version", "2023-06-01")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp, string(text)
}

// block is one of an answer.
type block struct {
	Type      string         `json:"type"`
	Text      string         `json:"text,omitempty"`
	Thinking  string         `json:"thinking,omitempty"`
	Signature string         `json:"signature,omitempty"`
	ID        string         `json:"id,omitempty"`
	Name      string         `json:"name,omitempty"`
	Input     map[string]any `json:"input,omitempty"`
}

// message is an answer.
type message struct {
	ID, Type, Role, Model string
	Content               []block
	Reason                *string `json:"stop_reason"`
	Sequence              *string `json:"stop_sequence"`
	Usage                 struct {
		Input  int `json:"input_tokens"`
		Cached int `json:"cache_read_input_tokens"`
		Output int `json:"output_tokens"`
	}
}

// ask asks for a message, whole.
func (s *served) ask(path, body string, headers ...string) (m message) {
	s.Helper()
	resp, text := s.do("POST", path, body, headers...)
	if err := json.Unmarshal([]byte(text), &m); err != nil || resp.StatusCode != http.StatusOK || m.Type != "message" ||
		m.Role != "assistant" || m.Reason == nil || !strings.HasPrefix(m.ID, "msg") {
		s.Fatalf("%s: %d %s", body, resp.StatusCode, text)
	}
	return m
}

// event is one of a stream.
type event struct {
	Type    string
	Message message
	Index   int
	Block   block `json:"content_block"`
	Delta   struct {
		Type, Text, Thinking, Signature string
		JSON                            string  `json:"partial_json"`
		Reason                          *string `json:"stop_reason"`
		Sequence                        *string `json:"stop_sequence"`
	}
	Usage struct {
		Input  *int `json:"input_tokens"`
		Cached *int `json:"cache_read_input_tokens"`
		Output *int `json:"output_tokens"`
	}
}

// stream asks for a message in parts, puts it together as clients do, and checks the order of the events.
func (s *served) stream(path, body string) (m message) {
	s.Helper()
	resp, text := s.do("POST", path, strings.TrimSuffix(body, "}")+`, "stream": true}`)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		s.Fatalf("%d %s", resp.StatusCode, text)
	}
	open, inputs := -1, map[int]string{}
	events := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
	for i, one := range events {
		kind, data, ok := strings.Cut(strings.TrimPrefix(one, "event: "), "\ndata: ")
		var e event
		if err := json.Unmarshal([]byte(data), &e); err != nil || !ok || e.Type != kind {
			s.Fatalf("event %d: %q: %v", i, one, err)
		}
		if (i == 0) != (kind == "message_start") || (i == len(events)-1) != (kind == "message_stop") ||
			(i == len(events)-2) != (kind == "message_delta") {
			s.Errorf("event %d of %d is %s", i, len(events), kind)
		}
		switch kind {
		case "message_start":
			m = e.Message
		case "content_block_start":
			if open >= 0 || e.Index != len(m.Content) || e.Block.Text+e.Block.Thinking != "" || len(e.Block.Input) > 0 {
				s.Errorf("block %d begins after %d, %d open: %+v", e.Index, len(m.Content), open, e.Block)
			}
			open, m.Content = e.Index, append(m.Content, e.Block)
		case "content_block_delta":
			if e.Index != open {
				s.Fatalf("a part of block %d, while %d is open", e.Index, open)
			}
			b := &m.Content[open]
			b.Text, b.Thinking, b.Signature = b.Text+e.Delta.Text, b.Thinking+e.Delta.Thinking, b.Signature+e.Delta.Signature
			inputs[open] += e.Delta.JSON
			if want := map[string]string{"text": "text_delta", "tool_use": "input_json_delta", "thinking": "thinking_delta"}[b.Type]; e.Delta.Type != want &&
				(b.Type != "thinking" || e.Delta.Type != "signature_delta") {
				s.Errorf("a %s in a block of type %s", e.Delta.Type, b.Type)
			}
		case "content_block_stop":
			if e.Index != open {
				s.Errorf("block %d ends, while %d is open", e.Index, open)
			}
			open = -1
		case "message_delta":
			m.Reason, m.Sequence = e.Delta.Reason, e.Delta.Sequence
			m.Usage.Input, m.Usage.Cached, m.Usage.Output = *e.Usage.Input, *e.Usage.Cached, *e.Usage.Output
		case "ping", "message_stop":
		default:
			s.Errorf("an event %s", kind)
		}
	}
	for i, input := range inputs {
		if m.Content[i].Type == "tool_use" {
			if err := json.Unmarshal([]byte(input), &m.Content[i].Input); err != nil {
				s.Errorf("the input %q: %v", input, err)
			}
		}
	}
	return m
}

// refused checks that a request gets an error in Anthropic's form.
func (s *served) refused(status int, kind, says, method, path, body string, headers ...string) {
	s.Helper()
	resp, text := s.do(method, path, body, headers...)
	var e struct {
		Type      string
		Error     struct{ Type, Message string }
		RequestID string `json:"request_id"`
	}
	if err := json.Unmarshal([]byte(text), &e); err != nil || resp.StatusCode != status || e.Type != "error" ||
		e.Error.Type != kind || !strings.Contains(e.Error.Message, says) || e.RequestID == "" ||
		e.RequestID != resp.Header.Get("request-id") {
		s.Errorf("%s %s %.200s: %d %.300s, want %d, %s and %q", method, path, body, resp.StatusCode, text, status, kind, says)
	}
}

const (
	hello = `{"model": "tiny", "max_tokens": 16, "messages": [{"role": "user", "content": "hello"}]}`
	tools = `[{"name": "add", "description": "adds", "input_schema": {"type": "object"}}]`
)

// with adds keys to a request.
func with(body, keys string) string { return strings.TrimSuffix(body, "}") + ", " + keys + "}" }

// kinds are the types of blocks.
func kinds(m message) string {
	var list []string
	for _, b := range m.Content {
		list = append(list, b.Type)
	}
	return strings.Join(list, " ")
}

// Streams say the same as whole answers, whatever there is in them.
func TestStreamsSayTheSame(t *testing.T) {
	seen := ""
	for _, template := range []string{"qwen3.jinja", "thinking.jinja"} {
		s := start(t, template, nil)
		for i := range 30 {
			body := fmt.Sprintf(`{"model": "tiny", "max_tokens": 12, "temperature": 0, "tools": %s, "messages": [{"role": "user", "content": "%s"}]}`, tools,
				strings.Repeat(fmt.Sprint(i*i*i, " "), i))
			whole, parts := s.ask("/v1/messages", body), s.stream("/v1/messages", body)
			seen += kinds(whole) + "; "
			total := func(m message) int { return m.Usage.Input + m.Usage.Cached }
			if total(whole) != total(parts) || whole.Usage.Output != parts.Usage.Output || *whole.Reason != *parts.Reason {
				t.Errorf("usage %+v and %+v, %s and %s", whole.Usage, parts.Usage, *whole.Reason, *parts.Reason)
			}
			for _, m := range []*message{&whole, &parts} {
				for i := range m.Content {
					if b := &m.Content[i]; b.Type == "tool_use" && !strings.HasPrefix(b.ID, "toolu_") {
						t.Errorf("the id of a call: %q", b.ID)
					} else {
						b.ID = ""
					}
				}
			}
			if !reflect.DeepEqual(whole.Content, parts.Content) {
				t.Errorf("whole: %+v\nin parts: %+v", whole.Content, parts.Content)
			}
			if calls := strings.Contains(kinds(whole), "tool_use"); calls != (*whole.Reason == "tool_use") {
				t.Errorf("%s: %s", kinds(whole), *whole.Reason)
			}
		}
	}
	for _, want := range []string{"text", "thinking", "tool_use"} {
		if strings.Count(seen, want) < 3 {
			t.Errorf("too few blocks are %s: %s", want, seen)
		}
	}
}

func TestStopReasons(t *testing.T) {
	s := start(t, "qwen3.jinja", nil)
	long := s.ask("/v1/messages", with(hello, `"temperature": 0`))
	if *long.Reason != "max_tokens" || long.Usage.Output != 16 || long.Sequence != nil {
		t.Errorf("%+v", long)
	}
	text := []rune(long.Content[len(long.Content)-1].Text)
	stop := string(text[len(text)-4 : len(text)-1])
	quoted, _ := json.Marshal([]string{"never", stop})
	for _, m := range []message{s.ask("/v1/messages", with(hello, `"temperature": 0, "stop_sequences": `+string(quoted))),
		s.stream("/v1/messages", with(hello, `"temperature": 0, "stop_sequences": `+string(quoted)))} {
		last := m.Content[len(m.Content)-1].Text
		if *m.Reason != "stop_sequence" || m.Sequence == nil || *m.Sequence != stop || strings.Contains(last, stop) ||
			!strings.HasPrefix(string(text), last) {
			t.Errorf("stopped at %q: %+v", stop, m)
		}
	}
	ends := 0
	for range 40 {
		m := s.ask("/v1/messages", strings.Replace(hello, "16", "2000", 1))
		if *m.Reason == "end_turn" {
			ends++
		}
	}
	if ends < 30 {
		t.Errorf("%d of 40 end their turn", ends)
	}
}

// A history with thinking, calls and results is counted and answered, and counts are those of usage.
func TestCountTokens(t *testing.T) {
	s := start(t, "qwen3.jinja", nil)
	count := func(body string) int {
		t.Helper()
		var n struct {
			Tokens int `json:"input_tokens"`
		}
		resp, text := s.do("POST", "/v1/messages/count_tokens", body)
		if err := json.Unmarshal([]byte(text), &n); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
		return n.Tokens
	}
	history := `{"model": "tiny", "system": "Add.", "tools": ` + tools + `, "messages": [{"role": "user", "content": "add"},
		{"role": "assistant", "content": [{"type": "thinking", "thinking": "So.", "signature": ""}, {"type": "text", "text": "I add."},
		{"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}]}, {"role": "user", "content": [{"type": "tool_result",
		"tool_use_id": "t1", "content": "3"}]}]}`
	plain, whole := count(strings.Replace(hello, `"max_tokens": 16, `, "", 1)), count(history)
	m := s.ask("/v1/messages", with(history, `"max_tokens": 1`))
	if got := m.Usage.Input + m.Usage.Cached; got != whole || whole < plain+60 || plain < 10 {
		t.Errorf("%d tokens are counted, %d used, %d of hello", whole, got, plain)
	}
	shorter := count(strings.Replace(history, "So.", "", 1))
	if whole != shorter && whole-shorter < 3 {
		t.Errorf("%d tokens with thinking, %d without", whole, shorter)
	}
	s.refused(404, "not_found_error", "did you mean tiny?", "POST", "/v1/messages/count_tokens",
		strings.Replace(hello, "tiny", "tinny", 1))
	s.refused(400, "invalid_request_error", "anthropic-version", "POST", "/v1/messages/count_tokens", hello,
		"anthropic-version", "")
}

func TestErrors(t *testing.T) {
	s := start(t, "qwen3.jinja", func(h *host.Options, o *serve.Options) {
		o.Key, h.MaxSequences, h.MaxWaiting = "correct horse", 1, 1
	})
	const invalid = "invalid_request_error"
	key := []string{"x-api-key", "correct horse"}
	s.refused(401, "authentication_error", "x-api-key", "POST", "/v1/messages", hello)
	s.refused(401, "authentication_error", "x-api-key", "POST", "/v1/messages", hello, "x-api-key", "wrong")
	s.refused(401, "authentication_error", "x-api-key", "GET", "/v1/models", "")
	s.refused(400, invalid, "anthropic-version: 2023-06-01", "POST", "/v1/messages", hello, append(key, "anthropic-version", "")...)
	s.refused(400, invalid, "expected 2023-06-01", "POST", "/v1/messages", hello, append(key, "anthropic-version", "2099-01-01")...)
	s.refused(400, invalid, "max_tokens is missing", "POST", "/v1/messages", strings.Replace(hello, `"max_tokens": 16, `, "", 1), key...)
	s.refused(400, invalid, "at least 1", "POST", "/v1/messages", strings.Replace(hello, "16", "0", 1), key...)
	s.refused(400, invalid, "max_tokens", "POST", "/v1/messages", strings.Replace(hello, "16", `"many"`, 1), key...)
	s.refused(400, invalid, "temperature", "POST", "/v1/messages", with(hello, `"temperature": -1`), key...)
	s.refused(400, invalid, "top_k", "POST", "/v1/messages", with(hello, `"top_k": -5`), key...)
	s.refused(400, invalid, "0 messages", "POST", "/v1/messages", `{"model": "tiny", "max_tokens": 1, "messages": []}`, key...)
	s.refused(400, invalid, "no JSON object", "POST", "/v1/messages", "{", key...)
	s.refused(400, invalid, "may have", "POST", "/v1/messages", strings.Replace(hello, "hello", strings.Repeat("word ", 9000), 1), key...)
	s.refused(404, "not_found_error", "did you mean tiny?", "POST", "/v1/messages", strings.Replace(hello, "tiny", "tinny", 1), key...)
	s.refused(404, "not_found_error", "nothing at", "POST", "/v1/complete", hello, key...)
	s.refused(405, invalid, "POST", "GET", "/v1/messages", "", key...)
	s.refused(413, "request_too_large", "1048576", "POST", "/v1/messages", strings.Repeat("x", 2<<20), key...)
	s.refused(403, "permission_error", "another site", "POST", "/v1/messages", hello, append(key, "Origin", "http://evil.example")...)
	s.refused(400, invalid, "send all messages", "POST", "/v1/messages", with(hello, `"thread": {"type": "create"}`), key...)
	if _, text := s.do("POST", "/v1/messages", with(hello, `"thread": {"type": "create"}`), key...); !strings.Contains(text,
		`"details":{"error_code":"thread_unsupported_request"}`) { // by which the client's tool runner goes on without
		t.Error(text)
	}
	if resp, text := s.do("POST", "/v1/messages", hello, "Authorization", "Bearer correct horse"); resp.StatusCode != 200 {
		t.Errorf("with a bearer: %s", text)
	}
	if resp, text := s.do("POST", "/v1/messages", hello, append(key, "anthropic-version", "2026-10-21")...); resp.StatusCode != 200 {
		t.Errorf("the newer version: %s", text)
	}
	// clients of OpenAI get OpenAI's errors
	if _, text := s.do("GET", "/v1/models", "", "anthropic-version", ""); !strings.HasPrefix(text, `{"error":{"code":"invalid_api_key"`) {
		t.Error(text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 { // as many as there is room for
		r, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/chat/completions",
			strings.NewReader(with(hello, `"max_completion_tokens": 30000, "ignore_eos": true, "stream": true`)))
		r.Header.Set("x-api-key", "correct horse")
		if _, err := http.DefaultClient.Do(r); err != nil {
			t.Fatal(err)
		}
	}
	s.refused(529, "overloaded_error", "try again", "POST", "/v1/messages", hello, key...)
}

// A stream that fails ends with an error.
func TestAStreamThatFails(t *testing.T) {
	s := start(t, "qwen3.jinja", nil)
	r, _ := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/messages", strings.NewReader(with(strings.Replace(hello, "16", "30000", 1),
		`"stream": true`)))
	r.Header.Set("anthropic-version", "2023-06-01")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := s.host.Do(t.Context(), func() error { s.host.GiveUp(errors.New("the engine broke")); return nil }); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	events := strings.Split(strings.TrimSpace(string(text)), "\n\n")
	want := `event: error` + "\n" + `data: {"error":{"message":"the engine broke","type":"api_error"},"request_id":"` + resp.Header.Get("request-id") + `","type":"error"}`
	if last := events[len(events)-1]; err != nil || !strings.HasPrefix(events[0], "event: message_start") || last != want {
		t.Errorf("%s, %v, want %s", last, err, want)
	}
}

// A list of models is in both forms.
func TestModels(t *testing.T) {
	s := start(t, "qwen3.jinja", nil)
	_, text := s.do("GET", "/v1/models", "")
	var list struct {
		Data []struct {
			ID, Type string
			Name     string    `json:"display_name"`
			Created  time.Time `json:"created_at"`
		}
		HasMore *bool  `json:"has_more"`
		First   string `json:"first_id"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Data) != 1 || list.HasMore == nil || *list.HasMore ||
		list.First != "tiny" || list.Data[0].Type != "model" || list.Data[0].Name != "tiny" || list.Data[0].Created.IsZero() {
		t.Error(text, err)
	}
}
