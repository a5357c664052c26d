package serve_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
)

// answer is what tests look at of chat completions and completions, whole and in parts.
type answer struct {
	Choices []struct {
		Index    int
		Text     string
		Message  struct{ Content string }
		Delta    struct{ Content, Role string }
		Logprobs *struct {
			Content []struct {
				Logprob float32
				Top     []struct{ Logprob float32 } `json:"top_logprobs"`
			}
			Tokens []string  `json:"tokens"`
			Values []float32 `json:"token_logprobs"`
		}
		FinishReason *string `json:"finish_reason"`
		TokenIDs     []int32 `json:"token_ids"`
	}
	Usage          map[string]any
	PromptTokenIDs []int32 `json:"prompt_token_ids"`
}

// What is wrong with a request is said in its own words, and only lengths exceed the context.
func TestErrorsAreTheRequests(t *testing.T) {
	s := start(t, nil)
	for body, long := range map[string]bool{
		`"prompt": [1, 400]`: false, `"prompt": []`: false, `"prompt": [1], "temperature": 0.00001`: false,
		`"prompt": [1], "top_k": -5`: false, `"prompt": [1], "top_p": 2`: false, `"prompt": [1], "min_tokens": -1`: false,
		`"prompt": "` + strings.Repeat("word ", 10000) + `"`: true, `"prompt": "` + strings.Repeat("word ", 100000) + `"`: true,
	} {
		resp, text := s.do("POST", "/v1/completions", `{"model": "tiny", `+body+"}")
		if resp.StatusCode != 400 || strings.Contains(text, "torch") || strings.Contains(text, "request ") ||
			strings.Contains(text, "context_length_exceeded") != long {
			t.Errorf("%.60s: %d %s", body, resp.StatusCode, text)
		}
	}
	for k, status := range map[string]int{"-1": 200, "0": 200, "3": 200, "-2": 400} {
		if resp, text := s.do("POST", "/v1/completions", `{"model": "tiny", "prompt": [1], "max_tokens": 1, "top_k": `+k+"}"); resp.StatusCode != status {
			t.Errorf("top_k %s: %d %s", k, resp.StatusCode, text)
		}
	}
}

// reply is a choice put together.
type reply struct {
	Text, Finish string
	IDs          []int32
	Logprobs     []float32
}

// ask gives the choices of a request, and the whole answer or the last part of it.
func (s *served) ask(path, body string, stream bool) (replies []reply, last answer) {
	s.Helper()
	if stream {
		body = strings.TrimSuffix(body, "}") + `, "stream": true, "stream_options": {"include_usage": true}}`
	}
	resp, text := s.do("POST", path, body)
	if resp.StatusCode != 200 {
		s.Fatal(text)
	}
	events := []string{text}
	if stream {
		if !strings.HasSuffix(text, "\n\ndata: [DONE]\n\n") || resp.Header.Get("Content-Type") != "text/event-stream" {
			s.Errorf("a stream ends with %.60q", text[max(0, len(text)-60):])
		}
		events = strings.Split(strings.TrimSuffix(text, "\n\ndata: [DONE]\n\n"), "\n\n")
	}
	for _, event := range events {
		last = answer{}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &last); err != nil {
			s.Fatalf("%q: %v", event, err)
		}
		for _, c := range last.Choices {
			for len(replies) <= c.Index {
				replies = append(replies, reply{})
			}
			r := &replies[c.Index]
			r.Text += c.Text + c.Message.Content + c.Delta.Content
			r.IDs = append(r.IDs, c.TokenIDs...)
			if c.Logprobs != nil {
				r.Logprobs = append(r.Logprobs, c.Logprobs.Values...)
				for _, token := range c.Logprobs.Content {
					r.Logprobs = append(r.Logprobs, token.Logprob)
					if len(token.Top) != 2 || token.Top[0].Logprob < token.Top[1].Logprob {
						s.Errorf("alternatives %v", token.Top)
					}
				}
			}
			if c.FinishReason != nil {
				r.Finish += *c.FinishReason
			}
		}
	}
	return replies, last
}

// What is streamed is what is answered whole: texts, ids, log-probs, reasons and counts, of every choice.
func TestStreamsAreTheWhole(t *testing.T) {
	s := start(t, nil)
	const chat = hello + `, "n": 3, "seed": 5, "temperature": 0.9, "max_tokens": 30, "return_token_ids": true, ` +
		`"logprobs": true, "top_logprobs": 2}`
	const plain = `{"model": "tiny", "prompt": [[97, 98], [1, 2, 3]], "n": 2, "seed": 5, "max_tokens": 30, ` +
		`"return_token_ids": true, "logprobs": 2, "stop": ["a", "e", "::"]}`
	for path, body := range map[string]string{"/v1/chat/completions": chat, "/v1/completions": plain} {
		whole, answered := s.ask(path, body, false)
		parts, last := s.ask(path, body, true)
		if !reflect.DeepEqual(whole, parts) {
			t.Errorf("%s: whole %+v\nstreamed %+v", path, whole, parts)
		}
		for _, usage := range []map[string]any{answered.Usage, last.Usage} {
			delete(usage, "prompt_tokens_details") // the second time, prompts are found in the cache
		}
		if !reflect.DeepEqual(answered.Usage, last.Usage) || last.Usage["total_tokens"].(float64) < 10 {
			t.Errorf("%s: usage %v, streamed %v", path, answered.Usage, last.Usage)
		}
		for i, r := range whole {
			if len(r.IDs) == 0 || len(r.IDs) != len(r.Logprobs) || r.Finish != "stop" && r.Finish != "length" ||
				i > 0 && slices.Equal(r.IDs, whole[0].IDs) {
				t.Errorf("%s: choice %d is %+v", path, i, r)
			}
			if path == "/v1/completions" && strings.ContainsAny(r.Text, "ae") {
				t.Errorf("a stop string is in %q", r.Text)
			}
		}
		one, _ := s.ask(path, strings.Replace(strings.Replace(body, `"n": 3`, `"n": 1`, 1), `"n": 2`, `"n": 1`, 1), false)
		if !reflect.DeepEqual(one[0], whole[0]) {
			t.Errorf("%s: the first of one is %+v, of several %+v", path, one[0], whole[0])
		}
	}
}

func TestResponses(t *testing.T) {
	s := start(t, nil)
	chat, _ := s.ask("/v1/chat/completions", hello+`, "temperature": 0, "max_tokens": 9}`, false)
	const body = `{"model": "tiny", "input": "hello", "temperature": 0, "max_output_tokens": 9`
	type response struct {
		Status string
		Output []struct{ Content []struct{ Text string } }
		Usage  struct {
			Output int `json:"output_tokens"`
		}
	}
	_, text := s.do("POST", "/v1/responses", body+"}")
	var whole response
	if err := json.Unmarshal([]byte(text), &whole); err != nil || len(whole.Output) != 1 ||
		whole.Output[0].Content[0].Text != chat[0].Text || whole.Status != "incomplete" || whole.Usage.Output != 9 {
		t.Errorf("%s: want the text %q", text, chat[0].Text)
	}
	_, text = s.do("POST", "/v1/responses", body+`, "stream": true}`)
	var said string
	var kinds []string
	for i, event := range strings.Split(strings.TrimSpace(text), "\n\n") {
		kind, data, _ := strings.Cut(strings.TrimPrefix(event, "event: "), "\ndata: ")
		var e struct {
			Type     string
			Number   int `json:"sequence_number"`
			Delta    string
			Response response
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil || e.Type != kind || e.Number != i {
			t.Errorf("event %d: %q, %v", i, event, err)
		}
		said += e.Delta
		if len(kinds) == 0 || kinds[len(kinds)-1] != kind {
			kinds = append(kinds, kind)
		}
		if kind == "response.incomplete" && !reflect.DeepEqual(e.Response, whole) {
			t.Errorf("streamed %+v, whole %+v", e.Response, whole)
		}
	}
	want := strings.Fields("created in_progress output_item.added content_part.added output_text.delta output_text.done " +
		"content_part.done output_item.done incomplete")
	for i := range want {
		want[i] = "response." + want[i]
	}
	if said != chat[0].Text || !slices.Equal(kinds, want) {
		t.Errorf("streamed %q in %v", said, kinds)
	}
	if resp, text := s.do("POST", "/v1/responses", `{"model": "tiny", "instructions": "x", "max_output_tokens": 1, "input": [`+
		`{"role": "user", "content": [{"type": "input_text", "text": "add"}]}, {"type": "message", "role": "assistant", `+
		`"content": [{"type": "output_text", "text": "yes"}]}, {"role": "user", "content": "so?"}]}`); resp.StatusCode != 200 {
		t.Errorf("a list of items: %s", text)
	}
	s.refused(400, "previous_response_id", "POST", "/v1/responses", body+`, "previous_response_id": "resp_1"}`)
	s.refused(400, "expected message", "POST", "/v1/responses", `{"model": "tiny", "input": [{"type": "image"}]}`)
}

// What requests say of chats reaches the prompt: parts, what was thought, fields and variables of the template.
func TestChatsReachTheTemplate(t *testing.T) {
	s := start(t, func(o *host.Options, _ *serve.Options) {
		o.ChatTemplate = `{% for m in messages %}{{ m.role }}:{{ m.reasoning_content }}{{ m.plan }}{% for p in m.content %}` +
			`{{ p.text }};{% endfor %}{% endfor %}{% if think is false %}!{% endif %}`
	})
	prompt := func(path, rest string) string {
		t.Helper()
		_, text := s.do("POST", path, `{"model": "tiny", `+rest+"}")
		var found answer
		if err := json.Unmarshal([]byte(text), &found); err != nil {
			t.Fatal(err)
		}
		if path == "/v1/responses" { // which tells no ids
			return text
		}
		return s.host.Tokenizer().Decode(found.PromptTokenIDs, false)
	}
	const tail = `, "max_tokens": 1, "return_token_ids": true`
	for rest, want := range map[string]string{
		`"messages": [{"role": "user", "content": "a"}]`:                                                            "user:a;",
		`"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]`: "user:a;b;",
		`"messages": [{"role": "user", "content": "a", "plan": "p"}], "chat_template_kwargs": {"think": false}`:     "user:pa;!",
		`"messages": [{"role": "assistant", "content": "a", "reasoning": "r"}]`:                                     "assistant:ra;",
	} {
		if got := prompt("/v1/chat/completions", rest+tail); got != want {
			t.Errorf("%s: %q, want %q", rest, got, want)
		}
	}
	if text := prompt("/v1/responses", `"input": [{"role": "user", "content": "a"}], "max_output_tokens": 1, `+
		`"chat_template_kwargs": {"think": false}`); !strings.Contains(text, `"input_tokens":8`) { // user:a;!
		t.Error(text)
	}
	for body, says := range map[string]string{
		`"messages": [{"role": "user", "content": "a", "plann": "p"}]`:                        `message 0: there is no key "plann" (did you mean plan?)`,
		`"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"thin": 1}`: "did you mean think?",
	} {
		s.refused(400, says, "POST", "/v1/chat/completions", `{"model": "tiny", `+body+"}")
	}
}

// Log-probs of given tokens are those that were drawn, in vLLM's form and in OpenAI's.
func TestLogprobsOfGivenTokens(t *testing.T) {
	s := start(t, nil)
	type answer struct {
		Choices []struct {
			Text           string
			TokenIDs       []int32                               `json:"token_ids"`
			PromptLogprobs []map[int32]struct{ Logprob float32 } `json:"prompt_logprobs"`
			FinishReason   string                                `json:"finish_reason"`
			Logprobs       struct {
				Tokens   []string
				Logprobs []*float32 `json:"token_logprobs"`
				Offsets  []int      `json:"text_offset"`
			}
		}
	}
	ask := func(body string) (a answer) {
		t.Helper()
		resp, text := s.do("POST", "/v1/completions", `{"model": "tiny", `+body+"}")
		if err := json.Unmarshal([]byte(text), &a); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %s", body, err, text)
		}
		return a
	}
	drawn := ask(`"prompt": [104, 105], "max_tokens": 30, "seed": 4, "logprobs": 0, "return_token_ids": true`).Choices[0]
	ids := append([]int32{104, 105}, drawn.TokenIDs...)
	prompt, _ := json.Marshal(ids)
	given := ask(`"max_tokens": 1, "prompt_logprobs": 0, "prompt": ` + string(prompt)).Choices[0].PromptLogprobs
	echoed := ask(`"max_tokens": 0, "echo": true, "logprobs": 1, "prompt": [` + string(prompt) + "," + string(prompt) + "]").Choices
	two := ask(`"max_tokens": 2, "n": 2, "echo": true, "logprobs": 1, "seed": 1, "ignore_eos": true, "prompt": ` + string(prompt)).Choices
	longer := two[0]
	l, whole := echoed[1].Logprobs, strings.Join(echoed[1].Logprobs.Tokens, "")
	if len(given) != len(ids) || len(given[0]) != 0 || len(echoed) != 2 || len(l.Logprobs) != len(ids) || l.Logprobs[0] != nil ||
		echoed[1].Text != whole || echoed[1].FinishReason != "length" || !strings.HasPrefix(longer.Text, whole) ||
		len(longer.Logprobs.Logprobs) != len(ids)+2 || len(two[1].Logprobs.Tokens) != len(ids)+2 || longer.Logprobs.Offsets[len(ids)] != len([]rune(whole)) {
		t.Fatalf("given %v, echoed %+v, longer %+v", given, echoed, longer)
	}
	for i, want := range drawn.Logprobs.Logprobs {
		if at := i + 2; given[at][ids[at]].Logprob != *want || *l.Logprobs[at] != *want || *longer.Logprobs.Logprobs[at] != *want {
			t.Errorf("token %d: %v and %v, drawn with %v", at, given[at], *l.Logprobs[at], *want)
		}
	}
	for body, says := range map[string]string{
		`"prompt": [1, 2], "max_tokens": 0`:                                       "at least 1",
		`"prompt": [1, 2], "prompt_logprobs": 5`:                                  "give 0 or 1",
		`"prompt": [1, 2], "prompt_logprobs": 0, "stream": true`:                  "leave stream out",
		`"prompt": [1, 400], "prompt_logprobs": 0, "max_tokens": 0`:               "vocabulary has ids",
		`"prompt": "` + strings.Repeat("word ", 8000) + `", "prompt_logprobs": 0`: "may have 32768",
	} {
		s.refused(http.StatusBadRequest, says, "POST", "/v1/completions", `{"model": "tiny", `+body+"}")
	}
}

// A response that is stored is gone on from, read and forgotten, by who has its key alone.
func TestStoredResponses(t *testing.T) {
	s := start(t, nil)
	type response struct {
		ID, Status string
		Store      bool
		Previous   *string `json:"previous_response_id"`
		Output     []struct{ Content []struct{ Text string } }
		Usage      struct {
			Input int `json:"input_tokens"`
		}
		Deleted bool
	}
	ask := func(method, path, body string, headers ...string) (r response) {
		t.Helper()
		resp, text := s.do(method, path, body, headers...)
		if err := json.Unmarshal([]byte(text), &r); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s %s: %d %s", method, path, body, resp.StatusCode, text)
		}
		return r
	}
	const settings = `{"model": "tiny", "max_output_tokens": 8, "temperature": 0, `
	first := ask("POST", "/v1/responses", settings+`"input": "one", "instructions": "Be brief."}`)
	text := first.Output[0].Content[0].Text
	said, _ := json.Marshal(text)
	second := ask("POST", "/v1/responses", settings+`"input": "two", "previous_response_id": "`+first.ID+`"}`)
	whole := ask("POST", "/v1/responses", settings+`"store": false, "input": [{"role": "user", "content": "one"}, {"role": "assistant", `+
		`"content": `+string(said)+`}, {"role": "user", "content": "two"}]}`)
	if !first.Store || whole.Store || second.Previous == nil || *second.Previous != first.ID || first.Previous != nil ||
		second.Usage.Input != whole.Usage.Input || !reflect.DeepEqual(second.Output[0].Content, whole.Output[0].Content) {
		t.Errorf("first %+v\ngone on %+v\nwhole %+v", first, second, whole)
	}
	_, events := s.do("POST", "/v1/responses", settings+`"input": "three", "stream": true, "previous_response_id": "`+second.ID+`"}`)
	_, id, _ := strings.Cut(events, `"id":"resp_`)
	id = "resp_" + id[:strings.IndexByte(id, '"')]
	third := ask("GET", "/v1/responses/"+id, "")
	if third.ID != id || *third.Previous != second.ID || third.Usage.Input < second.Usage.Input+10 {
		t.Errorf("streamed %+v", third)
	}
	for _, unknown := range []string{whole.ID, "resp_none"} {
		s.refused(404, "is stored", "GET", "/v1/responses/"+unknown, "")
		s.refused(400, "send the conversation whole", "POST", "/v1/responses", settings+`"input": "x", "previous_response_id": "`+unknown+`"}`)
	}
	s.refused(404, "is stored", "GET", "/v1/responses/"+first.ID, "", "Authorization", "Bearer another")
	s.refused(400, "is stored", "POST", "/v1/responses", settings+`"input": "x", "previous_response_id": "`+first.ID+`"}`,
		"Authorization", "Bearer another")
	if gone := ask("DELETE", "/v1/responses/"+first.ID, ""); !gone.Deleted || gone.ID != first.ID {
		t.Errorf("%+v", gone)
	}
	s.refused(404, "is stored", "DELETE", "/v1/responses/"+first.ID, "")
	if got := ask("GET", "/v1/responses/"+second.ID, ""); got.ID != second.ID {
		t.Errorf("after the one before was forgotten: %+v", got)
	}
}
