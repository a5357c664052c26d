package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestModelCommands(t *testing.T) {
	parent := t.TempDir()
	first, second := filepath.Join(parent, "first"), filepath.Join(parent, "second")
	corpus := filepath.Join(parent, "corpus.txt")
	if err := os.WriteFile(corpus, []byte(strings.Repeat("Up || Left || Down ", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	fixture := "../checkpoint/convert/testdata/llama.gguf"
	sizes := []string{"--hidden", "16", "--layers", "1", "--heads", "2", "--kv-heads", "1", "--intermediate", "8", "--vocab", "270", "--corpus", corpus}
	for _, c := range []struct {
		args string
		code int
		want string // in stdout, or in stderr when the code is not 0
	}{
		{"model init " + first + " " + strings.Join(sizes, " "), exitDone, "a llama policy of 0.0"},
		{"model info " + first, exitDone, "tied"},
		{"model info --json " + first, exitDone, `"layers": 1`},
		{"model init " + first, exitFailed, "is not empty"},
		{"model init " + first + " --force --untied --family qwen2 " + strings.Join(sizes, " "), exitDone, "a qwen2 policy"},
		{"model info --tensors " + first, exitDone, "lm_head.weight"},
		{"model convert " + first + " " + second + " --dtype bfloat16", exitDone, "as bfloat16"},
		{"model convert " + fixture + " " + second, exitFailed, "is not empty"},
		{"model convert " + fixture + " " + second + " --force", exitDone, "as float32"},
		{"model convert " + corpus + " " + filepath.Join(parent, "third"), exitFailed, "expected a .gguf file"},
		{"model convert " + fixture + " " + second + " --dtype int4", exitUsage, "--dtype"},
		{"model convert " + fixture, exitUsage, "needs FILE.gguf|DIR TARGET"},
		{"model init " + filepath.Join(parent, "third") + " --heads 3", exitUsage, "multiple of the heads"},
		{"model info " + parent, exitFailed, "no config.json"},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), newApp(commands(), &out, &errs), append([]string{"gyre"}, strings.Fields(c.args)...))
		text := out.String()
		if c.code != exitDone {
			text = errs.String()
		}
		if code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("gyre %s: exit %d, stdout %q, stderr %q; want %d with %q", c.args, code, out.String(), errs.String(), c.code, c.want)
		}
	}
	left, err := os.ReadDir(parent)
	if err != nil || len(left) != 3 { // corpus.txt, first, second: failures left nothing
		t.Errorf("left behind: %v, %v", left, err)
	}
}
