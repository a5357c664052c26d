package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gyre/internal/atomicfile"
	"gyre/internal/dataset"
	"gyre/orchestrate/compat/translate"
)

// qwen puts the configurations of Qwen2.5's sizes, without weights and with a tiny tokenizer, where `gyre model pull`
// would put the models.
func qwen(t *testing.T, dir string) []string {
	t.Helper()
	var paths []string
	for _, s := range []struct {
		name                                           string
		hidden, intermediate, layers, heads, kv, vocab int
		tie                                            bool
	}{
		{"0.5B", 896, 4864, 24, 14, 2, 151936, true}, {"1.5B", 1536, 8960, 28, 12, 2, 151936, true},
		{"3B", 2048, 11008, 36, 16, 2, 151936, true}, {"7B", 3584, 18944, 28, 28, 4, 152064, false},
	} {
		path := filepath.Join("models", "Qwen2.5-"+s.name+"-Instruct")
		target := filepath.Join(dir, path)
		if err := os.CopyFS(target, os.DirFS(tinyPolicy(t))); err != nil {
			t.Fatal(err)
		}
		config := fmt.Sprintf(`{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d,
"num_attention_heads": %d, "num_key_value_heads": %d, "vocab_size": %d, "tie_word_embeddings": %v, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
"rms_norm_eps": 1e-06, "bos_token_id": 0, "eos_token_id": 2, "torch_dtype": "bfloat16"}`, s.hidden, s.intermediate, s.layers, s.heads, s.kv, s.vocab, s.tie)
		if err := os.WriteFile(filepath.Join(target, "config.json"), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(target, "model.safetensors")); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// Twenty-five turns at every size, as far as that goes without weights.
func TestEvaluationsAreReady(t *testing.T) {
	dir := t.TempDir()
	config, err := filepath.Abs("../../configs/sokoban_25_turns.toml")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"eval", config, "--dry-run", "--by-turns", "out", "--checkpoint", "tiny=" + tinyPolicy(t),
		"rollout.max_length=512"}
	for _, path := range qwen(t, dir) {
		args = append(args, "--checkpoint", path)
	}
	stdout := mustIn(t, dir, args...)
	for _, want := range []string{`tiny +0\.0\d M +256 +25 +512 +0\.\d GiB +there\n`,
		`Qwen2\.5-0\.5B-Instruct +494 M +256 +25 .* not there`, `Qwen2\.5-7B-Instruct +7616 M +256 `} {
		if !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("want %s in\n%s", want, stdout)
		}
	}
	if atomicfile.Exists(dir, "out") {
		t.Error("a dry run wrote something")
	}
	for words, want := range map[string]string{"--checkpoint nowhere": "nowhere",
		"--random": "--random excludes --dry-run"} {
		if code, _, stderr := runIn(t, dir, append([]string{"eval", config, "--dry-run"},
			strings.Fields(words)...)...); code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", words, code, stderr)
		}
	}
}

// Every experiment passes all that a run would check at its start, RAGEN's base matrix at every size of its model.
func TestEveryExperimentIsReady(t *testing.T) {
	dir := t.TempDir()
	sizes := qwen(t, dir)
	dataSets(t, dir)
	var files []string
	for _, pattern := range []string{"../../configs/*.toml", "../../configs/base/*.toml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no files (%v)", pattern, err)
		}
		for _, file := range found {
			path, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, path)
		}
	}
	t.Chdir(dir)
	for _, path := range files {
		models := sizes[:1]
		switch {
		case strings.Contains(path, "base/sokoban"):
			models = sizes
		case strings.Contains(path, "/base/"):
			models = []string{sizes[0], sizes[2]}
		}
		for _, model := range models {
			code, stdout, stderr := runHere(t, "train", path, "model.path="+model, "--dry-run")
			if code != 0 || !strings.Contains(stdout, "[run]") || !strings.Contains(stderr, "memory") {
				t.Errorf("%s on %s: exit code %d\n%s", path, model, code, stderr)
			}
		}
	}
}

// dataSets makes the files that the experiments on data sets name, with one row each, and the models that measure their
// prompts.
func dataSets(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"Qwen2.5-3B-Instruct", "Qwen2.5-1.5B-Instruct", "smollm2-135m-instruct"} {
		link := filepath.Join(dir, "models", name)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(link); err == nil {
			continue
		}
		if err := os.Symlink(tinyPolicy(t), link); err != nil {
			t.Fatal(err)
		}
	}
	rows := []dataset.Training{{Prompt: []dataset.Message{{Role: "user", Content: "1+1?"}},
		RewardModel: dataset.RewardModel{GroundTruth: "2"}}}
	for _, name := range []string{"math500/train.parquet", "math500/test.parquet", "gsm8k/train.parquet",
		"gsm8k/test.parquet",
		"chain_sum/train.jsonl", "chain_sum/test.jsonl"} {
		if err := dataset.Write(filepath.Join(dir, "data", name), rows); err != nil {
			t.Fatal(err)
		}
	}
}

// The base matrix is what train.sh makes of the commands that stand in its files.
func TestBaseMatrixFollowsItsCommands(t *testing.T) {
	files, err := filepath.Glob("../../configs/base/*.toml")
	if err != nil || len(files) != 9 {
		t.Fatalf("%d files (%v), want three environments with thinking, without and supervised", len(files), err)
	}
	for _, file := range files {
		text := string(readFile(t, file))
		_, command, found := strings.Cut(text, "bash train.sh ")
		command, _, _ = strings.Cut(command, "\n")
		result, err := translate.Words(append([]string{"--train-sh"}, strings.Fields(command)...))
		if err != nil || !found {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if i := strings.Index(text, "[run]"); text[max(i, 0):] != string(result.Document) {
			t.Errorf("%s is not what its command becomes:\n%s", file, result.Document)
		}
	}
}
