package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigTranslate(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "mine.toml")
	code, stdout, stderr := runGyre(t, dir, "config", "translate", "python", "train.py", "--config-name", "_2_sokoban", "trainer.gradient_analysis_every=50",
		"es_manager.train.env_groups=4", "trainer.resume_mode=auto", "trainer.nnodes=2", "model_path="+tinyPolicy(t), "-o", file)
	if code != 0 || stdout != "" || !strings.Contains(stderr, "no counterpart: trainer.nnodes=2: ") || !strings.Contains(stderr, "gyre train "+file+" --resume") {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if text := string(readFile(t, file)); !strings.Contains(text, "every = 50") || !strings.Contains(text, "groups = 4") {
		t.Errorf("the document is\n%s", text)
	}
	mustGyre(t, dir, "train", file, "--dry-run")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"expected rows and columns", []string{"es_manager.train.env_configs.tags=[sokoban]", "custom_envs.sokoban.env_config.size=7x"}},
		{"exclude one another", []string{"--config-name", "base", "--train-sh", "sokoban"}},
		{"nothing to translate", nil},
	} {
		code, stdout, stderr := runGyre(t, dir, append([]string{"config", "translate"}, c.args...)...)
		if code != 2 || stdout != "" {
			t.Errorf("%v: exit code %d, want 2 with %q\n%s%s", c.args, code, c.want, stdout, stderr)
		}
	}
}
