package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/internal/atomicfile"
)

// Every verb ends with the exit code that the documents give for what was wrong, and begins nothing where it is 2.
func TestExitCodesAreThoseOfTheDocuments(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "[sft]\nepisodes = 8\nvalidation_episodes = 2\nepochs = 1\nbatch = 4\n")
	mustIn(t, dir, "train", config, "run.steps=1")
	mustIn(t, dir, "model", "init", "models/policy", "--hidden", "16", "--layers", "1", "--heads", "2", "--kv-heads",
		"2", "--intermediate", "16")
	if err := os.WriteFile(filepath.Join(dir, "prompts.jsonl"), []byte(`{"ids": [5, 6]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code          int
		command, want string
	}{
		{2, "train CONFIG run.steps=1", "--resume"},
		{2, "train runs/tiny run.steps=2", "--resume"},
		{2, "sft CONFIG", "--resume"},
		{2, "train tyny.toml", "did you mean tiny.toml?"},
		{2, "train nothing/at/all.toml", "cannot be read"},
		{2, "eval runs", "runs is a directory, expected a configuration (TOML) or a run's directory"},
		{2, "train CONFIG run.name=new model.path=models/polcy", "no such model (did you mean models/policy?)"},
		{2, "sft CONFIG run.name=new model.path=models/polcy", "did you mean models/policy?"},
		{2, "sft CONFIG run.name=new model.path=models/polcy --dry-run", "did you mean models/policy?"},
		{2, "eval CONFIG model.path=models/polcy", "did you mean models/policy?"},
		{2, "analyze CONFIG --rollouts none.jsonl", "none.jsonl"},
		{2, "train CONFIG run.name=new --replay none.jsonl", "none.jsonl"},
		{2, "eval CONFIG --checkpoint none", "none"},
		{2, "eval runs/tiny runs/none", "none: not a checkpoint"},
		{2, "report runs/none", "runs/none"},
		{2, "plot runs/none", "runs/none"},
		{2, "components layers none.npz", "none.npz"},
		{2, "score --model none --input prompts.jsonl", "none"},
		{2, "score --model models/policy --input none.jsonl", "none.jsonl"},
		{2, "model info none", "none"},
		{2, "train CONFIG run.name=new model.device=cuda:99", `"cuda:99" cannot be used`},
		{2, "eval CONFIG model.device=cuda:99", `"cuda:99" cannot be used`},
		{2, "score --model models/policy --device cuda:99 --input prompts.jsonl", `"cuda:99" cannot be used`},
		{0, "train runs/tiny --resume", ""},
		{0, "sft CONFIG run.name=new --dry-run", ""},
	} {
		code, _, stderr := runIn(t, dir, strings.Fields(strings.ReplaceAll(c.command, "CONFIG", config))...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("gyre %s: exit code %d, want %d with %q in\n%s", c.command, code, c.code, c.want, stderr)
		}
		if atomicfile.Exists(dir, "runs/new") {
			t.Fatalf("gyre %s left a run directory", c.command)
		}
	}
}

// A run's directory stands for its configuration: resumed, evaluated and analysed by its name alone, from any working
// directory.
func TestRunsByTheirName(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	mustIn(t, dir, "train", config, "run.steps=1", "run.validate_every=1", "actor.lr=2e-3")
	whole := mustIn(t, dir, "train", config, "run.steps=2", "run.validate_every=1", "actor.lr=2e-3", "run.name=whole")
	if stdout := mustIn(t, t.TempDir(), "train", filepath.Join(dir, "runs/tiny"), "--resume",
		"run.steps=2"); strings.TrimSpace(stdout) != filepath.Join(dir, "runs/tiny") {
		t.Errorf("printed %q", stdout)
	}
	sameRun(t, filepath.Join(dir, strings.TrimSpace(whole)), filepath.Join(dir, "runs/tiny"))
	if text := string(readFile(t, filepath.Join(dir, "runs/tiny/config.toml"))); !strings.Contains(text, "steps = 2") ||
		!strings.Contains(text, "lr = 0.002") {
		t.Errorf("the configuration of the resumed run is\n%s", text)
	}
	if got, want := mustIn(t, dir, "eval", "runs/tiny"),
		mustIn(t, dir, "eval", config, "--checkpoint", "runs/tiny/global_step_2"); got != want {
		t.Errorf("eval of the run:\n%s\nand of its newest checkpoint:\n%s", got, want)
	}
	steps := []string{"runs/tiny/global_step_2", "runs/whole/global_step_2"}
	got := mustIn(t, dir, append([]string{"eval", "runs/tiny", "--json"}, steps...)...)
	for _, of := range steps { // which their last folders do not tell apart
		if !strings.Contains(got, `"checkpoint":"`+of+`"`) {
			t.Errorf("no %s in\n%s", of, got)
		}
	}
	if got := mustIn(t, dir, "analyze", "runs/tiny", "--json"); !strings.Contains(got, `"step":2,`) {
		t.Errorf("analyze of the run: %.200s", got)
	}
}
