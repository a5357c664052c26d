package cli

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"gyre/orchestrate/run/metrics"
)

// A teacher that a server has teaches as one whose checkpoint is here: the same bits, over ranks, of episodes in several
// sequences, by both ways of asking, though the server wants a key and is busy at times.
func TestTeacherOfAServer(t *testing.T) {
	dir := t.TempDir()
	mustIn(t, dir, "model", "init", "teacher", "--hidden", "24", "--layers", "2", "--heads", "2", "--kv-heads", "1",
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
		mustIn(t, dir, append([]string{"train", config, "run.name=" + name, "model.reference=" + teacher,
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
		code, _, stderr := runIn(t, dir, append([]string{"train", config, "run.name=refused", "algorithm.kl_coef=1",
			"model.reference=" + between.URL}, more...)...)
		if code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, want %q:\n%s", more, code, want, stderr)
		}
	}
}

// A divergence over the teacher's likeliest tokens gives the same weights with any number of ranks, however models lie
// over them, with smaller passes, and in a run that was resumed; and less than one over all tokens.
func TestDivergenceOverASupport(t *testing.T) {
	dir := t.TempDir()
	mustIn(t, dir, "model", "init", "teacher", "--hidden", "24", "--layers", "2", "--heads", "2", "--kv-heads", "1",
		"--intermediate", "32", "--vocab", "300", "--seed", "9")
	config := tinyConfig(t, dir, "")
	kl := []string{"model.reference=teacher", "algorithm.kl_coef=1", "algorithm.kl_top_k=8",
		"algorithm.zero_task_advantage=true", "algorithm.entropy_coef=0", "filter.strategy=none", "run.steps=3",
		"rollout.context=single_turn", "checkpoint.keep=0", "fsdp.deterministic=true"}
	run := func(name string, more ...string) string {
		t.Helper()
		mustIn(t, dir, append(append([]string{"train", config, "run.name=" + name}, kl...), more...)...)
		return filepath.Join(dir, "runs", name)
	}
	values := func(run string) (mass, divergence float64) {
		t.Helper()
		for record, err := range metrics.Read(filepath.Join(run, "metrics.jsonl")) {
			if err != nil {
				t.Fatal(err)
			}
			if record.Step == 1 {
				mass, _ = record.Float("rollout/ref_top_k_mass")
				divergence, _ = record.Float("actor/kl_loss")
			}
		}
		return mass, divergence
	}
	one := run("one")
	sameCheckpoints(t, one, run("recomputed", "actor.recompute_activations=true"), 1, 3)
	sameCheckpoints(t, one, run("ranks", "--ranks", "2"), 1, 3)
	sameCheckpoints(t, one, run("shards", "--ranks", "2", "fsdp.shard=full"), 1, 3)
	run("resumed", "--until", "1")
	sameCheckpoints(t, one, run("resumed", "--resume"), 1, 3)
	// Two passes at most for a sequence: rounding apart.
	_, small := values(run("small", "actor.micro_batch_tokens=64"))
	mass, some := values(one)
	whole, all := values(run("whole", "algorithm.kl_top_k=300"))
	if mass <= 8./300 || mass >= 0.99 || whole != 1 || some <= 0 || some > all || math.Abs(small-some) > 1e-6 {
		t.Errorf("8 tokens: a mass of %v, a divergence of %v (%v in small passes); 300: %v, %v", mass, some, small, whole, all)
	}
	sameCheckpoints(t, one, run("replayed", "--replay", "runs/one/rollouts/step_1.jsonl", "run.steps=1"), 1, 1)
	// Rejected tokens leave the update, not the support.
	run("rejected", "--replay", "runs/whole/rollouts/step_3.jsonl", "run.steps=1", "importance.reject=token", "importance.reject_low=0.999",
		"importance.reject_high=1.001")
	run("adapter", "lora.rank=2", "rollout.staleness=1", "fsdp.deterministic=false")
	for want, more := range map[string][]string{
		`algorithm.kl_in = "advantage": expected "loss"`: {"algorithm.kl_in=advantage"},
		"servers give log-probs of the sampled tokens":   {"model.reference=http://127.0.0.1:1"},
		"but the vocabulary of the policy in":            {"algorithm.kl_top_k=301"},
		"expected an integer >= 0, got -1":               {"algorithm.kl_top_k=-1"},
	} {
		code, _, stderr := runIn(t, dir, append(append([]string{"train", config, "run.name=refused"}, kl...), more...)...)
		if code == 0 || !strings.Contains(stderr, want) || !strings.Contains(stderr, "algorithm.kl_top_k") {
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
