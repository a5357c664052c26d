package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/run/metrics"
)

// A mixture of experts samples what it trains, bit for bit, with balanced experts and with adapters of attention and
// experts, and resumes exactly.
func TestMixturesTrainAndResumeExactly(t *testing.T) {
	for _, more := range [][]string{
		{"model.dtype=float32", "algorithm.router_aux_loss_coef=0.1"},
		{"model.dtype=bfloat16", "actor.recompute_activations=true", "model.base_dtype=int8", "lora.rank=4",
			`lora.targets=["attention", "experts"]`},
	} {
		dir := t.TempDir()
		config := tinyConfig(t, dir, "")
		mustIn(t, dir, "model", "init", "mixture", "--family", "qwen3_moe", "--hidden", "32", "--layers", "2", "--heads", "2",
			"--kv-heads", "1", "--intermediate", "24", "--vocab", "259", "--std", "0.2")
		train := func(name string, args ...string) string {
			t.Helper()
			mustIn(t, dir, slices.Concat([]string{"train", config, "run.name=" + name, "run.steps=3", "run.validate_every=1",
				"model.path=mixture"}, more, args)...)
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
				if balance, _ := record.Values["actor/router_aux_loss"].(float64); gap != 0.0 || !(balance > 1) {
					t.Errorf("step %d: the sampler's log-probs are up to %v away from the trainer's, balance %v",
						record.Step, gap, balance)
				}
			}
		}
		if steps == 0 {
			t.Error("no step had anything to learn from")
		}
	}
}

// What a mixture has no use for is refused by name.
func TestMixturesRefuse(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	mustIn(t, dir, "model", "init", "mixture", "--family", "olmoe", "--hidden", "32", "--layers", "2", "--heads", "2",
		"--kv-heads", "1", "--intermediate", "24", "--vocab", "259")
	for args, want := range map[string]string{
		"model.path=mixture lora.rank=4 lora.targets=mlp": "experts",
		"algorithm.router_aux_loss_coef=0.1":              "algorithm.router_aux_loss_coef",
	} {
		code, _, stderr := runIn(t, dir, append([]string{"train", config, "run.name=refused"}, strings.Fields(args)...)...)
		if code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d\n%s", args, code, stderr)
		}
	}
}
