package torch

import (
	"cmp"
	"errors"
	"slices"
	"testing"
)

func tinyEngine(t *testing.T, m *Model, config EngineConfig) *Engine {
	t.Helper()
	e, err := NewEngine(m, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

var roomy = EngineConfig{MaxSequences: 8, MaxLength: 32, MaxBatchTokens: 64}

// finish runs the engine until nothing is left.
func finish(t *testing.T, e *Engine) map[uint64]Output {
	t.Helper()
	outputs := map[uint64]Output{}
	for unfinished := 1; unfinished > 0; {
		var err error
		if unfinished, err = e.Step(); err != nil {
			t.Fatal(err)
		}
		done, err := e.Poll()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range done {
			outputs[o.ID] = o
		}
	}
	return outputs
}

func TestEngineLogprobsAreTheModels(t *testing.T) {
	m := tinyModel(t, HeadLM)
	e := tinyEngine(t, m, EngineConfig{MaxSequences: 3, MaxLength: 32, MaxBatchTokens: 5})
	prompts := map[uint64][]int32{1: {1, 2, 3}, 2: {4}, 3: {5, 6, 7, 8, 9, 10, 11, 12}, 4: {13, 14}}
	for id, prompt := range prompts {
		sampling := Sampling{Temperature: 0.8, TopP: 0.9, MaxTokens: 10, Seed: id}
		if err := e.Submit(Request{ID: id, Prompt: prompt, Sampling: sampling}); err != nil {
			t.Fatal(err)
		}
	}
	outputs := finish(t, e)
	for id, prompt := range prompts {
		o := outputs[id]
		if len(o.Tokens) != 10 || o.Finish != FinishLength {
			t.Fatalf("request %d: %d tokens, finish %v; want 10, length", id, len(o.Tokens), o.Finish)
		}
		logprobs, err := m.Logprobs(Pack([][]int32{slices.Concat(prompt, o.Tokens)}, nil), 0.8)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(o.Logprobs, logprobs[len(prompt):]) {
			t.Errorf("request %d: the engine's log-probs %v, the trainer's %v", id, o.Logprobs, logprobs[len(prompt):])
		}
		for i, p := range o.SamplingLogprobs {
			if p < o.Logprobs[i] {
				t.Errorf("request %d, token %d: top-p made the log-prob smaller, %v to %v", id, i, o.Logprobs[i], p)
			}
		}
	}
}

// The likeliest tokens are told with the log-probs of the policy, whatever the filters leave to draw from.
func TestEngineAlternatives(t *testing.T) {
	m := tinyModel(t, HeadLM)
	e := tinyEngine(t, m, EngineConfig{MaxSequences: 2, MaxLength: 32, MaxBatchTokens: 5})
	const n, temperature = 7, 0.8
	prompt := []int32{1, 2, 3}
	for id := range uint64(2) { // the second asks for none
		sampling := Sampling{Temperature: temperature, TopP: 0.5, TopK: 3, MaxTokens: 6, Seed: 4, Alternatives: n * int(1-id)}
		if err := e.Submit(Request{ID: id, Prompt: prompt, Sampling: sampling}); err != nil {
			t.Fatal(err)
		}
	}
	var told [][]Alternative
	outputs := map[uint64]Output{}
	for unfinished := 1; unfinished > 0; {
		var err error
		if unfinished, err = e.Step(); err != nil {
			t.Fatal(err)
		}
		parts, err := e.Progress()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			if p.ID == 0 {
				told = append(told, p.Alternatives...)
			}
		}
		done, err := e.Poll()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range done {
			outputs[o.ID] = o
		}
	}
	o := outputs[0]
	if !slices.Equal(o.Tokens, outputs[1].Tokens) || outputs[1].Alternatives != nil || len(o.Alternatives) != 6 {
		t.Fatalf("%+v and without alternatives %+v", o, outputs[1])
	}
	if len(told) < 4 || !slices.EqualFunc(told, o.Alternatives[:len(told)], slices.Equal) {
		t.Errorf("told %v, polled %v", told, o.Alternatives)
	}
	for i, list := range o.Alternatives {
		ids := slices.Concat(prompt, o.Tokens[:i])
		var all []Alternative
		for token := range int32(m.Config.VocabSize) {
			logprobs, err := m.Logprobs(Pack([][]int32{append(slices.Clone(ids), token)}, nil), temperature)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, Alternative{token, logprobs[len(ids)]})
		}
		slices.SortStableFunc(all, func(a, b Alternative) int { return cmp.Compare(b.Logprob, a.Logprob) })
		if !slices.Equal(list, all[:n]) {
			t.Errorf("token %d: %v, want %v", i, list, all[:n])
		}
	}
	bad := Request{ID: 9, Prompt: prompt, Sampling: Sampling{Temperature: 1, TopP: 1, MaxTokens: 1, Alternatives: 21}}
	if err := e.Submit(bad); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("21 alternatives: %v", err)
	}
}

// A reply that is given up and goes on in another request is the reply that it would have been, stop strings that began
// before included.
func TestEngineGoesOnFromDrawnTokens(t *testing.T) {
	e := tinyEngine(t, tinyModel(t, HeadLM), roomy)
	vocabulary := make([][]byte, 64)
	for id := range vocabulary {
		vocabulary[id] = []byte{byte('a' + id%3)}
	}
	if err := e.SetVocabulary(vocabulary); err != nil {
		t.Fatal(err)
	}
	sampling := Sampling{Temperature: 1, TopP: 1, MaxTokens: 16, Seed: 5}
	whole := map[bool]Output{}
	for _, stops := range []bool{false, true} {
		request := Request{ID: 1, Prompt: []int32{1, 2, 3}, Sampling: sampling}
		if stops { // what the tokens 3 to 6 say
			var text []byte
			for _, id := range whole[false].Tokens[3:7] {
				text = append(text, vocabulary[id]...)
			}
			request.StopStrings = []string{string(text)}
		}
		if err := e.Submit(request); err != nil {
			t.Fatal(err)
		}
		whole[stops] = finish(t, e)[1]
		for drawn := 1; drawn < len(whole[stops].Tokens); drawn++ {
			rest := request
			rest.Prompt, rest.Drawn = append([]int32{1, 2, 3}, whole[stops].Tokens[:drawn]...), drawn
			if err := e.Submit(rest); err != nil {
				t.Fatal(err)
			}
			got := finish(t, e)[1]
			if !slices.Equal(got.Tokens, whole[stops].Tokens) || got.Finish != whole[stops].Finish ||
				!slices.Equal(got.Logprobs[drawn:], whole[stops].Logprobs[drawn:]) {
				t.Errorf("stop strings %v, from token %d on: %v, want %v", stops, drawn, got, whole[stops])
			}
		}
	}
	if len(whole[true].Tokens) >= len(whole[false].Tokens) {
		t.Errorf("the stop string did not stop the reply: %d tokens", len(whole[true].Tokens))
	}
	for _, drawn := range []int{-1, 3, 16} {
		r := Request{ID: 2, Prompt: []int32{1, 2, 3}, Sampling: sampling, Drawn: drawn}
		if err := e.Submit(r); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("drawn = %d: %v", drawn, err)
		}
	}
}

func TestEngineStops(t *testing.T) {
	m := tinyModel(t, HeadLM)
	e := tinyEngine(t, m, roomy)
	vocabulary := make([][]byte, m.Config.VocabSize)
	for i := range vocabulary {
		vocabulary[i] = []byte{'a' + byte(i), 'A' + byte(i)}
	}
	vocabulary[0] = nil
	if err := e.SetVocabulary(vocabulary); err != nil {
		t.Fatal(err)
	}
	sampling := Sampling{TopP: 1, Temperature: 1, MaxTokens: 8, Seed: 4}
	request := Request{ID: 1, Prompt: []int32{3, 4}, Sampling: sampling}
	whole := func() Output {
		if err := e.Submit(request); err != nil {
			t.Fatal(err)
		}
		return finish(t, e)[1]
	}()

	request.StopIDs = []int32{whole.Tokens[2]}
	if err := e.Submit(request); err != nil {
		t.Fatal(err)
	}
	byID := finish(t, e)[1]
	end := slices.Index(whole.Tokens, whole.Tokens[2]) + 1
	if byID.Finish != FinishStop || !slices.Equal(byID.Tokens, whole.Tokens[:end]) {
		t.Errorf("stop id %d: %v (%v), want %v", whole.Tokens[2], byID.Tokens, byID.Finish, whole.Tokens[:end])
	}

	// The second letter of one token and the first of the next.
	a, b := vocabulary[whole.Tokens[4]], vocabulary[whole.Tokens[5]]
	request.StopIDs, request.StopStrings = nil, []string{"no such text", string([]byte{a[1], b[0]})}
	if err := e.Submit(request); err != nil {
		t.Fatal(err)
	}
	byText := finish(t, e)[1]
	if byText.Finish != FinishStop || !slices.Equal(byText.Tokens,
		whole.Tokens[:len(byText.Tokens)]) ||
		len(byText.Tokens) > 6 {
		t.Errorf("stop string %q: %v (%v), want at most 6 of %v", request.StopStrings[1], byText.Tokens,
			byText.Finish, whole.Tokens)
	}
}

func TestEngineTellsTokensAsTheyAreDrawn(t *testing.T) {
	m := tinyModel(t, HeadLM)
	e := tinyEngine(t, m, EngineConfig{MaxSequences: 2, MaxLength: 32, MaxBatchTokens: 64})
	for id := range uint64(3) { // one has to wait
		r := Request{ID: id, Prompt: []int32{3, int32(id)}, Sampling: Sampling{Temperature: 1, TopP: 1, MaxTokens: 6 +
			3*int(id), Seed: id}}
		if err := e.Submit(r); err != nil {
			t.Fatal(err)
		}
	}
	told, outputs := map[uint64]*Partial{}, map[uint64]Output{}
	for step, unfinished := 0, 1; unfinished > 0; step++ {
		var err error
		if unfinished, err = e.Step(); err != nil {
			t.Fatal(err)
		}
		if step%3 == 1 {
			if err := e.Sleep(); err != nil { // sends everyone back to the queue
				t.Fatal(err)
			}
		}
		if step%2 == 0 {
			parts, err := e.Progress()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range parts {
				sum := told[p.ID]
				if sum == nil {
					sum = new(Partial)
					told[p.ID] = sum
				}
				if len(p.Tokens) == 0 || p.Position != len(sum.Tokens) || len(p.Logprobs) != len(p.Tokens) {
					t.Errorf("request %d: %d tokens and %d log-probs from position %d on after %d were told", p.ID,
						len(p.Tokens),
						len(p.Logprobs), p.Position, len(sum.Tokens))
				}
				sum.Tokens = append(sum.Tokens, p.Tokens...)
				sum.Logprobs = append(sum.Logprobs, p.Logprobs...)
				sum.SamplingLogprobs = append(sum.SamplingLogprobs, p.SamplingLogprobs...)
			}
			if again, err := e.Progress(); err != nil || len(again) != 0 {
				t.Errorf("nothing was drawn in between, got %+v (%v)", again, err)
			}
		}
		done, err := e.Poll()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range done {
			outputs[o.ID] = o
		}
	}
	for id, o := range outputs {
		p := told[id]
		if p == nil {
			t.Fatalf("request %d: nothing was told", id)
		}
		n := len(p.Tokens)
		if n < len(o.Tokens)-2 || n > len(o.Tokens) || !slices.Equal(p.Tokens, o.Tokens[:n]) ||
			!slices.Equal(p.Logprobs, o.Logprobs[:n]) ||
			!slices.Equal(p.SamplingLogprobs, o.SamplingLogprobs[:n]) {
			t.Errorf("request %d: told %v, polled %v", id, p.Tokens, o.Tokens)
		}
	}
	if len(outputs) != 3 {
		t.Errorf("%d outputs", len(outputs))
	}
}

func TestEnginePrefixCacheSleepAndWeights(t *testing.T) {
	m := tinyModel(t, HeadLM)
	config := roomy
	config.PrefixCache = true
	e := tinyEngine(t, m, config)
	request := Request{ID: 1, Prompt: []int32{3, 4, 5, 6}, Sampling: Sampling{Temperature: 1, TopP: 1, MaxTokens: 4}}
	cached := func() int {
		t.Helper()
		if err := e.Submit(request); err != nil {
			t.Fatal(err)
		}
		return finish(t, e)[1].CachedTokens
	}
	first := cached()
	again := cached()
	if s, err := e.Stats(); err != nil || s.BlocksCached == 0 || s.BlocksFree+s.BlocksCached != s.BlocksTotal ||
		s.KVBytes == 0 {
		t.Errorf("idle: %+v, %v", s, err)
	}
	if err := m.Touch(); err != nil {
		t.Fatal(err)
	}
	touched := cached()
	if err := e.Sleep(); err != nil {
		t.Fatal(err)
	}
	if s, err := e.Stats(); err != nil || s.KVBytes != 0 || s.BlocksCached != 0 || s.BlocksFree != s.BlocksTotal {
		t.Errorf("asleep: %+v, %v", s, err)
	}
	slept := cached()
	if first != 0 || again != 3 || touched != 0 || slept != 0 {
		t.Errorf("cached tokens: first %d, again %d, after new weights %d, after sleep %d; want 0, 3, 0, 0", first,
			again, touched, slept)
	}
	s, err := e.Stats()
	if err != nil || s.PromptTokens != 16 || s.CachedTokens != 3 || s.PrefillTokens != 13 || s.DecodeTokens != 12 ||
		s.HeadRows != 16 ||
		s.Steps != 16 || s.BlocksPeak != 2 || s.Prefill.Seconds <= 0 || s.Decode.Work.Bytes <= 0 ||
		s.Sample.Work.FLOPs <= 0 {
		t.Errorf("after four requests: %+v, %v", s, err)
	}
	without := tinyEngine(t, m, roomy)
	e = without
	if first, again := cached(), cached(); first != 0 || again != 0 {
		t.Errorf("without the cache %d and %d tokens were cached", first, again)
	}
}

func TestEngineErrors(t *testing.T) {
	m := tinyModel(t, HeadLM)
	e := tinyEngine(t, m, roomy)
	good := Request{ID: 1, Prompt: []int32{1}, Sampling: Sampling{Temperature: 1, TopP: 1, MaxTokens: 20}}
	for name, change := range map[string]func(*Request){
		"empty prompt":     func(r *Request) { r.Prompt = nil },
		"foreign token":    func(r *Request) { r.Prompt = []int32{19} },
		"long prompt":      func(r *Request) { r.Prompt = make([]int32, 32) },
		"zero value TopP":  func(r *Request) { r.Sampling.TopP = 0 },
		"no vocabulary":    func(r *Request) { r.StopStrings = []string{"x"} },
		"negative minimum": func(r *Request) { r.Sampling.MinTokens = -1 },
	} {
		r := good
		change(&r)
		if err := e.Submit(r); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s: %v, want an invalid argument", name, err)
		}
	}
	if err := e.Abort(9); !errors.Is(err, ErrNotFound) {
		t.Errorf("abort of an unknown id: %v", err)
	}
	if err := e.Submit(good); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Step(); err != nil {
		t.Fatal(err)
	}
	if err := e.Abort(1); err != nil {
		t.Fatal(err)
	}
	if o := finish(t, e)[1]; o.Finish != FinishAbort || len(o.Tokens) != 1 {
		t.Errorf("aborted after one token: %+v", o)
	}
	if _, err := NewEngine(tinyModel(t, HeadValue), roomy); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("engine over a critic: %v", err)
	}
}

func TestEngineOutlivesItsModelsClose(t *testing.T) {
	m := tinyModel(t, HeadLM)
	e := tinyEngine(t, m, roomy)
	m.Close()
	if _, err := e.Step(); !errors.Is(err, ErrClosed) {
		t.Errorf("step after the model's Close: %v", err)
	}
	e.Close()
	e.Close()
	if _, err := e.Poll(); !errors.Is(err, ErrClosed) {
		t.Errorf("poll after Close: %v", err)
	}
}
