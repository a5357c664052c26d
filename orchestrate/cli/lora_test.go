package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/run/metrics"
)

// A run of adapters samples what it trains, bit for bit, resumes exactly, and saves the adapters alone, which are
// opened as a model. Over ranks with everything in shards it is the same run.
func TestAdaptersTrainAndResumeExactly(t *testing.T) {
	for _, more := range [][]string{
		{"model.dtype=float32", `lora.targets=["all", "head", "embedding"]`},
		{"model.dtype=bfloat16", "lora.targets=attention", "actor.recompute_activations=true"},
		{"model.dtype=float32", "model.base_dtype=int8"},
		{"model.dtype=bfloat16", "model.base_dtype=int8", "lora.targets=mlp"},
	} {
		dir := t.TempDir()
		config := tinyConfig(t, dir, "")
		train := func(name string, args ...string) string {
			t.Helper()
			mustIn(t, dir, slices.Concat([]string{"train", config, "run.name=" + name, "run.steps=3", "lora.rank=4",
				"run.validate_every=1", "algorithm.kl_coef=0.01"}, more, args)...)
			return filepath.Join(dir, "runs", name)
		}
		whole := train("whole")
		train("parts", "--until", "1")
		sameRun(t, whole, train("parts", "--resume"))
		steps := 0
		for record, err := range metrics.Read(filepath.Join(whole, "metrics.jsonl")) {
			if err != nil {
				t.Fatal(err)
			}
			if gap, ok := record.Values["rollout/logprob_gap_max"]; ok {
				steps++
				if gap != 0.0 {
					t.Errorf("step %d: the sampler's log-probs are up to %v away from the trainer's", record.Step, gap)
				}
			}
		}
		if steps == 0 {
			t.Error("no step had anything to learn from")
		}
		files, err := os.ReadDir(filepath.Join(whole, "global_step_3", "actor"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range files {
			names = append(names, f.Name())
		}
		if !slices.Contains(names, "adapter_model.safetensors") || slices.Contains(names, "model.safetensors") {
			t.Errorf("the checkpoint holds %v", names)
		}
		mustIn(t, dir, "eval", config, "run.name=evaluated", "--checkpoint", whole)
		code, _, stderr := runIn(t, dir, "train", config, "run.name=further", "run.steps=1", "lora.rank=2",
			"model.path="+filepath.Join(whole, "global_step_3", "actor"))
		if code == 0 || !strings.Contains(stderr, "adapter of rank 4") {
			t.Errorf("another rank than the adapter's: exit code %d\n%s", code, stderr)
		}
	}
}

func TestAdaptersOverRanksAreThoseOfOne(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	train := func(name string, args ...string) string {
		t.Helper()
		mustIn(t, dir, slices.Concat([]string{"train", config, "run.name=" + name, "run.steps=2", "lora.rank=4",
			"algorithm.kl_coef=0.01", "fsdp.deterministic=true", "fsdp.lanes=2"}, args)...)
		return filepath.Join(dir, "runs", name)
	}
	one := train("one")
	for _, shard := range []string{"none", "full"} {
		two := train(shard, "--ranks", "2", "fsdp.shard="+shard)
		for _, file := range []string{"actor", "critic"} {
			file = "global_step_2/" + file + "/adapter_model.safetensors"
			a, errA := os.ReadFile(filepath.Join(one, file))
			b, errB := os.ReadFile(filepath.Join(two, file))
			if errA != nil || errB != nil || string(a) != string(b) {
				t.Errorf("fsdp.shard=%s: %s differs from one process's (%v, %v)", shard, file, errA, errB)
			}
		}
	}
}

// What an update drops follows from seed, optimizer step and tokens: a run that was interrupted, recomputes activations
// and has two ranks is the same, and the sampler's log-probs are taken as they are.
func TestDropoutIsTheSameHoweverARunIsCarriedOut(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	train := func(name string, args ...string) (string, []string) {
		t.Helper()
		mustIn(t, dir, slices.Concat([]string{"train", config, "run.name=" + name, "run.steps=2", "lora.rank=4",
			"lora.targets=[\"all\", \"head\"]", "fsdp.deterministic=true", "fsdp.lanes=2"}, args)...)
		run := filepath.Join(dir, "runs", name)
		var weights []string
		for _, who := range []string{"actor", "critic"} {
			data, err := os.ReadFile(filepath.Join(run, "global_step_2", who, "adapter_model.safetensors"))
			if err != nil && !slices.Contains(args, "--until") {
				t.Fatal(err)
			}
			weights = append(weights, string(data))
		}
		return run, weights
	}
	run, one := train("one", "lora.dropout=0.25")
	train("parts", "lora.dropout=0.25", "--until", "1")
	_, parts := train("parts", "lora.dropout=0.25", "--resume", "actor.recompute_activations=true")
	_, two := train("two", "lora.dropout=0.25", "--ranks", "2", "fsdp.shard=full")
	_, none := train("none")
	_, seed := train("seed", "lora.dropout=0.25", "lora.seed=9")
	for i, who := range []string{"actor", "critic"} {
		if parts[i] != one[i] || two[i] != one[i] {
			t.Errorf("%s: resumed the same %v, over two ranks %v", who, parts[i] == one[i], two[i] == one[i])
		}
		if none[i] == one[i] || seed[i] == one[i] {
			t.Errorf("%s: the run without dropout, or of another seed, is the same", who)
		}
	}
	settings, err := os.ReadFile(filepath.Join(run, "global_step_2", "actor", "adapter_config.json"))
	if err != nil || !strings.Contains(string(settings), `"lora_dropout": 0.25`) {
		t.Errorf("adapter_config.json (%v):\n%s", err, settings)
	}
	for record, err := range metrics.Read(filepath.Join(run, "metrics.jsonl")) {
		if gap, ok := record.Values["rollout/logprob_gap_max"]; err != nil || ok {
			t.Errorf("step %d: a gap of %v between passes with and without dropout (%v)", record.Step, gap, err)
		}
	}
	code, _, stderr := runIn(t, dir, "train", config, "run.name=refused", "lora.rank=4", "lora.dropout=0.1",
		"model.device=aten", "--dry-run")
	if code != 2 || !strings.Contains(stderr, "lora.dropout") {
		t.Errorf("on another device: exit code %d\n%s", code, stderr)
	}
}

// lora.adapter goes on from an adapter beside the model in model.path as model.path itself does when it names one.
func TestAdapterToStartFrom(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	train := func(name string, args ...string) string {
		t.Helper()
		mustIn(t, dir, slices.Concat([]string{"train", config, "run.name=" + name, "run.steps=1",
			"lora.rank=4"}, args)...)
		return filepath.Join(dir, "runs", name, "global_step_1", "actor")
	}
	first := train("first")
	var written []string
	for name, from := range map[string]string{"beside": "lora.adapter=", "in_place": "model.path="} {
		data, err := os.ReadFile(filepath.Join(train(name, from+first), "adapter_model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, string(data))
	}
	if written[0] != written[1] {
		t.Error("the adapters that both runs wrote differ")
	}
}

// A KL reference that is named is that model, also where the policy is an adapter beside it.
func TestTheReferenceThatIsNamed(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	reference := func(name string, args ...string) float64 {
		t.Helper()
		mustIn(t, dir, slices.Concat([]string{"train", config, "run.name=" + name, "run.steps=1", "lora.rank=4",
			"run.validate_every=0", "run.validate_first=false", "algorithm.kl_coef=0.1"}, args)...)
		for record, err := range metrics.Read(filepath.Join(dir, "runs", name, "metrics.jsonl")) {
			if value, ok := record.Values["rollout/ref_log_prob"]; err == nil && ok {
				return value.(float64)
			}
		}
		t.Fatalf("%s has no rollout/ref_log_prob", name)
		return 0
	}
	reference("first", "actor.lr=0.1")
	model := tinyPolicy(t)
	adapter := "lora.adapter=" + filepath.Join(dir, "runs", "first", "global_step_1", "actor")
	other := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(other, os.DirFS(model)); err != nil {
		t.Fatal(err)
	}
	here, copied := reference("here", adapter, "model.reference="+model), reference("copy", adapter, "model.reference="+other)
	none := reference("none", adapter)
	if here != copied || here == none {
		t.Errorf("the reference's log-prob is %v where it is model.path, %v where it is a copy, %v where none is named", here,
			copied, none)
	}
}
