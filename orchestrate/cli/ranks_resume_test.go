package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What four ranks with shards have saved goes on on one, two and three as it would have gone on on four: by the
// tolerance of another order of additions, and with lanes bit by bit.
func TestCheckpointOfFourRanksResumes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := ranksConfig(t, dir)
	type way struct {
		args      []string
		tolerance float64
	}
	sizes, ways := []string{"2"}, map[string]way{"sums": {nil, 1e-4}}
	if os.Getenv("GYRE_TEST_RANKS") != "" {
		sizes, ways["lanes"] = []string{"1", "2", "3"}, way{[]string{"fsdp.deterministic=true", "fsdp.lanes=12"}, 0}
	}
	for name, x := range ways {
		train := func(name string, more ...string) string {
			t.Helper()
			mustGyre(t, dir, append(append([]string{"train", config, "run.name=" + name, "run.steps=4", "checkpoint.keep=4"},
				x.args...), more...)...)
			return filepath.Join(dir, "runs", name)
		}
		four := train(name, "--ranks", "4", "fsdp.shard=full")
		later := steadyMetrics(t, filepath.Join(four, "metrics.jsonl"))
		for _, n := range sizes {
			moved := train(name+n, "--ranks", n, "--resume-from", filepath.Join(four, "global_step_2"))
			found := steadyMetrics(t, filepath.Join(moved, "metrics.jsonl"))
			if len(found) != 2 {
				t.Fatalf("%s: %d lines of metrics, want those of steps 3 and 4", moved, len(found))
			}
			for step, values := range found {
				closeValues(t, step, later[step], values, x.tolerance)
			}
			for _, file := range []string{"actor", "critic"} {
				file = "global_step_4/" + file + "/model.safetensors"
				if d := farthest(t, filepath.Join(four, file), filepath.Join(moved, file)); d > x.tolerance/100 {
					t.Errorf("%s: %s differs by %g of the largest weight", moved, file, d)
				}
			}
		}
	}
}

// reads is what transformers makes of a checkpoint: the log-probs of rows of token ids.
const reads = `
import json, sys
import torch
from transformers import AutoModelForCausalLM
for folder in sys.argv[1:]:
    model, loading = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    wrong = {k: sorted(v) for k, v in loading.items() if v}
    rows = []
    with torch.no_grad():
        for line in open(folder + ".ids.jsonl"):
            ids = torch.tensor([json.loads(line)["ids"]])
            steps = torch.log_softmax(model(ids).logits[0, :-1].double(), -1)
            rows.append(steps.gather(1, ids[0, 1:, None])[:, 0].tolist())
    print(json.dumps({"wrong": wrong, "logprobs": rows}))
`

// transformers opens what four ranks have saved, of three families with tied and untied heads, and computes the
// log-probs that gyre score prints.
func TestTransformersOpensCheckpointOfRanks(t *testing.T) {
	thorough(t)
	python := pythonWith(t, "torch", "transformers")
	dir := t.TempDir()
	config := ranksConfig(t, dir)
	var folders []string
	for family, flags := range map[string][]string{"llama": nil, "qwen2": {"--untied"}, "qwen3": nil} {
		mustGyre(t, dir, append([]string{"model", "init", family, "--family", family, "--hidden", "32", "--layers", "3",
			"--heads", "4", "--kv-heads", "2",
			"--intermediate", "48", "--vocab", "300", "--seed", "5"}, flags...)...)
		mustGyre(t, dir, "train", config, "model.path="+family, "run.name="+family, "run.steps=2",
			"run.validate_every=0", "analysis.enabled=false", "actor.lr=1e-2",
			"--ranks", "4", "fsdp.shard=full")
		folders = append(folders, filepath.Join(dir, "runs", family, "global_step_2/actor"))
	}
	for _, folder := range folders {
		var rows strings.Builder
		for n := range 4 {
			ids := make([]int, 40-9*n)
			for i := range ids {
				ids[i] = (7*i*i + 31*n + 11*i) % 256
			}
			line, _ := json.Marshal(map[string]any{"ids": ids})
			fmt.Fprintf(&rows, "%s\n", line)
		}
		if err := os.WriteFile(folder+".ids.jsonl", []byte(rows.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(python, append([]string{"-c", reads}, folders...)...)
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "OMP_NUM_THREADS=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr)
	}
	answers := json.NewDecoder(strings.NewReader(string(out)))
	for _, folder := range folders {
		var theirs struct {
			Wrong    map[string][]string `json:"wrong"`
			Logprobs [][]float64         `json:"logprobs"`
		}
		if err := answers.Decode(&theirs); err != nil {
			t.Fatal(err)
		}
		if len(theirs.Wrong) > 0 {
			t.Errorf("%s: from_pretrained says %v", folder, theirs.Wrong)
		}
		ours := json.NewDecoder(strings.NewReader(mustGyre(t, dir, "score", "--model", folder, "--dtype", "float32",
			"--input", folder+".ids.jsonl")))
		worst := 0.0
		for _, row := range theirs.Logprobs {
			var line scored
			if err := ours.Decode(&line); err != nil || len(line.Logprobs) != len(row)+1 {
				t.Fatalf("%s: %d log-probs, want %d (%v)", folder, len(line.Logprobs)-1, len(row), err)
			}
			for i, want := range row {
				worst = math.Max(worst, math.Abs(float64(*line.Logprobs[i+1])-want))
			}
		}
		t.Logf("%s: log-probs differ by %.1e at most", folder, worst)
		if worst > 2e-4 {
			t.Errorf("%s: log-probs differ by %g", folder, worst)
		}
	}
}

// pythonWith finds a Python that has modules: GYRE_TEST_PYTHON, or python3.
func pythonWith(t *testing.T, modules ...string) string {
	t.Helper()
	python, named := os.LookupEnv("GYRE_TEST_PYTHON")
	if !named {
		python = "python3"
	}
	out, err := exec.Command(python, "-c", "import "+strings.Join(modules, ", ")).CombinedOutput()
	if err != nil && named {
		t.Fatalf("GYRE_TEST_PYTHON=%s: %v: %s", python, err, out)
	}
	if err != nil {
		t.Skipf("python3 has not all of %v: GYRE_TEST_PYTHON names one that has", modules)
	}
	return python
}
