package tinker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/serve"
)

// client speaks to a server over HTTP.
type client struct {
	t       *testing.T
	s       *Server
	url     string
	session string
}

func connect(t *testing.T, change func(*Options)) *client {
	t.Helper()
	c := &client{t: t, s: open(t, change)}
	server := serve.New(c.s.host, serve.Options{Listen: "127.0.0.1:0", MaxBody: 1 << 24, MaxConnections: 64,
		Log: io.Discard})
	c.s.Mount(server)
	ctx, cancel := context.WithCancel(context.Background())
	url, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- server.Run(ctx, func(at string) { url <- at }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c.url = <-url + root
	c.session = c.post("create_session", map[string]any{"tags": []string{}})["session_id"].(string)
	return c
}

func (c *client) send(method, path string, body []byte) (int, []byte) {
	c.t.Helper()
	request, err := http.NewRequest(method, c.url+path, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.StatusCode, data
}

// try is post without the demand that it succeeds.
func (c *client) try(path string, in any) (status int, out map[string]any) {
	c.t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		c.t.Fatal(err)
	}
	status, data := c.send("POST", path, body)
	if err := json.Unmarshal(data, &out); err != nil {
		c.t.Fatalf("%s: %s", path, data)
	}
	return status, out
}

func (c *client) post(path string, in any) map[string]any {
	c.t.Helper()
	status, out := c.try(path, in)
	if status != http.StatusOK {
		c.t.Fatalf("%s: %d %v", path, status, out)
	}
	return out
}

// fetch waits for a future's result.
func (c *client) fetch(id any) []byte {
	c.t.Helper()
	body, _ := json.Marshal(map[string]any{"request_id": id})
	for {
		status, data := c.send("POST", "retrieve_future", body)
		if status != http.StatusOK {
			c.t.Fatalf("%v: %d %s", id, status, data)
		}
		if !bytes.Contains(data, []byte(`"try_again"`)) {
			return data
		}
	}
}

// result is that of a request whose answer is JSON.
func (c *client) result(path string, in any) map[string]any {
	c.t.Helper()
	var out map[string]any
	if err := json.Unmarshal(c.fetch(c.post(path, in)["request_id"]), &out); err != nil {
		c.t.Fatal(err)
	}
	return out
}

func (c *client) create(seq int, rank int) string {
	c.t.Helper()
	return c.result("create_model", map[string]any{"session_id": c.session, "model_seq_id": seq, "base_model": "tiny",
		"lora_config": map[string]any{"rank": rank, "seed": 5}})["model_id"].(string)
}

// passesOf is a ForwardBackwardRequest with a cross entropy of the tokens.
func passesOf(t *testing.T, model string, seq int, ids []int32, forward bool) []byte {
	t.Helper()
	body, err := marshal(&forwardBackward{Model: model, Seq: int32(seq), Data: []*datum{plain(ids)}, Loss: "cross_entropy",
		ForwardOnly: forward})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func (c *client) passes(model string, seq int, ids []int32, forward int) string {
	c.t.Helper()
	status, data := c.send("POST", "forward_backward", passesOf(c.t, model, seq, ids, forward == 1))
	var out promised
	if err := json.Unmarshal(data, &out); err != nil || status != http.StatusOK {
		c.t.Fatalf("%d %s", status, data)
	}
	return out.RequestID
}

func step(model string, seq int) map[string]any {
	return map[string]any{"model_id": model, "seq_id": seq, "adam_params": map[string]any{"learning_rate": 0.02,
		"beta1": 0.9, "beta2": 0.95, "eps": 1e-12}}
}

// sampled asks for samples and gives their tokens and log-probs, and the prompt's log-probs.
func (c *client) sampled(sampler string, seq int, prompt []int32) (tokens []int32, drawn, before []float32) {
	c.t.Helper()
	future := c.post("asample", map[string]any{"sampling_session_id": sampler, "seq_id": seq, "num_samples": 1,
		"prompt":          map[string]any{"chunks": []any{map[string]any{"type": "encoded_text", "tokens": prompt}}},
		"sampling_params": map[string]any{"max_tokens": 12, "seed": 3, "temperature": 1, "top_p": 1, "top_k": -1, "stop": []int{}},
		"prompt_logprobs": true})
	var out sampleResponse
	err := unmarshal(c.fetch(future["request_id"]), &out)
	if err != nil || len(out.Sequences) != 1 {
		c.t.Fatalf("%d sequences, %v", len(out.Sequences), err)
	}
	for _, x := range numbers(out.Sequences[0].Tokens, dtypeInt32) {
		tokens = append(tokens, int32(x))
	}
	drawn, before = floats(out.Sequences[0].Logprobs), floats(out.Logprobs)
	if len(tokens) != 12 {
		c.t.Fatalf("%d tokens", len(tokens))
	}
	return tokens, drawn, before
}

// Requests run in the order of their numbers; a repeated one is the first; a mistake holds up nobody.
func TestRequestsRunInOrder(t *testing.T) {
	c := connect(t, nil)
	m := c.create(0, 4)
	ids := []int32{1, 2, 3, 4, 5}
	third := c.passes(m, 3, ids, 1)
	second := c.post("optim_step", step(m, 2))["request_id"]
	first := c.passes(m, 1, ids, 0)
	if again := c.passes(m, 1, ids, 0); again != first {
		t.Errorf("request 1 is %s and %s", first, again)
	}
	before, _ := result(t, c.fetch(first))
	after, _ := result(t, c.fetch(third))
	if after >= before {
		t.Errorf("the loss went from %v to %v", before, after)
	}
	if again, _ := result(t, c.fetch(first)); again != before {
		t.Errorf("fetched again, the result is %v, was %v", again, before)
	}
	if got := string(c.fetch(second)); !strings.Contains(got, "grad_norm") {
		t.Error(got)
	}
	wrong := step(m, 4)
	wrong["adam_params"].(map[string]any)["beta1"] = 1
	if got := c.result("optim_step", wrong); got["category"] != "user" {
		t.Errorf("beta1 of 1: %v", got)
	}
	wrong = step(m, 5)
	wrong["adam_params"].(map[string]any)["learning_rate"] = nil // as clients write NaN
	if got := c.result("optim_step", wrong); got["category"] != "user" || !strings.Contains(fmt.Sprint(got), "learning_rate is null") {
		t.Errorf("a learning rate of null: %v", got)
	}
	if got, _ := result(t, c.fetch(c.passes(m, 6, ids, 1))); got != after {
		t.Errorf("afterwards %v, before %v", got, after)
	}
	if status, _ := c.try("optim_step", step("none", 1)); status != http.StatusNotFound {
		t.Errorf("unknown model: %d", status)
	}
}

// A model that is unloaded tells those whose turn has not come.
func TestNobodyWaitsForAnUnloadedModel(t *testing.T) {
	c := connect(t, nil)
	m := c.create(0, 4)
	waits := c.passes(m, 2, []int32{1, 2, 3}, 1)
	if got := c.result("unload_model", map[string]any{"model_id": m}); got["type"] != "unload_model" {
		t.Error(got)
	}
	if got := string(c.fetch(waits)); !strings.Contains(got, `"category":"user"`) || c.s.queued.Load() != 0 {
		t.Errorf("%s; %d bytes wait", got, c.s.queued.Load())
	}
}

// Of adapters and of whole models, a sampler's log-probs are the trainer's bits, and stay when the model goes on.
func TestSamplersAreExactCopies(t *testing.T) {
	c := connect(t, nil)
	for seq, rank := range []int{4, 0} {
		m := c.create(seq, rank)
		c.fetch(c.passes(m, 1, []int32{1, 2, 3, 4, 5}, 0))
		c.result("optim_step", step(m, 2))
		sampler := c.result("save_weights_for_sampler", map[string]any{"model_id": m, "seq_id": 3,
			"sampling_session_seq_id": seq, "kind": "snapshot"})["sampling_session_id"].(string)
		named := c.result("save_weights_for_sampler", map[string]any{"model_id": m, "seq_id": 4, "path": "one"})["path"]
		prompt := []int32{7, 8, 9}
		tokens, drawn, before := c.sampled(sampler, 1, prompt)
		_, found := result(t, c.fetch(c.passes(m, 5, slices.Concat(prompt, tokens), 1)))
		if !slices.Equal(found, slices.Concat(before[1:], drawn)) || !math.IsNaN(float64(before[0])) {
			t.Errorf("rank %d: sampled %v %v, trained %v", rank, before, drawn, found)
		}
		c.fetch(c.passes(m, 6, []int32{9, 8, 7}, 0))
		c.result("optim_step", step(m, 7))
		if again, _, _ := c.sampled(sampler, 2, prompt); !slices.Equal(again, tokens) {
			t.Errorf("rank %d: the snapshot gives %v, gave %v", rank, again, tokens)
		}
		saved := c.post("create_sampling_session", map[string]any{"session_id": c.session, "model_path": named,
			"sampling_session_seq_id": 10 + seq})["sampling_session_id"].(string)
		if again, _, _ := c.sampled(saved, 1, prompt); !slices.Equal(again, tokens) {
			t.Errorf("rank %d: the checkpoint gives %v, the snapshot %v", rank, again, tokens)
		}
		if _, after := result(t, c.fetch(c.passes(m, 8, slices.Concat(prompt, tokens), 1))); slices.Equal(after, found) {
			t.Errorf("rank %d: the model has not changed", rank)
		}
	}
}

// A model goes on from a checkpoint as if it had never stopped, in another session of another server too.
func TestStatesAreRestored(t *testing.T) {
	c := connect(t, nil)
	m, ids := c.create(0, 4), []int32{1, 2, 3, 4, 5}
	c.fetch(c.passes(m, 1, ids, 0))
	c.result("optim_step", step(m, 2))
	path := c.result("save_weights", map[string]any{"model_id": m, "seq_id": 3, "path": "a.b-1"})["path"]
	if got := c.result("save_weights", map[string]any{"model_id": m, "seq_id": 4, "path": "a.b-1"}); got["category"] != "user" {
		t.Errorf("the same name: %v", got)
	}
	c.fetch(c.passes(m, 5, ids, 0))
	c.result("optim_step", step(m, 6))
	want, _ := result(t, c.fetch(c.passes(m, 7, ids, 1)))
	loaded := c.result("load_weights", map[string]any{"session_id": c.session, "model_seq_id": 1, "path": path,
		"optimizer": true})["model_id"].(string)
	c.fetch(c.passes(loaded, 1, ids, 0))
	c.result("optim_step", step(loaded, 2))
	if got, _ := result(t, c.fetch(c.passes(loaded, 3, ids, 1))); got != want {
		t.Errorf("the loss is %v, of the model that went on %v", got, want)
	}
	status, list := c.send("GET", "training_runs/"+m+"/checkpoints", nil)
	if status != http.StatusOK || !strings.Contains(string(list), `"checkpoint_id":"weights/a.b-1"`) {
		t.Errorf("%d %s", status, list)
	}
	if status, archive := c.send("GET", "training_runs/"+m+"/checkpoints/weights/a.b-1/archive", nil); status != 200 ||
		!bytes.Contains(archive, []byte("adapter_model.safetensors")) {
		t.Errorf("archive: %d, %d bytes", status, len(archive))
	}
}

// Names of checkpoints lead nowhere else.
func TestNothingIsWrittenElsewhere(t *testing.T) {
	top := t.TempDir()
	c := connect(t, func(o *Options) { o.Dir = filepath.Join(top, "state") })
	m := c.create(0, 4)
	seq := 0
	for _, name := range []string{"../x", "..", ".", "", "a/b", "/tmp/x", "a\x00b", `a\b`, ".hidden", strings.Repeat("a", 200)} {
		seq++
		if got := c.result("save_weights", map[string]any{"model_id": m, "seq_id": seq, "path": name}); got["category"] != "user" {
			t.Errorf("%q: %v", name, got)
		}
	}
	for _, path := range []string{"tinker://../../etc/passwd", "tinker://" + m + "/weights/../x", "/etc/passwd",
		"tinker://" + m + "/actor/x", "tinker://x:train:0/weights/x"} {
		if status, _ := c.try("weights_info", map[string]any{"tinker_path": path}); status != 400 {
			t.Errorf("%q: %d", path, status)
		}
	}
	for _, path := range []string{m + "/checkpoints/weights/%2e%2e/archive", "..%2f..%2fx/checkpoints/weights/x/archive",
		m + "/checkpoints/weights/x/files/..%2f..%2fmanifest.json"} {
		if status, _ := c.send("GET", "training_runs/"+path, nil); status < 400 || status >= 500 {
			t.Errorf("%s: %d", path, status)
		}
	}
	err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			t.Errorf("%s was written", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A client that dies frees its models, its samplers and their files; its checkpoints stay.
func TestSilentSessionsEnd(t *testing.T) {
	c := connect(t, func(o *Options) { o.Silence = 2 * time.Second })
	m := c.create(0, 4)
	c.result("save_weights", map[string]any{"model_id": m, "seq_id": 1, "path": "kept"})
	c.result("save_weights_for_sampler", map[string]any{"model_id": m, "seq_id": 2, "sampling_session_seq_id": 0})
	if found, _ := os.ReadDir(filepath.Join(c.s.options.Dir, m, snapshots)); len(found) != 1 {
		t.Errorf("%d snapshots", len(found))
	}
	held := func() string {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		return fmt.Sprint(len(c.s.sessions), len(c.s.models), len(c.s.samplers), len(c.s.futures))
	}
	for end := time.Now().Add(time.Minute); held() != "0 0 0 0"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("a minute later it holds %s", held())
		}
	}
	if status, _ := c.try("session_heartbeat", map[string]any{"session_id": c.session}); status != http.StatusGone {
		t.Errorf("heartbeat: %d", status)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(c.s.options.Dir, m, snapshots)); err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the snapshot is still there")
		}
	}
	if _, err := os.Stat(filepath.Join(c.s.options.Dir, m, training, "kept", "actor", "adapter_model.safetensors")); err != nil {
		t.Error(err)
	}
}

// What is a cloud's is not there, and nothing that a client sends is a fault of the server.
func TestHostileRequests(t *testing.T) {
	c := connect(t, nil)
	m := c.create(0, 4)
	for path, body := range map[string]string{"create_model": `{"session_id": 5}`, "optim_step": "[", "asample": "{}",
		"create_session": "", "billing/usage": "{}", "load_weights": `{"path": "x"}`, "get_info": "{}",
		"retrieve_future": "null", "forward_backward": "garbage", "save_weights": `{"model_id": "` + m + `", "seq_id": -1}`} {
		if status, answer := c.send("POST", path, []byte(body)); status < 400 || status >= 500 || len(answer) < 10 {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	for _, rank := range []int{-1, 1 << 30} {
		if status, _ := c.try("create_model", map[string]any{"session_id": c.session, "model_seq_id": 1, "base_model": "tiny",
			"lora_config": map[string]any{"rank": rank}}); status != 400 {
			t.Errorf("rank %d: %d", rank, status)
		}
	}
}

// What a killed server left unfinished is removed by the next, and what another is at work on stays.
func TestLeftoversOfAKilledServerAreRemoved(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "MODEL", snapshots, atomicfile.Prefix+"1-2345")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	busy, err := atomicfile.BeginDir(filepath.Join(dir, "OTHER"), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Discard()
	open(t, func(o *Options) { o.Dir = dir })
	if atomicfile.Exists(left) || !atomicfile.Exists(busy.Path) {
		t.Errorf("the leftover is there: %v; the work of another: %v", atomicfile.Exists(left), atomicfile.Exists(busy.Path))
	}
}

// An address has no more than half of the sessions.
func TestOneAddressCannotTakeAllSessions(t *testing.T) {
	c := connect(t, nil)
	for range maxSessions/2 - 1 { // connect has one
		c.post("create_session", map[string]any{})
	}
	if status, text := c.send("POST", "create_session", []byte("{}")); status != http.StatusTooManyRequests {
		t.Errorf("one more: %d %s", status, text)
	}
}
