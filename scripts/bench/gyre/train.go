package gyre

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/trainer"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/run/metrics"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
)

// runConfig is a run of two steps, of which the first warms up.
const runConfig = `
[run]
name = "run"
steps = 2
output = %q
validate_every = 0
validate_first = false
save_every = -1
save_rollouts = "none"
[model]
path = %q
dtype = %q
[filter]
strategy = "none"
[algorithm]
advantage = "grpo"
entropy_coef = 0
[actor]
lr = 1e-7
mini_batch = %d
[analysis]
enabled = false
[early_stop]
spread_fraction = 0
low_success_count = 0
empty_steps = 0
`

// promptConfig goes on with prompts from a file, one reply each. A reply earns 1 for an even number of characters.
const promptConfig = `
[[envs]]
tag = "Dataset"
groups = %d
group_size = %d
max_turns = 1
options = { file = %q }
[[rewards]]
name = "format"
options = { pattern = '^(?s:..)*$' }
[rollout]
prompt = "compact"
think = false
max_tokens = %d
max_length = 1024
`

// grpo trains for two steps on the task's texts, as gyre train does, and reports the second one.
func (s *server) grpo(t work.Task) (worker.Figures, error) {
	folder, err := os.MkdirTemp("", "gyre-bench-")
	if err != nil {
		return worker.Figures{}, err
	}
	defer os.RemoveAll(folder)
	model, prompts := filepath.Join(folder, "model"), filepath.Join(folder, "prompts.jsonl")
	if err := plainModel(s.Model, model); err != nil {
		return worker.Figures{}, err
	}
	var rows []any
	for _, text := range slices.Concat(t.Texts...) {
		rows = append(rows, map[string]string{"problem": text, "answer": "0"})
	}
	if err := writeLines(prompts, rows); err != nil {
		return worker.Figures{}, err
	}
	groups := len(t.Texts[0])
	document := fmt.Sprintf(runConfig+promptConfig, folder, model, string(s.On.Compute), groups*t.Copies, groups,
		t.Copies, prompts, t.New)
	c, err := config.Parse("benchmark", []byte(document), []string{fmt.Sprintf("run.threads=%d", s.Threads),
		"model.device=" + s.On.Device})
	if err != nil {
		return worker.Figures{}, err
	}
	run, err := trainer.New(context.Background(), c, session.Options{Console: metrics.NewConsole(s.log)})
	if err != nil {
		return worker.Figures{}, err
	}
	defer run.Close()
	if _, err := run.Run(context.Background()); err != nil {
		return worker.Figures{}, err
	}
	step, err := lastStep(folder)
	figures := worker.Figures{Seconds: step["timing_s/step"], Parts: map[string]float64{}}
	for name, value := range step {
		if part, ok := strings.CutPrefix(name, "timing_s/"); ok {
			figures.Parts[part] = value
		}
	}
	return figures, err
}

// train has the gyre command update on given episodes, in s.Ranks processes that share the threads, and reports the
// second step: the time of its tokens, and how much of it a rank waited for others.
func (s *server) train(t work.Task) (worker.Figures, error) {
	folder, err := os.MkdirTemp("", "gyre-bench-")
	if err != nil {
		return worker.Figures{}, err
	}
	defer os.RemoveAll(folder)
	document, episodes := filepath.Join(folder, "run.toml"), filepath.Join(folder, "episodes.jsonl")
	model, err := filepath.Abs(s.Model)
	if err == nil {
		err = writeLines(episodes, givenEpisodes(t.Sequences))
	}
	if err == nil {
		text := fmt.Sprintf(runConfig+"[[envs]]\ntag = \"Bandit\"\n", folder, model, string(s.On.Compute),
			len(t.Sequences))
		err = os.WriteFile(document, []byte(text), 0o644)
	}
	program, err2 := filepath.Abs("gyre")
	if err != nil || err2 != nil {
		return worker.Figures{}, cmp.Or(err, err2)
	}
	command := exec.Command(program, "train", document, "--replay", episodes, "algorithm.kl_coef=0")
	if s.Ranks > 1 {
		command.Args = append(command.Args, "--ranks", strconv.Itoa(s.Ranks), "fsdp.shard="+t.Shard)
	}
	command.Env = append(os.Environ(), "GYRE_THREADS="+strconv.Itoa(s.Threads))
	if out, err := command.CombinedOutput(); err != nil {
		return worker.Figures{}, fmt.Errorf("%v: %w: %s", command.Args, err, out)
	}
	step, err := lastStep(folder)
	if err == nil && step["perf/update_tokens_per_s"] == 0 {
		err = fmt.Errorf("%v has logged no update", command.Args)
	}
	if err != nil {
		return worker.Figures{}, err
	}
	seconds := float64(t.Tokens()) / step["perf/update_tokens_per_s"]
	return worker.Figures{Seconds: seconds, Parts: map[string]float64{"waiting": seconds * step["perf/comm_share"]}}, nil
}

// givenEpisodes are sequences as the episodes of two groups, every second one a success; all tokens but the first are
// trained on.
func givenEpisodes(sequences [][]int32) (rows []any) {
	for i, ids := range sequences {
		mask := make([]int, len(ids))
		for k := range mask {
			mask[k] = min(k, 1)
		}
		score := float64(i % 2)
		rows = append(rows, map[string]any{"group": 2 * i / len(sequences), "ids": ids, "mask": mask, "score": score,
			"rewards": [][2]any{{len(ids) - 1, score}}})
	}
	return rows
}

// lastStep are the numbers that the folder's run has logged last of a step.
func lastStep(folder string) (map[string]float64, error) {
	values := map[string]float64{}
	for record, err := range metrics.Read(filepath.Join(folder, "run", metrics.File)) {
		if err != nil {
			return nil, err
		}
		for name := range record.Values {
			if v, ok := record.Float(name); ok {
				values[name] = v
			}
		}
	}
	return values, nil
}

func writeLines(path string, rows []any) error {
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for _, row := range rows {
		if err := encoder.Encode(row); err != nil {
			return err
		}
	}
	return os.WriteFile(path, lines.Bytes(), 0o644)
}

// plainModel makes a folder with the weights of a model directory whose chat template adds nothing to a message, and
// whose end of sequence is a token that is hardly ever sampled: replies are as long as they may be.
func plainModel(dir, folder string) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	tokenizer, err := chat.Load(dir)
	if err != nil {
		return err
	}
	unused := int32(-1)
	for id := range int32(tokenizer.VocabSize()) {
		if tokenizer.Special(id) && !slices.Contains(tokenizer.StopIDs(), id) {
			unused = id
		}
	}
	if unused < 0 {
		return fmt.Errorf("%s has no special token besides those that end a sequence", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		from, to := filepath.Join(dir, entry.Name()), filepath.Join(folder, entry.Name())
		switch entry.Name() {
		case "chat_template.jinja":
		case "config.json", "generation_config.json":
			err = setKey(from, to, "eos_token_id", unused)
		case "tokenizer_config.json":
			err = setKey(from, to, "eos_token", string(tokenizer.TokenBytes(unused)))
		default:
			if from, err = filepath.Abs(from); err == nil {
				err = os.Symlink(from, to)
			}
		}
		if err != nil {
			return err
		}
	}
	template := "{% for message in messages %}{{ message.content }}{% endfor %}"
	return os.WriteFile(filepath.Join(folder, "chat_template.jinja"), []byte(template), 0o644)
}

// setKey copies a JSON object with another value of a key.
func setKey(from, to, key string, value any) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	object[key] = value
	if text, err = json.Marshal(object); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
