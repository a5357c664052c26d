package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

const partsOfTheReward = `
[[rewards]]
name = "format"
weight = 0.4
[[rewards]]
name = "length"
weight = 0.6
options = { target = 20 }
[algorithm]
advantage = "grpo"
kl_coef = 0.01
[filter]
strategy = "none"
[components]
enabled = true
save = "full"
data = "sums"
permutations = 100
`

// The gradients of the reward's parts, of a run with an environment that is graded by parts: the files of a resumed run
// are those of an undisturbed one byte by byte, the run's weights those of a run that measures nothing, and analyze
// repeats what a step logged from its checkpoint and episodes.
func TestComponentsOfARun(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, partsOfTheReward)
	common := []string{"envs.0.tag=Arithmetic", "validation.envs.0.tag=Arithmetic", "envs.0.max_turns=1",
		"run.validate_every=0", "run.validate_first=false",
		"analysis.enabled=false", "checkpoint.keep=3", "rollout.prompt=chat", "rollout.max_tokens=24"}
	train := func(more ...string) {
		t.Helper()
		mustIn(t, dir, append(append([]string{"train", config}, more...), common...)...)
	}
	train("run.steps=3")
	train("run.steps=2", "run.name=stopped")
	train("run.steps=3", "run.name=stopped", "--resume")
	train("run.steps=3", "run.name=plain", "components.enabled=false", "components.save=none")
	for _, name := range []string{"gradients_step_0.npz", "gradients_step_1.npz", "gradients_step_2.npz",
		"cosines_step_0.csv", "cosines_step_2.csv"} {
		if !bytes.Equal(readFile(t, filepath.Join(dir, "runs/tiny/gradient_analysis_sums", name)),
			readFile(t, filepath.Join(dir, "runs/stopped/gradient_analysis_sums", name))) {
			t.Errorf("%s of the resumed run differs", name)
		}
	}
	weights := "global_step_3/actor/model.safetensors"
	if !bytes.Equal(readFile(t, filepath.Join(dir, "runs/tiny", weights)),
		readFile(t, filepath.Join(dir, "runs/plain", weights))) {
		t.Error("measuring has changed the weights")
	}
	var probed map[string]any
	out := mustIn(t, dir, append([]string{"analyze", config, "--checkpoint", "runs/tiny/global_step_1", "--rollouts",
		"runs/tiny/rollouts/step_2.jsonl", "--json"}, common...)...)
	if err := json.Unmarshal([]byte(out), &probed); err != nil {
		t.Fatal(err)
	}
	logged, compared := steadyMetrics(t, filepath.Join(dir, "runs/tiny/metrics.jsonl"))[2], 0
	for key, v := range logged {
		if !strings.HasPrefix(key, "grad_components/") || key == "grad_components/table" {
			continue
		}
		compared++
		// The probe takes the file's log-probs for another policy's and computes the KL term apart: the last bits may
		// differ.
		if w, ok := probed[key]; !ok || (v == nil) != (w == nil) || v != nil && !near(v.(float64), w.(float64), 1e-5) {
			t.Errorf("%s = %v, the run logged %v", key, w, v)
		}
	}
	if compared < 15 {
		t.Errorf("only %d numbers were compared", compared)
	}
}

func near(a, b, slack float64) bool { return a-b <= slack*(1+b*b) && b-a <= slack*(1+b*b) }
