package cli

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// tinyStudy writes a study of the tiny policy: two conditions that finish, one that a collapse rule stops, one that cannot start.
func tinyStudy(t *testing.T, dir string) string {
	t.Helper()
	tinyConfig(t, dir, "")
	path := filepath.Join(dir, "study.toml")
	text := `
[study]
name = "tiny"
base = "tiny.toml"
seeds = 2
slots = 2
threads_per_run = 1
set = ["run.steps=3", "run.validate_every=1", "analysis.enabled=false", "early_stop.low_success_count=0"]
baseline = "nofilter"
[[axes]]
key = "filter.value"
values = [0.9, "nofilter"]
named = { nofilter = ["filter.value=1", "filter.include_zero=true"] }
[[conditions]]
label = "collapses"
set = ["early_stop.low_success=1", "early_stop.low_success_count=2"]
[[conditions]]
label = "cannot start"
set = ["model.path=nowhere"]
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// summary reads a study's summary.json without what time is spent on.
func summary(t *testing.T, dir string) (rows []map[string]any) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "studies/tiny/summary.json")), &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for _, key := range []string{"seconds", "train_seconds", "eval_seconds"} {
			delete(row, key)
		}
	}
	return rows
}

func TestStudySurvivesKills(t *testing.T) {
	undisturbed := t.TempDir()
	code, stdout, stderr := runGyre(t, undisturbed, "sweep", tinyStudy(t, undisturbed))
	if code != exitFailed || !strings.Contains(stderr, "2 of 8 runs failed") || !strings.Contains(stdout, "figures/collapse_timeline.png") {
		t.Fatalf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
	want := summary(t, undisturbed)
	for _, row := range want[:8] {
		status := map[string]string{"0.9": "finished", "nofilter": "finished", "collapses": "stopped_early", "cannot start": "failed"}[row["condition"].(string)]
		steps := map[string]float64{"finished": 3, "stopped_early": 2, "failed": 0}[status]
		if row["status"] != status || row["steps"] != steps {
			t.Errorf("condition %v, seed %v: %v after %v steps, want %s after %v", row["condition"], row["seed"], row["status"], row["steps"], status, steps)
		}
	}
	for _, file := range []string{"summary.csv", "summary.log", "state.json", "figures/learning_curves.png", "logs/nofilter/seed_2.log", "runs/0.9/seed_1/metrics.jsonl"} {
		if len(readFile(t, filepath.Join(undisturbed, "studies/tiny", file))) == 0 {
			t.Errorf("%s is empty", file)
		}
	}

	seed := uint64(time.Now().UnixNano())
	t.Logf("kill moments drawn with seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	killed := t.TempDir()
	study := tinyStudy(t, killed)
	for range 5 {
		cmd := gyre(t, killed, "sweep", study)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(50+random.IntN(1500)) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
	}
	finished := map[string]time.Time{}
	found, _ := filepath.Glob(filepath.Join(killed, "studies/tiny/runs/*/*/run.json"))
	for _, path := range found {
		if strings.Contains(string(readFile(t, path)), `"status": "done"`) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			finished[path] = info.ModTime()
		}
	}
	if code, _, stderr := runGyre(t, killed, "sweep", study); code != exitFailed || !strings.Contains(stderr, "2 of 8 runs failed") {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	if got := summary(t, killed); !reflect.DeepEqual(got, want) {
		t.Errorf("the summary differs:\n%v\nwant\n%v", got, want)
	}
	for path, before := range finished {
		if info, err := os.Stat(path); err != nil || info.ModTime() != before {
			t.Errorf("%s was finished and was run again (%v)", path, err)
		}
	}
}

func TestStudyCommandLine(t *testing.T) {
	dir := t.TempDir()
	study := tinyStudy(t, dir)
	code, stdout, stderr := runGyre(t, dir, "sweep", study, "--dry-run", "--seeds", "1", "--slots", "1", "--values", "0.5,nofilter,0.25")
	if code != exitDone || !strings.Contains(stderr, "5 runs on 1 slots") || !strings.Contains(stderr, "memory of cannot start is unknown: the policy: nowhere has no config.json") {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	for _, want := range []string{"0.5 ", "0.25 ", "nofilter ", "studies/tiny/runs/cannot_start/seed_1", "unknown", "GiB"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the list lacks %q:\n%s", want, stdout)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "studies")); !os.IsNotExist(err) {
		t.Error("a dry run wrote something")
	}
	for args, want := range map[string]string{
		"sweep":                      "usage: gyre sweep STUDY",
		"sweep study.toml extra":     "expected key=value",
		"sweep study.toml --slots 0": "--slots is 0",
		"sweep study.toml --dry-run run.steps=many": "8 of 8 runs cannot start",
		"sweep none.toml": "none.toml",
	} {
		if code, _, stderr := runGyre(t, dir, strings.Fields(args)...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("gyre %s: exit code %d, %s; want %q", args, code, stderr, want)
		}
	}
}

// Stages: the second starts from the better condition of the first.
func TestStagedStudy(t *testing.T) {
	dir := t.TempDir()
	tinyConfig(t, dir, "")
	text := `
[study]
name = "tiny"
base = "tiny.toml"
seeds = 1
threads_per_run = 1
set = ["run.steps=1", "run.validate_every=1", "analysis.enabled=false"]
[[axes]]
key = "filter.include_zero"
values = [true, false]
[[axes]]
key = "actor.lr"
values = [1e-6, 1e-5]
stage = 2
`
	if err := os.WriteFile(filepath.Join(dir, "study.toml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	mustGyre(t, dir, "sweep", "study.toml")
	rows := summary(t, dir)
	best, score := "", -1.0
	for _, row := range rows[:2] {
		if v := row["mean_last_success"].(float64); v > score {
			best, score = strings.TrimPrefix(row["condition"].(string), "stage1,"), v
		}
	}
	var state struct {
		Runs []struct{ Overrides []string }
	}
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "studies/tiny/state.json")), &state); err != nil {
		t.Fatal(err)
	}
	if len(state.Runs) != 4 {
		t.Fatalf("%d runs, want two of each stage", len(state.Runs))
	}
	for _, r := range state.Runs[2:] {
		if text := fmt.Sprint(r.Overrides); !strings.Contains(text, "filter.include_zero="+best) || !strings.Contains(text, "actor.lr=") {
			t.Errorf("a run of the second stage has %s, want filter.include_zero=%s", text, best)
		}
	}
}
