package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// A teacher that a server has teaches as one whose checkpoint is here: the same bits, over ranks, of episodes in several
// sequences, by both ways of asking, though the server wants a key and is busy at times.
func TestTeacherOfAServer(t *testing.T) {
	dir := t.TempDir()
	mustGyre(t, dir, "model", "init", "teacher", "--hidden", "24", "--layers", "2", "--heads", "2", "--kv-heads", "1",
		"--intermediate", "32", "--vocab", "300", "--seed", "9")
	address, _, stop := serving(t, filepath.Join(dir, "teacher"), "--dtype", "float32")
	defer stop()
	target, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	var asked, busy atomic.Int64
	var echoes atomic.Bool // the server does not know prompt_logprobs
	forward := httputil.NewSingleHostReverseProxy(target)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			http.Error(w, `{"error": {"message": "who are you?"}}`, http.StatusUnauthorized)
		case echoes.Load() && bytes.Contains(body, []byte("prompt_logprobs")):
			http.Error(w, `{"error": {"message": "unknown: prompt_logprobs"}}`, http.StatusBadRequest)
		case asked.Add(1)%50 == 7:
			busy.Add(1)
			w.Header().Set("Retry-After", "0.01")
			http.Error(w, `{"error": {"message": "busy"}}`, http.StatusServiceUnavailable)
		default:
			r.Host = target.Host
			forward.ServeHTTP(w, r)
		}
	}))
	defer between.Close()
	config := tinyConfig(t, dir, "")
	distil := func(name, teacher string, more ...string) string {
		t.Helper()
		mustGyre(t, dir, append([]string{"train", config, "run.name=" + name, "model.reference=" + teacher,
			"algorithm.kl_in=advantage", "algorithm.kl_estimator=k1", "algorithm.kl_coef=1", "algorithm.zero_task_advantage=true",
			"filter.strategy=none", "rollout.context=single_turn", "checkpoint.keep=0", "run.steps=3", "fsdp.deterministic=true"},
			more...)...)
		return filepath.Join(dir, "runs", name)
	}
	local := distil("local", "teacher")
	t.Setenv("TEACHER_KEY", "secret")
	key := "model.reference_key_env=TEACHER_KEY"
	sameCheckpoints(t, local, distil("remote", between.URL, key), 1, 3)
	echoes.Store(true)
	sameCheckpoints(t, local, distil("ranks", between.URL+"/v1", key, "--ranks", "2"), 1, 3)
	if busy.Load() == 0 {
		t.Errorf("of %d requests none met a busy server", asked.Load())
	}
	if bytes.Equal(readFile(t, filepath.Join(local, "global_step_3/actor/model.safetensors")),
		readFile(t, filepath.Join(distil("other", tinyPolicy(t)), "global_step_3/actor/model.safetensors"))) {
		t.Error("another teacher teaches the same")
	}
	for want, more := range map[string][]string{
		"reference_key_env names the variable":  nil,
		"rollout.temperature = 0.7":             {"rollout.temperature=0.7", key},
		"the variable NO_SUCH_VARIABLE is not":  {"model.reference_key_env=NO_SUCH_VARIABLE"},
		"model.reference_name":                  {"model.reference=teacher", "model.reference_name=x"},
		"choose one with model.reference_name,": {"model.reference=" + several(t)},
		"gives no log-probs of tokens":          {"model.reference=" + several(t), "model.reference_name=b"},
	} {
		code, _, stderr := runGyre(t, dir, append([]string{"train", config, "run.name=refused", "algorithm.kl_coef=1",
			"model.reference=" + between.URL}, more...)...)
		if code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, want %q:\n%s", more, code, want, stderr)
		}
	}
}

// several is a server of two models that answers without log-probs.
func several(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/models") {
			io.WriteString(w, `{"data": [{"id": "a"}, {"id": "b"}]}`)
			return
		}
		io.WriteString(w, `{"choices": [{"text": "x", "logprobs": null}]}`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}
