package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"gyre/internal/exitcode"
)

// A search, killed again and again: what is promoted goes on from its checkpoint and ends with the numbers of a run
// that never paused.
func TestSearchSurvivesKills(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	studyOf(t, dir, `
seeds = 1
slots = 2
set = ["run.steps=4", "run.validate_every=4", "run.save_every=-1", "analysis.enabled=false", "early_stop.low_success_count=0"]
[search]
reduction = 2
min_steps = 1
[[axes]]
key = "actor.lr"
values = [1e-4, 1e-3, 1e-2]
[[conditions]]
label = "cannot start"
set = ["model.path=nowhere"]
`)
	code, stdout, stderr := runGyre(t, dir, "search", "study.toml", "--dry-run")
	if code != 0 || strings.Count(stdout, "pending") != 4 ||
		!strings.Contains(stderr, "about 8 training steps per seed in place of 16") {
		t.Errorf("dry run: exit code %d\n%s\n%s", code, stdout, stderr)
	}
	killWhenStepsAreLogged(t, dir, orThorough(2, 6), "search", "study.toml")
	if code, _, stderr := runGyre(t, dir, "search", "study.toml"); code != exitcode.Failed ||
		!strings.Contains(stderr, "1 of 4 runs failed") {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	var best struct {
		Condition string
		At        map[string]string
		Set       []string
	}
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "studies/tiny/best.json")), &best); err != nil ||
		best.At["lr"] == "" {
		t.Fatalf("%+v, %v", best, err)
	}
	whole := 0
	for _, row := range summary(t, filepath.Join(dir, "studies/tiny")) {
		rung, ok := row["rung"].(float64)
		if !ok {
			continue
		}
		switch status, label := row["status"], row["condition"]; {
		case label == "cannot start":
			if status != "failed" || rung != 0 {
				t.Errorf("%v", row)
			}
		case status == "finished":
			whole++
			if rung != 3 || row["steps"] != 4.0 {
				t.Errorf("a finished run stands at rung %v after %v steps", rung, row["steps"])
			}
		case status != "paused" || rung < 1 || row["steps"] != []float64{1, 2}[int(rung)-1]:
			t.Errorf("%v", row)
		}
	}
	if whole == 0 {
		t.Error("no configuration has all its steps")
	}
	// In one go.
	mustGyre(t, dir, append([]string{"train", "tiny.toml", "run.steps=4", "run.validate_every=4",
		"analysis.enabled=false", "run.threads=1", "run.name=straight"}, best.Set...)...)
	straight := steadyMetrics(t, filepath.Join(dir, "runs/straight/metrics.jsonl"))
	paused := steadyMetrics(t, filepath.Join(dir, "studies/tiny/runs", best.Condition, "seed_1/metrics.jsonl"))
	for step, values := range straight {
		for _, name := range []string{"actor/pg_loss", "actor/grad_norm", "critic/vf_loss",
			"rollout/in_group_reward_std", "val-env/sokoban/success"} {
			if want, ok := values[name]; ok && paused[step][name] != want {
				t.Errorf("step %d: %s is %v, in one go %v", step, name, paused[step][name], want)
			}
		}
	}
	if log := string(readFile(t, filepath.Join(dir, "studies/tiny/logs", best.Condition,
		"seed_1.log"))); strings.Count(log, "continuing from ") < 2 {
		t.Errorf("a promoted run did not continue from its checkpoint:\n%s", log)
	}
	// A sweep of the same file finds a search in the folder: it has its own in that, and leaves the search as it is.
	before := readFile(t, filepath.Join(dir, "studies/tiny/state.json"))
	code, _, stderr = runGyre(t, dir, "sweep", "study.toml", "run.steps=1", "axes.0.values=[1e-4]",
		"study.title=One value")
	if code != exitcode.Failed || !strings.Contains(stderr, "1 of 2 runs failed") ||
		len(summary(t, filepath.Join(dir, "studies/tiny/sweep"))) == 0 ||
		!bytes.Equal(before, readFile(t, filepath.Join(dir, "studies/tiny/state.json"))) {
		t.Errorf("a sweep of the search's study: exit code %d\n%s", code, stderr)
	}
	if text := string(readFile(t, filepath.Join(dir, "studies/tiny/sweep/summary.log"))); !strings.Contains(text,
		"\n=== One value Summary ===\n") || !strings.Contains(text, "lr=0.0001 | ") {
		t.Errorf("its summary:\n%s", text)
	}
	for args, want := range map[string]string{
		"search": "gyre search takes STUDY", "search study.toml --reduction 1": "expected an integer >= 2",
		"search study.toml --configurations 5":                "the axes have 4",
		"search study.toml --name other run.validate_every=0": "compares configurations by validations",
	} {
		if code, _, stderr := runGyre(t, dir, strings.Fields(args)...); code != exitcode.Usage ||
			!strings.Contains(stderr, want) {
			t.Errorf("gyre %s: exit code %d, %s; want %q", args, code, stderr, want)
		}
	}
}
