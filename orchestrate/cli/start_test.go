package cli

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/run/rundir"
)

// broken is a copy of the tiny policy with one file changed.
func broken(t *testing.T, name string, change func(text string) string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "policy")
	if err := os.CopyFS(dir, os.DirFS(tinyPolicy(t))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(change(string(readFile(t, path)))), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What a run would refuse at its start, its dry run refuses too, and neither leaves anything.
func TestDryRunRefusesWhatTheRunWould(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	t.Chdir(dir)
	chat := filepath.Join(dir, "chat.jinja")
	for file, text := range map[string]string{chat: "{{ raise_exception('never') }}",
		filepath.Join(dir, "huge.jsonl"): `{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[[1,1e300]]}`} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	nothing := func(string) string { return "" }
	shorter := func(text string) string { return strings.Replace(text, `"hidden_size": 16`, `"hidden_size": 24`, 1) }
	for name, x := range map[string]struct {
		want string
		args []string
	}{
		"positions": {"rollout.max_length = 100000", []string{"rollout.max_length=100000"}},
		"tokenizer": {"tokenizer", []string{"model.path=" + broken(t, "tokenizer.json", nothing)}},
		"vocabulary": {"do not belong together", []string{"model.path=" +
			broken(t, "config.json", func(s string) string {
				return strings.Replace(s, `"vocab_size": 300`,
					`"vocab_size": 200`, 1)
			})}},
		"template":  {"never", []string{"model.chat_template=" + chat}},
		"weights":   {"model.safetensors", []string{"model.path=" + broken(t, "config.json", shorter)}},
		"critic":    {"critic", []string{"critic.path=nowhere"}},
		"reference": {"KL reference", []string{"algorithm.kl_coef=0.1", "model.reference=nowhere"}},
		"cache": {"engine.kv_mib = 1", []string{"engine.kv_mib=1", "rollout.max_length=1000", "model.path=" +
			wide(t)}},
		"environment": {"no 6x6 level", []string{"envs.0.options.boxes=40"}},
		"temperature": {"rollout.temperature", []string{"rollout.temperature=1e-9"}},
		"checkpoint":  {"global_step_7", []string{"--resume-from", "runs/global_step_7"}},
		"episodes":    {"1e+300", []string{"--replay", filepath.Join(dir, "huge.jsonl")}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range [][]string{{"--dry-run"}, nil} {
				code, stdout, stderr := runHere(t, append(append([]string{"train", config}, x.args...), mode...)...)
				if code == 0 || stdout != "" || !strings.Contains(stderr, x.want) {
					t.Errorf("%v: exit code %d, want %q in\n%s", mode, code, x.want, stderr)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "runs")); err == nil {
				entries, _ := os.ReadDir(filepath.Join(dir, "runs"))
				if len(entries) > 0 {
					t.Errorf("left %v", entries)
				}
			}
		})
	}
}

// wide is a policy whose keys and values take 4 KiB per token.
func wide(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "wide")
	mustIn(t, t.TempDir(), "model", "init", dir, "--hidden", "256", "--layers", "2", "--heads", "2", "--kv-heads", "2",
		"--intermediate", "32", "--vocab", "300")
	return dir
}

// A dry run of a run that can start writes nothing, and says which directory is taken.
func TestDryRunOfARunThatCanStart(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	stdout := mustIn(t, dir, "train", config, "run.steps=1", "--dry-run")
	if _, err := os.Stat(filepath.Join(dir, "runs")); err == nil || !strings.Contains(stdout, `advantage = "gae"`) {
		t.Errorf("a dry run wrote runs (%v) or printed %q", err, stdout)
	}
	mustIn(t, dir, "train", config, "run.steps=1")
	if string(readFile(t, filepath.Join(dir, "runs/tiny/config.toml"))) != strings.TrimSuffix(stdout, "\n") {
		t.Error("the run's configuration is not what its dry run printed")
	}
	if code, _, stderr := runIn(t, dir, "train", config, "run.steps=1", "--dry-run"); code == 0 ||
		!strings.Contains(stderr, "--resume") {
		t.Errorf("the directory is taken, but the dry run ends with %d\n%s", code, stderr)
	}
	mustIn(t, dir, "train", config, "run.steps=2", "--resume", "--dry-run")
}

// Every configuration that comes with Gyre says how to get the model it names, or the data that it needs before.
func TestConfigurationsSayWhereModelsComeFrom(t *testing.T) {
	files, err := filepath.Glob("../../configs/*.toml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d configurations, %v", len(files), err)
	}
	for i := range files {
		if files[i], err = filepath.Abs(files[i]); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(t.TempDir())
	for _, path := range files {
		for _, verb := range []string{"train", "eval", "sft", "analyze"} {
			code, _, stderr := runHere(t, verb, path)
			data := ""
			for _, set := range []string{"gsm8k", "math500"} {
				if strings.Contains(string(readFile(t, path)), "data/"+set+"/") {
					data = set
				}
			}
			hinted := strings.Contains(stderr, "gyre model init models/") ||
				strings.Contains(stderr, "bash scripts/get-smollm2.sh")
			if filepath.Base(path) == "demo.toml" {
				hinted = strings.Contains(stderr, "`make demo` makes it")
			}
			if data != "" {
				hinted = strings.Contains(stderr,
					"data/"+data+"/train.parquet: file does not exist: `gyre data prepare "+data+"` makes it")
			}
			if strings.Contains(string(readFile(t, path)), "data/chain_sum/") {
				hinted = strings.Contains(stderr, "data/chain_sum/train.jsonl: file does not exist") &&
					strings.Contains(stderr, "scripts/get-reasoning-gym.py")
			}
			if code == 0 || !hinted {
				t.Errorf("gyre %s %s: exit code %d\n%s", verb, path, code, stderr)
			}
		}
	}
}

// What a run would have made is named with what makes it, and a model of a known organisation with its whole name.
func TestMissingPathsSayWhatMakesThem(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	t.Chdir(dir)
	if err := os.WriteFile(filepath.Join(dir, "rows.jsonl"), []byte(`{"question": "1+1?", "answer": "2"}`),
		0o644); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"train CONFIG model.path=runs/sft/global_step_5/actor": "`gyre sft` saves it in step 5 of the run runs/sft",
		"train CONFIG model.path=runs/warm/best/actor": "`gyre sft` with run.name=warm leaves its best epoch " +
			"there",
		"train CONFIG model.path=models/Qwen2.5-3B": "`gyre model pull Qwen/Qwen2.5-3B models/Qwen2.5-3B`",
		"generate --model runs/tiny/global_step_35/actor": "`gyre train` or `gyre sft` saves it in step 35 of " +
			"the run runs/tiny",
		"eval CONFIG --checkpoint runs/tiny":                  "`gyre train` or `gyre sft` makes a run's directory",
		"analyze CONFIG --checkpoint runs/tiny/global_step_2": "saves global_step_N folders there",
		"report runs/tiny":                                    "`gyre train` makes one",
		"analyze CONFIG --checkpoint models/policy": "`gyre model init` and " +
			"`gyre model pull` make a model's",
		"model info models/smollm2-135m-instruct":              "bash scripts/get-smollm2.sh",
		"model convert SmolLM2-135M-Instruct.Q4_1.gguf models": "bash scripts/get-smollm2.sh",
		"model info models/policy": "`gyre model init " +
			"models/policy`",
		"data prepare gsm8k --input FOLDER": "--input: stat FOLDER",
		`train CONFIG envs.0.tag=Dataset envs.0.options={file="my/math500/test.jsonl"}`: "`gyre data prepare math500 " +
			"--output my/math500` makes it",
		`train CONFIG envs.0.tag=Dataset envs.0.options={file="mine.jsonl"}`:                                             "`gyre data prepare --help`",
		`train CONFIG envs.0.tag=Dataset envs.0.options={file="rows.jsonl",max_prompt_length=9,tokenizer="models/none"}`: "option tokenizer: models/none",
	} {
		code, _, stderr := runHere(t, strings.Fields(strings.ReplaceAll(command, "CONFIG", config))...)
		if code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("gyre %s: exit code %d, want %q in\n%s", command, code, want, stderr)
		}
	}
}

// A run that is done is not changed by overrides that are then ignored, and a resumed one keeps its model.
func TestFinishedRunsStayAsTheyAre(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	mustIn(t, dir, "train", config, "run.steps=2")
	run := filepath.Join(dir, "runs/tiny")
	before := contents(t, run)
	code, stdout, stderr := runIn(t, dir, "train", config, "run.steps=2", "--resume", "actor.lr=0.5", "run.seed=9")
	if code != 0 || strings.TrimSpace(stdout) != "runs/tiny" || !strings.Contains(stderr, "nothing is changed") {
		t.Errorf("exit code %d, %q\n%s", code, stdout, stderr)
	}
	for path, text := range contents(t, run) {
		if !strings.HasSuffix(path, "log.txt") && !strings.HasSuffix(path, ".lock") && text != before[path] {
			t.Errorf("%s was changed", path)
		}
	}
	other := filepath.Join(dir, "other")
	if err := os.CopyFS(other, os.DirFS(tinyPolicy(t))); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--resume"}, {"--resume-from", "runs/tiny/global_step_2", "run.name=next"},
		{"--resume", "--dry-run"}} {
		code, _, stderr := runIn(t, dir, append([]string{"train", config, "run.steps=3", "model.path=" + other},
			args...)...)
		if code != 1 || !strings.Contains(stderr, "model.path = ") || !strings.Contains(stderr, "global_step_2/actor") {
			t.Errorf("%v with another model: exit code %d\n%s", args, code, stderr)
		}
	}
	link := filepath.Join(dir, "link") // the same model by another name
	if err := os.Symlink(tinyPolicy(t), link); err != nil {
		t.Fatal(err)
	}
	mustIn(t, dir, "train", config, "run.steps=3", "--resume", "model.path="+link)
}

// The record of a supervised run is the configuration that was given, and its hash is that of the file.
func TestSFTRecordsItsConfiguration(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir,
		"[sft]\nepisodes = 8\nvalidation_episodes = 2\nepochs = 1\nbatch = 4\n[algorithm]\nkl_coef = 0.125\n")
	resolved := mustIn(t, dir, "train", config, "--dry-run")
	mustIn(t, dir, "sft", config)
	text := readFile(t, filepath.Join(dir, "runs/tiny/config.toml"))
	if string(text) != strings.TrimSuffix(resolved, "\n") {
		t.Errorf("recorded\n%s\nwant\n%s", text, resolved)
	}
	var info rundir.Info
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "runs/tiny/run.json")), &info); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(text)); info.ConfigSHA256 != want ||
		!strings.Contains(string(text), `advantage = "gae"`) ||
		!strings.Contains(string(text), "kl_coef = 0.125") {
		t.Errorf("hash %s, want %s", info.ConfigSHA256, want)
	}
}

// The last step is validated whatever validate_every divides, and a policy that learns nothing is told why and what to
// do.
func TestTheEndOfARun(t *testing.T) {
	dir := t.TempDir()
	code, _, stderr := runIn(t, dir, "train", tinyConfig(t, dir, ""), "run.steps=2", "run.validate_every=5",
		"rollout.max_tokens=1", "filter.include_zero=false",
		"filter.value=0.9", "early_stop.empty_steps=0")
	if code != 0 || !strings.Contains(stderr, "no reply named a valid action") ||
		!strings.Contains(stderr, "gyre sft") || !strings.Contains(stderr, "is the one that the run began with") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	values := steadyMetrics(t, filepath.Join(dir, "runs/tiny/metrics.jsonl"))
	if _, ok := values[2]["val-env/sokoban/success"]; !ok {
		t.Error("the last step was not validated")
	}
	if _, ok := values[1]["val-env/sokoban/success"]; ok {
		t.Error("step 1 was validated")
	}
	never := t.TempDir()
	mustIn(t, never, "train", tinyConfig(t, never, ""), "run.steps=1", "run.validate_every=0",
		"run.validate_first=false")
	if _, ok := steadyMetrics(t, filepath.Join(never, "runs/tiny/metrics.jsonl"))[1]["val-env/sokoban/success"]; ok {
		t.Error("validate_every = 0 was ignored")
	}
}

// A run that diverges ends with 3, says so, and leaves the last checkpoint from before.
func TestDivergenceKeepsTheLastGoodCheckpoint(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	mustIn(t, dir, "train", config, "run.steps=2", "checkpoint.keep=1")
	code, _, stderr := runIn(t, dir, "train", config, "run.steps=6", "checkpoint.keep=1", "--resume", "actor.lr=1e4",
		"actor.clip_grad=0", "filter.strategy=none",
		"early_stop.empty_steps=2")
	if code != 3 || !strings.Contains(stderr, "training diverged") {
		t.Fatalf("exit code %d, want 3\n%s", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "runs/tiny/global_step_2/manifest.json")); err != nil {
		t.Errorf("the last good checkpoint: %v", err)
	}
}

// Steps whose gradients are analysed can leave checkpoints that stay.
func TestAnalysedCheckpointsStay(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	mustIn(t, dir, "train", config, "run.steps=4", "run.save_every=0", "checkpoint.keep=1", "checkpoint.analysed=true",
		"analysis.every=2")
	found, err := filepath.Glob(filepath.Join(dir, "runs/tiny/global_step_*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range found {
		found[i] = filepath.Base(path)
	}
	if got := strings.Join(found, " "); got != "global_step_1 global_step_3 global_step_4" {
		t.Errorf("left are %s", got)
	}
}

func TestHelpVersionAndCompletions(t *testing.T) {
	dir := t.TempDir()
	for _, x := range []struct{ args, want string }{
		{"help", "COMMANDS"}, {"help train", "--replay"}, {"help model convert", "--dtype"}, {"version", "go1."},
		{"completion bash", "complete -o"}, {"completion zsh", "#compdef gyre"},
		{"completion fish", "complete -c gyre"},
		{"train --generate-bash-completion", ""}, {"--generate-bash-completion", "analyze"},
	} {
		if stdout := mustIn(t, dir, strings.Fields(x.args)...); !strings.Contains(stdout, x.want) {
			t.Errorf("gyre %s printed %q", x.args, stdout)
		}
	}
	for args, want := range map[string]string{"help trian": "train", "completion bsh": "bash"} {
		if code, _, stderr := runIn(t, dir, strings.Fields(args)...); code != 2 ||
			!strings.Contains(stderr, "did you mean "+want) {
			t.Errorf("gyre %s: exit code %d, %s", args, code, stderr)
		}
	}
}
