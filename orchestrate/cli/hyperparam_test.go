package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The first RAGEN's search, group by group, for real with a tiny policy: every group starts from what those before it
// found best, repeats nothing, and leaves its files where RAGEN's does.
func TestHyperparameterSearch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	withGPUs(t, dir, "exit 1\n")
	gyre := fmt.Sprintf("echo \"$*\" >>%q; GYRE_TEST_COMMAND=1 exec %q \"$@\"", filepath.Join(dir, "called"), binary)
	search := func(group string, more ...string) (int, string) {
		return script(t, dir, gyre, "hyperparam_search.sh",
			append([]string{"--env_name=two_armed_bandit", "--exp_base_name=b", "--search_group", group,
				"--micro_batch_size", "4",
				"--parallel", "--n_gpus", "2", "--model", tinyPolicy(t)}, more...)...)
	}
	small := []string{"--", "run.steps=1", "rollout.max_tokens=2", "validation.envs.0.groups=2"}
	if code, output := search("3", small...); code != 2 || !strings.Contains(output, "search group 1 first") {
		t.Errorf("a group too early: exit code %d\n%s", code, output)
	}
	code, output := search("2", append([]string{"--train_batch_size", "4", "--n_rollout=2"}, small...)...)
	if code != 0 || strings.Count(output, ", seed 1: finished") != 4 || !strings.Contains(output,
		"=== best of group 2: {\"score\": ") {
		t.Fatalf("group 2: exit code %d\n%s", code, output)
	}
	var found map[string]float64
	path := filepath.Join(dir, "log/searched_hyper_params/searched_params_group_2.json")
	if err := json.Unmarshal(readFile(t, path), &found); err != nil {
		t.Fatal(err)
	}
	if lr := found["actor_lr"]; found["train_batch_size"] != 4 || found["n_rollout"] != 2 ||
		lr != 5e-7 && lr != 1e-6 && lr != 5e-6 && lr != 1e-5 {
		t.Errorf("found %v", found)
	}
	for _, pattern := range []string{"log/terminal/hyperparam_search_b_*.log",
		"log/terminal/hyper_param_search_logs/exp_b_stage2,*.log", "studies/b/runs/stage2,*/seed_1/metrics.jsonl",
		"studies/b/figures/final_success.png"} {
		if paths, _ := filepath.Glob(filepath.Join(dir, pattern)); len(paths) == 0 {
			t.Errorf("there is no %s", pattern)
		}
	}
	if code, output = search("2", append([]string{"--train_batch_size", "4", "--n_rollout=2"},
		small...)...); code != 0 || strings.Contains(output, ", seed 1: finished") {
		t.Errorf("started again: exit code %d\n%s", code, output)
	}
	// What was found is what the next group has.
	found["actor_lr"] = 5e-6
	text, _ := json.Marshal(found)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	code, output = search("3", append([]string{"--dry_run", "--train_batch_size", "4", "--n_rollout=2"}, small...)...)
	config := string(readFile(t, filepath.Join(dir, "log/configs/b_search_group_3.toml")))
	if code != 0 || strings.Count(output, "pending") != 6 || !strings.Contains(config, "lr = 5e-06") &&
		!strings.Contains(config, "lr = 5e-6") || !strings.Contains(config, "group_size = 2") {
		t.Errorf("group 3: exit code %d\n%s\n%s", code, output, config)
	}
	if !strings.Contains(output, "computing on the CPU") {
		t.Errorf("without a GPU the CPU is not named:\n%s", output)
	}
	code, output = search("3", append([]string{"--dry_run", "--train_batch_size", "4", "--n_rollout=2"},
		append(small, "model.device=aten")...)...)
	if code != 0 || strings.Contains(output, "computing on the CPU") {
		t.Errorf("with a device of its own: exit code %d\n%s", code, output)
	}
	for args, want := range map[string]string{"--search_group 5": "expected 1, 2, 3 or 4",
		"--grid 1": "unknown option --grid", "--search_group 1 --micro_batch_size 1 --n_gpus 2": "smaller than --n_gpus"} {
		if code, output := script(t, dir, gyre, "hyperparam_search.sh",
			strings.Fields("--env_name sokoban --exp_base_name b "+args)...); code != 2 ||
			!strings.Contains(output, want) {
			t.Errorf("%s: exit code %d, want %q\n%s", args, code, want, output)
		}
	}
}
