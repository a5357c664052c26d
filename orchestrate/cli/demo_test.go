package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/internal/exitcode"
)

// A small demo goes from nothing to its closing words, and again from what it left.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	args := []string{"demo", "sft.episodes=40", "sft.validation_episodes=10", "run.steps=1", "envs.0.groups=4",
		"actor.mini_batch=8",
		"validation.envs.0.groups=8", "analysis.groups=8"}
	for _, again := range []bool{false, true} {
		code, stdout, stderr := runIn(t, dir, args...)
		if code != exitcode.Done {
			t.Fatalf("exit code %d\n%s", code, stderr)
		}
		for _, want := range []string{"random moves", "before training", "after training", "#",
			"gyre eval runs/demo"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("again=%v: the output lacks %q:\n%s", again, want, stdout)
			}
		}
		if again && strings.Contains(stderr, "demonstrations") {
			t.Errorf("the warm start was repeated:\n%s", stderr)
		}
	}
	for _, name := range []string{"configs/demo.toml", "runs/demo/report.html", "runs/demo-analysis/signal.png"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
