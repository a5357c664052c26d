package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gyre/internal/exitcode"
	"gyre/orchestrate/run/metrics"
)

// steadyMetrics reads a run's metrics without those that measure the machine.
func steadyMetrics(t *testing.T, path string) map[int]map[string]any {
	t.Helper()
	out := map[int]map[string]any{}
	for record, err := range metrics.Read(path) {
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]any{}
		for name, v := range record.Values {
			if !strings.HasPrefix(name, "timing_s/") && !strings.HasPrefix(name, "perf/") {
				values[name] = v
			}
		}
		out[record.Step] = values
	}
	return out
}

// sameRun holds the metrics, the episodes and the last checkpoint of a run against another's, bit for bit.
func sameRun(t *testing.T, want, got string) {
	t.Helper()
	a, b := steadyMetrics(t, filepath.Join(want, "metrics.jsonl")),
		steadyMetrics(t, filepath.Join(got, "metrics.jsonl"))
	if len(a) != len(b) {
		t.Fatalf("%d metric lines, want %d", len(b), len(a))
	}
	for step, values := range a {
		if len(values) != len(b[step]) {
			t.Errorf("step %d: %d metrics, want %d", step, len(b[step]), len(values))
		}
		for name, v := range values {
			// As text, in which NaN equals NaN, in tables too.
			if x, y := fmt.Sprint(b[step][name]), fmt.Sprint(v); x != y {
				t.Errorf("step %d: %s = %s, want %s", step, name, x, y)
			}
		}
	}
	last := fmt.Sprintf("global_step_%d/", slices.Max(slices.Collect(maps.Keys(a))))
	for _, pattern := range []string{last + "actor/*.safetensors", last + "critic/*.safetensors", last + "optimizer/*",
		"rollouts/*"} {
		files, err := filepath.Glob(filepath.Join(want, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files (%v)", pattern, err)
		}
		for _, file := range files {
			relative, _ := filepath.Rel(want, file)
			x, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			y, err := os.ReadFile(filepath.Join(got, relative))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(x, y) {
				t.Errorf("%s differs", relative)
			}
		}
	}
}

// testSeed draws from the clock so that every run of the tests tries other moments; a failure prints it, and
// GYRE_TEST_SEED repeats it.
func testSeed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("GYRE_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("GYRE_TEST_SEED: %v", err)
		}
	}
	t.Logf("drawn with seed %d: GYRE_TEST_SEED=%d repeats it", seed, seed)
	return seed
}

// A run that is killed at random moments and resumed each time equals an undisturbed one, bit for bit.
func TestKilledRunsResumeExactly(t *testing.T) {
	calm, stormy := t.TempDir(), t.TempDir()
	mustIn(t, calm, "train", tinyConfig(t, calm, ""))
	config := tinyConfig(t, stormy, "")
	runs := filepath.Join(stormy, "runs")
	s := storm{random: rand.New(rand.NewPCG(testSeed(t), 1)), log: filepath.Join(runs, "tiny/log.txt"),
		least: 50 * time.Millisecond, most: 750 * time.Millisecond}
	for !s.over(t, orThorough(10, 40)) {
		if !s.strike(t, gyre(t, stormy, "train", config, "--resume")) {
			continue
		}
		// It got through between two kills: start over, so that all hit a working run.
		sameRun(t, filepath.Join(calm, "runs/tiny"), filepath.Join(runs, "tiny"))
		if err := os.RemoveAll(runs); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d kills, %d of them of a run at work", s.kills, s.atWork)
	mustIn(t, stormy, "train", config, "--resume")
	sameRun(t, filepath.Join(calm, "runs/tiny"), filepath.Join(stormy, "runs/tiny"))
}

// Ctrl-C once: the step is finished and saved, the exit code is 130, and the run can be continued.
func TestInterruptSavesAndExits130(t *testing.T) {
	calm, dir := t.TempDir(), t.TempDir()
	mustIn(t, calm, "train", tinyConfig(t, calm, ""))
	config := tinyConfig(t, dir, "")
	cmd := gyre(t, dir, "train", config, "checkpoint.keep=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, cmd, filepath.Join(dir, "runs/tiny/rollouts/step_2.jsonl"))
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 130 {
		t.Fatalf("interrupted run ended with %v, want exit code 130", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "runs/tiny/global_step_*")); len(left) != 1 {
		t.Errorf("with checkpoint.keep = 1, %v are left", left)
	}
	mustIn(t, dir, "train", config, "--resume")
	sameRun(t, filepath.Join(calm, "runs/tiny"), filepath.Join(dir, "runs/tiny"))
}

// waitFor waits for a file of a command that has been started, nil where somebody else waits for its end. One that has
// ended will not write it, and says why.
func waitFor(t *testing.T, cmd *exec.Cmd, path string) {
	t.Helper()
	for range 3600 { // three minutes: other programs may be running
		if _, err := os.Stat(path); err == nil {
			return
		}
		if cmd != nil {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
			if bytes.Contains(stat, []byte(") Z ")) {
				err := cmd.Wait()
				t.Fatalf("%s did not appear: the command ended (%v):\n%v", path, err, cmd.Stderr)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s did not appear", path)
}

// A run whose metrics or schedule were cut does not go on with a silent hole: what is missing is named, and nothing is
// changed.
func TestResumeNamesMissingSteps(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	mustIn(t, dir, "train", config, "run.steps=3")
	for name, cut := range map[string]map[int]string{
		"metrics.jsonl":  {0: "lacks steps 1 to 3", 2: "lacks steps 2 to 3"}, // the first line is of step 0
		"schedule.jsonl": {0: "lacks steps 1 to 3", 1: "lacks steps 2 to 3"},
	} {
		path := filepath.Join(dir, "runs/tiny", name)
		whole := readFile(t, path)
		for lines, want := range cut {
			text := strings.Join(strings.SplitAfter(string(whole), "\n")[:lines], "")
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			code, _, stderr := runIn(t, dir, "train", config, "run.steps=4", "--resume")
			if code != exitcode.Failed || !strings.Contains(stderr, name+" "+want) ||
				!strings.Contains(stderr, "--resume-from") {
				t.Errorf("exit code %d, %s; want %q", code, stderr, want)
			}
			if left := readFile(t, path); string(left) != text {
				t.Errorf("the file was changed: %s", left)
			}
		}
		if err := os.WriteFile(path, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mustIn(t, dir, "train", config, "run.steps=4", "--resume", `run.loggers=["jsonl", "tensorboard"]`)
	mustIn(t, dir, "train", config, "run.steps=5", "--resume-from", "runs/tiny/global_step_4", "run.name=further")
	mustIn(t, dir, "train", config, "run.steps=6", "--resume", "run.name=further")
}

// A run whose folder is removed, or replaced by another's, while it runs ends with an error, and writes nothing there.
func TestRunWithoutItsFolderFails(t *testing.T) {
	for _, replace := range []bool{false, true} {
		dir := t.TempDir()
		run := filepath.Join(dir, "runs/tiny")
		cmd := gyre(t, dir, "train", tinyConfig(t, dir, ""), "run.steps=400")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, cmd, filepath.Join(run, "rollouts/step_2.jsonl"))
		if err := os.Rename(run, run+" before"); err != nil {
			t.Fatal(err)
		}
		if replace {
			if err := errors.Join(os.MkdirAll(run, 0o755), os.WriteFile(filepath.Join(run, ".lock"), nil, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != exitcode.Failed ||
			!strings.Contains(stderr.String(), "was removed or replaced while the run wrote in it") {
			t.Errorf("exit code %d: %s", code, stderr.String())
		}
		if _, err := os.Stat(filepath.Join(run, "run.json")); err == nil {
			t.Error("it has written its end into the other folder")
		}
	}
}

// A run that goes on without its moments does not call that a continuation: it says what is missing, for each model.
func TestInexactResumesSaySo(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	for name, x := range map[string]struct {
		set  string
		want []string
	}{
		"exact": {"run.seed=1", []string{"continuing from runs/exact/global_step_1"}},
		"weights": {"checkpoint.optimizer=false", []string{"the actor's optimizer starts anew",
			"the critic's optimizer starts anew"}},
	} {
		mustIn(t, dir, "train", config, "run.name="+name, "run.steps=1", x.set)
		for _, how := range [][]string{{"--resume"}, {"run.name=again" + name, "--resume-from", "runs/" + name +
			"/global_step_1"}} {
			code, _, stderr := runIn(t, dir, append([]string{"train", config, "run.name=" + name, "run.steps=2", x.set},
				how...)...)
			for _, want := range x.want {
				if code != 0 || !strings.Contains(stderr, want) {
					t.Errorf("%s %v: exit code %d, want %q\n%s", name, how, code, want, stderr)
				}
			}
			inexact := strings.Contains(stderr, "not as an uninterrupted run would") &&
				!strings.Contains(stderr, "continuing from")
			if inexact == (name == "exact") {
				t.Errorf("%s %v: told\n%s", name, how, stderr)
			}
		}
	}
}

// A coefficient of the divergence in the rewards is the configuration's, in a resumed run and in an analysis of its
// checkpoint, whatever the checkpoint had. Every step says whether the sampler is the trainer, and log.txt has each
// step's whole line.
func TestThePenaltyIsTheConfigurations(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "[algorithm]\nkl_in = \"reward\"\nkl_coef = 0.125\n[filter]\nstrategy = \"none\"\n")
	mustIn(t, dir, "train", config, "run.steps=1", "run.validate_every=0")
	mustIn(t, dir, "train", config, "run.steps=2", "run.validate_every=0", "--resume", "algorithm.kl_coef=0.5")
	values := steadyMetrics(t, filepath.Join(dir, "runs/tiny/metrics.jsonl"))
	for step, want := range map[int]float64{1: 0.125, 2: 0.5} {
		if got := values[step]["actor/reward_kl_penalty_coeff"]; got != want ||
			values[step]["rollout/sampler_equals_trainer"] != 1.0 {
			t.Errorf("step %d: the coefficient is %v, want %v; the sampler is the trainer: %v", step, got, want,
				values[step]["rollout/sampler_equals_trainer"])
		}
	}
	analysed := func(coef, checkpoint string) float64 {
		found := mustIn(t, dir, "analyze", config, "algorithm.kl_coef="+coef, "rollout.format_penalty=0",
			"--checkpoint", checkpoint, "--critic", "runs/tiny", "--rollouts", "runs/tiny/rollouts/step_2.jsonl",
			"--json")
		var values map[string]any
		if err := json.Unmarshal([]byte(found), &values); err != nil {
			t.Fatal(err)
		}
		return values["grad_norm/all/task"].(float64)
	}
	weights := filepath.Join(dir, "runs/tiny/global_step_2/actor") // without the state that has a coefficient
	for _, coef := range []string{"0", "0.25"} {
		if with, without := analysed(coef, "runs/tiny"), analysed(coef, weights); with != without {
			t.Errorf("kl_coef = %s: the task's gradient of the checkpoint is %v, that of its weights %v", coef, with,
				without)
		}
	}
	log := string(readFile(t, filepath.Join(dir, "runs/tiny/log.txt")))
	for _, want := range []string{"step 1/1  ", "step 2/2  ", "update_tok/s "} {
		if !strings.Contains(log, want) {
			t.Errorf("log.txt lacks %q:\n%s", want, log)
		}
	}
}
