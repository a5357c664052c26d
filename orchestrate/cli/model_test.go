package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/internal/exitcode"
)

func TestModelCommands(t *testing.T) {
	parent := t.TempDir()
	first, second := filepath.Join(parent, "first"), filepath.Join(parent, "second")
	corpus := filepath.Join(parent, "corpus.txt")
	if err := os.WriteFile(corpus, []byte(strings.Repeat("Up || Left || Down ", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	models := "../loop/trainer/testdata/pytorch/"
	fixture := "../model/checkpoint/convert/testdata/llama.gguf"
	sizes := []string{"--hidden", "16", "--layers", "1", "--heads", "2", "--kv-heads", "1", "--intermediate", "8",
		"--vocab", "270", "--corpus", corpus}
	for _, c := range []struct {
		args string
		code int
		want string // in stdout, or in stderr when the code is not 0
	}{
		{"model init " + first + " " + strings.Join(sizes, " "), exitcode.Done, "a llama policy of 0.0"},
		{"model info " + first, exitcode.Done, "tied"},
		{"model init " + filepath.Join(parent, "student") + " --tokenizer " + first + " --hidden 16", exitcode.Done,
			", 270 tokens"},
		{"model init " + filepath.Join(parent, "third") + " --tokenizer " + first + " --vocab 300", exitcode.Usage,
			"the tokenizer is that of " + first},
		{"model init " + filepath.Join(parent, "third") + " --tokenizer " + parent, exitcode.Failed, "no config.json"},
		{"model info --json " + first, exitcode.Done, `"layers": 1`},
		{"model init " + first, exitcode.Failed, "is not empty"},
		{"model init " + first + " --force --untied --family qwen2 " + strings.Join(sizes, " "), exitcode.Done,
			"a qwen2 policy"},
		{"model info --tensors " + first, exitcode.Done, "lm_head.weight"},
		{"model convert " + first + " " + second + " --dtype bfloat16", exitcode.Done, "as bfloat16"},
		{"model convert " + fixture + " " + second, exitcode.Failed, "is not empty"},
		{"model convert " + fixture + " " + second + " --force", exitcode.Done, "as float32"},
		{"model convert " + corpus + " " + filepath.Join(parent, "third"), exitcode.Failed, "expected a .gguf file"},
		{"model convert " + fixture + " " + second + " --dtype int4", exitcode.Usage, "--dtype"},
		{"model merge " + models + "lora/llama --base " + models + "llama " + second + " --force", exitcode.Done, "as float32"},
		{"model merge " + models + "lora/llama --base " + models + "qwen3 " + filepath.Join(parent, "third"), exitcode.Failed,
			"the adapters do not fit the base model (qwen3"},
		{"model merge " + first + " --base " + models + "llama " + second, exitcode.Failed, "is not empty"},
		{"model merge " + first + " --base " + models + "llama " + filepath.Join(parent, "third"), exitcode.Failed,
			"no adapter"},
		{"model convert " + fixture, exitcode.Usage, "takes FILE.gguf|DIR TARGET"},
		{"model init " + filepath.Join(parent, "third") + " --heads 3", exitcode.Usage, "multiple of the heads"},
		{"model info " + parent, exitcode.Failed, "no config.json"},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), newApp(commands(), &out, &errs),
			append([]string{"gyre"}, strings.Fields(c.args)...))
		text := out.String()
		if c.code != exitcode.Done {
			text = errs.String()
		}
		if code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("gyre %s: exit %d, stdout %q, stderr %q; want %d with %q", c.args, code, out.String(),
				errs.String(), c.code, c.want)
		}
	}
	left, err := os.ReadDir(parent)
	if err != nil || len(left) != 4 { // corpus.txt, first, second, student: failures left nothing
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Without a network, pulling a model says what else makes one, and data what to give instead; neither leaves anything
// or waits.
func TestWithoutAHub(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HF_ENDPOINT", "http://127.0.0.1:9") // nobody listens on "discard"
	for command, want := range map[string][]string{
		"model pull Qwen/Qwen2.5-0.5B-Instruct": {"no way to the hub http://127.0.0.1:9", "HF_ENDPOINT",
			"models/Qwen2.5-0.5B-Instruct", "bash scripts/get-smollm2.sh",
			"gyre model init models/Qwen2.5-0.5B-Instruct"},
		"data prepare gsm8k --output sets": {"no way to the hub http://127.0.0.1:9", "datasets/openai/gsm8k/",
			"--input"},
		"data prepare math500": {"no way to the hub http://127.0.0.1:9", "MATH-500/resolve/main/test.jsonl",
			"--input"},
	} {
		code, stdout, stderr := runIn(t, dir, strings.Fields(command)...)
		for _, text := range want {
			if code != 1 || stdout != "" || !strings.Contains(stderr, text) {
				t.Errorf("gyre %s: exit code %d, want %q in\n%s", command, code, text, stderr)
			}
		}
		if left := contents(t, dir); len(left) > 0 {
			t.Errorf("gyre %s left %v", command, left)
		}
	}
}
