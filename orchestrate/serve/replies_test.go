package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/checkpoint/policyinit"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
	"gyre/orchestrate/serve/openai"
	"gyre/torch"
)

// scripted is an engine that gives every request the same reply, a token a step.
type scripted struct {
	reply []int32
	live  []torch.Request
	at    int
	done  []torch.Output
}

func (s *scripted) Submit(r torch.Request) error  { s.live = append(s.live, r); return nil }
func (s *scripted) Abort(uint64) error            { return nil }
func (s *scripted) SetVocabulary([][]byte) error  { return nil }
func (s *scripted) Follows() bool                 { return false }
func (s *scripted) Poll() ([]torch.Output, error) { d := s.done; s.done = nil; return d, nil }
func (s *scripted) logprobs() []float32           { return make([]float32, len(s.reply)) }
func (s *scripted) Step() (int, error) {
	if s.at++; s.at < len(s.reply) {
		return len(s.live), nil
	}
	for _, r := range s.live {
		s.done = append(s.done, torch.Output{ID: r.ID, Tokens: s.reply, Logprobs: s.logprobs(), Finish: torch.FinishStop})
	}
	s.live, s.at = nil, 0
	return 0, nil
}

func (s *scripted) Progress() (list []torch.Partial, err error) {
	for _, r := range s.live {
		list = append(list, torch.Partial{ID: r.ID, Position: s.at - 1, Tokens: s.reply[s.at-1 : s.at], Logprobs: []float32{0}})
	}
	return list, nil
}

func (s *scripted) TensorParallel(_ context.Context, run func() error) error { return run() }

// says serves a model that says a reply, with a chat template and further files beside it.
func says(t *testing.T, reply, template string, files map[string]string) *served {
	t.Helper()
	dir, o := t.TempDir(), policyinit.Defaults
	o.Vocab = 259
	if _, err := policyinit.Create(dir, o); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tokenizer, err := chat.Load(dir)
	if err == nil {
		err = tokenizer.SetTemplate(template)
	}
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tokenizer.EncodeMarkup(reply)
	if err != nil {
		t.Fatal(err)
	}
	engine := &scripted{reply: append(ids, tokenizer.StopIDs()[0])}
	m := host.Model{Name: "tiny", MaxLength: 1 << 14}
	m.Shape.VocabSize = 259
	driver := generation.New(engine, tokenizer)
	s := &served{T: t, log: &safe{}, host: host.Embedded(driver, tokenizer, m)}
	server := serve.New(s.host, serve.Options{Listen: "127.0.0.1:0", MaxBody: 1 << 20, MaxConnections: 100, Log: io.Discard})
	openai.Mount(server, nil)
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended, stepped := make(chan string, 1), make(chan error, 1), make(chan struct{})
	go func() { ended <- server.Run(ctx, func(url string) { ready <- url }) }()
	go func() {
		defer close(stepped)
		for ctx.Err() == nil {
			select {
			case f := <-s.host.Events():
				f()
			case <-time.After(time.Millisecond):
			}
			for driver.Unfinished() > 0 {
				outputs, err := driver.Step()
				if err != nil {
					panic(err)
				}
				for _, out := range outputs {
					s.host.Finished(out)
				}
			}
		}
	}()
	s.url = <-ready
	t.Cleanup(func() {
		cancel()
		<-ended
		<-stepped
		s.host.End()
	})
	return s
}

// spoken is what a client gets of a reply, whole or put together from a stream.
type spoken struct {
	Content, Reasoning, Finish string
	Calls                      []string
}

type spokenMessage struct {
	Content   string
	Reasoning string `json:"reasoning_content"`
	ToolCalls []struct {
		Index    int
		ID       string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// chatted asks for a chat completion; pieces are the texts of the stream.
func (s *served) chatted(body string, stream bool) (got spoken, pieces []string) {
	s.Helper()
	if stream {
		body = strings.TrimSuffix(body, "}") + `, "stream": true}`
	}
	_, text := s.do("POST", "/v1/chat/completions", body)
	for _, event := range strings.Split(strings.TrimSuffix(strings.TrimSpace(text), "data: [DONE]"), "\n\n") {
		var a struct {
			Choices []struct {
				Message, Delta spokenMessage
				FinishReason   string `json:"finish_reason"`
			}
		}
		if event = strings.TrimPrefix(strings.TrimSpace(event), "data: "); event == "" {
			continue
		}
		if err := json.Unmarshal([]byte(event), &a); err != nil || len(a.Choices) != 1 {
			s.Fatalf("%q: %v", event, err)
		}
		c := a.Choices[0]
		for _, m := range []spokenMessage{c.Message, c.Delta} {
			got.Content, got.Reasoning = got.Content+m.Content, got.Reasoning+m.Reasoning
			if m.Content != "" {
				pieces = append(pieces, m.Content)
			}
			for _, call := range m.ToolCalls {
				if stream && call.Index != len(got.Calls) || call.ID == "" {
					s.Errorf("call %d has the index %d and the id %q", len(got.Calls), call.Index, call.ID)
				}
				got.Calls = append(got.Calls, call.Function.Name+" "+call.Function.Arguments)
			}
		}
		got.Finish += c.FinishReason
	}
	return got, pieces
}

const weatherTools = `"tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", ` +
	`"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}]`

// Templates of two families: Qwen3's form of calls, and XML with thinking that the prompt opens.
const (
	chatML = `{% for m in messages %}<|im_start|>{{ m.role }}` + "\n" + `{{ m.content }}<|im_end|>` + "\n" + `{% endfor %}` +
		`{% if tools %}{{ tools|tojson }}{% endif %}{% if add_generation_prompt %}<|im_start|>assistant` + "\n" + `{% endif %}`
	qwen3 = `{# <tool_call> #}` + chatML
	xml   = `{# <function= #}` + chatML + `{{ '<think>\n' }}`
)

// A reply is taken apart in the form of its family: whole and streamed, as a chat and as a response.
func TestRepliesAreTakenApart(t *testing.T) {
	for _, c := range []struct {
		template, reply string
		want            spoken
	}{
		{qwen3, "<think>\nRain?\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"days\": 3, \"city\": \"Bern\"}}\n</tool_call>",
			spoken{"I look.", "Rain?", "tool_calls", []string{`get_weather {"days": 3, "city": "Bern"}`}}},
		{qwen3, "no calls", spoken{"no calls", "", "stop", nil}},
		{qwen3, "<tool_call>{\"name\"</tool_call>", spoken{"<tool_call>{\"name\"</tool_call>", "", "stop", nil}},
		{xml, "Rain?\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n</function>\n</tool_call>",
			spoken{"", "Rain?", "tool_calls", []string{`get_weather {"city": "Bern", "days": 3}`, `get_weather {}`}}},
	} {
		s := says(t, c.reply, c.template, nil)
		const body = hello + `, ` + weatherTools + `}`
		whole, _ := s.chatted(body, false)
		streamed, pieces := s.chatted(body, true)
		if !reflect.DeepEqual(whole, c.want) || !reflect.DeepEqual(streamed, c.want) {
			t.Errorf("%q:\nwhole    %+v\nstreamed %+v\nwant     %+v", c.reply, whole, streamed, c.want)
		}
		if c.reply == "no calls" && len(pieces) < 6 {
			t.Errorf("text comes in %q", pieces)
		}
		_, text := s.do("GET", "/metrics", "")
		want := fmt.Sprintf("gyre_malformed_tool_calls_total %d\n", 2*strings.Count(c.want.Content, "<tool_call>"))
		if !strings.Contains(text, want) {
			t.Errorf("%q: no %q among the metrics", c.reply, want)
		}
		s.respondsAs(c.want)
	}
}

// respondsAs compares a response, whole and streamed, with what it must say.
func (s *served) respondsAs(want spoken) {
	s.Helper()
	type response struct {
		Output []struct {
			Type, Name, Arguments string
			Content               []struct{ Type, Text string }
		}
	}
	said := func(r response) (got spoken) {
		for _, it := range r.Output {
			switch it.Type {
			case "reasoning":
				got.Reasoning += it.Content[0].Text
			case "message":
				got.Content += it.Content[0].Text
			default:
				got.Calls = append(got.Calls, it.Name+" "+it.Arguments)
			}
		}
		return got
	}
	want.Finish = ""
	const body = `{"model": "tiny", "input": "hello", "tools": [{"type": "function", "name": "get_weather", "parameters": ` +
		`{"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}]`
	_, text := s.do("POST", "/v1/responses", body+"}")
	var whole response
	if err := json.Unmarshal([]byte(text), &whole); err != nil || !reflect.DeepEqual(said(whole), want) {
		s.Errorf("a response: %s, %v, want %+v", text, err, want)
	}
	_, text = s.do("POST", "/v1/responses", body+`, "stream": true}`)
	var deltas spoken
	for _, event := range strings.Split(strings.TrimSpace(text), "\n\n") {
		kind, data, _ := strings.Cut(strings.TrimPrefix(event, "event: "), "\ndata: ")
		var e struct {
			Delta    string
			Response response
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			s.Fatal(err)
		}
		switch kind {
		case "response.reasoning_text.delta":
			deltas.Reasoning += e.Delta
		case "response.output_text.delta":
			deltas.Content += e.Delta
		case "response.completed":
			if got := said(e.Response); !reflect.DeepEqual(got, want) {
				s.Errorf("a streamed response ends as %+v, want %+v", got, want)
			}
			deltas.Calls = said(e.Response).Calls
		}
	}
	if !reflect.DeepEqual(deltas, want) {
		s.Errorf("a response streams %+v, want %+v", deltas, want)
	}
}

// A response_template in tokenizer_config.json counts before the families', one in a file of its own before both.
func TestOwnResponseTemplate(t *testing.T) {
	own := func(open string) string {
		return `{"start_anchor": "<|im_start|>assistant\n", "fields": {"tool_calls": {"open": "` + open + `", "close": "!", ` +
			`"content": "json"}, "content": {}}}`
	}
	config := `{"eos_token": "<|im_end|>", "response_template": ` + own("call ") + `}`
	const reply = `so call {"name": "get_weather", "arguments": {}}! use {"name": "f", "arguments": {}}!`
	for want, files := range map[string]map[string]string{
		"get_weather {}": {"tokenizer_config.json": config},
		"f {}":           {"tokenizer_config.json": config, "response_template.json": own("use ")},
	} {
		s := says(t, reply, qwen3, files)
		if got, _ := s.chatted(hello+`, `+weatherTools+`}`, false); !reflect.DeepEqual(got.Calls, []string{want}) {
			t.Errorf("calls %q, want %q", got.Calls, want)
		}
	}
}

// A template that cannot be run is named when the model is served.
func TestResponseTemplateIsRefused(t *testing.T) {
	dir, o := t.TempDir(), policyinit.Defaults
	o.Hidden, o.Layers, o.Heads, o.KVHeads, o.Intermediate, o.Vocab = 16, 1, 2, 1, 32, 259
	if _, err := policyinit.Create(dir, o); err != nil {
		t.Fatal(err)
	}
	template := `{"start_anchor": "a", "fields": {"thinking": {"open_pattern": "(?=x)"}, "content": {}}}`
	if err := os.WriteFile(filepath.Join(dir, "response_template.json"), []byte(template), 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(context.Background(), host.Options{Dir: dir, Placement: torch.Placement{Device: "cpu"}})
	if err == nil {
		h.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "response_template.json: field thinking: ") ||
		!strings.Contains(err.Error(), "(?=") {
		t.Errorf("a pattern with look-ahead: %v", err)
	}
}
