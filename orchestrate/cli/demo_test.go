package cli

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gyre/internal/exitcode"
)

var demonstrated struct {
	once        sync.Once
	dir, stdout string
}

// demoArgs are the demo in a small form.
var demoArgs = []string{"demo", "sft.episodes=40", "sft.validation_episodes=10", "run.steps=2", "envs.0.groups=4",
	"actor.mini_batch=8", "validation.envs.0.groups=8", "analysis.groups=8"}

// smallDemo is the folder of such a demo and what it said. It runs once for all tests.
func smallDemo(t *testing.T) (dir, stdout string) {
	t.Helper()
	demonstrated.once.Do(func() {
		dir := filepath.Join(filepath.Dir(tinyPolicy(t)), "demo")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		demonstrated.stdout = mustIn(t, dir, demoArgs...)
		demonstrated.dir = dir
	})
	if demonstrated.dir == "" {
		t.Fatal("the demo failed in another test")
	}
	return demonstrated.dir, demonstrated.stdout
}

// A small demo goes from nothing to its closing words, and again from what it left.
func TestDemo(t *testing.T) {
	dir, stdout := smallDemo(t)
	for _, again := range []bool{false, true} {
		if again {
			var code int
			var stderr string
			if code, stdout, stderr = runIn(t, dir, demoArgs...); code != exitcode.Done {
				t.Fatalf("exit code %d\n%s", code, stderr)
			} else if strings.Contains(stderr, "demonstrations") {
				t.Errorf("the warm start was repeated:\n%s", stderr)
			}
		}
		for _, want := range []string{"random moves", "before training", "after training", "#",
			"gyre eval runs/demo"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("again=%v: the output lacks %q:\n%s", again, want, stdout)
			}
		}
	}
	for _, name := range []string{"configs/demo.toml", "runs/demo/report.html", "runs/demo-analysis/signal.png"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
