package gyre

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/trainer"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/run/metrics"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
)

// grpoConfig is a run of two steps, of which the first warms up. A reply earns 1 for an even number of characters.
const grpoConfig = `
[run]
name = "grpo"
steps = 2
threads = %d
output = %q
validate_every = 0
validate_first = false
save_every = -1
save_rollouts = "none"
[model]
path = %q
dtype = %q
device = %q
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

// step trains for two steps on the task's texts, as gyre train does, and reports the second one.
func (s *server) step(t work.Task) (worker.Figures, error) {
	folder, err := os.MkdirTemp("", "gyre-bench-")
	if err != nil {
		return worker.Figures{}, err
	}
	defer os.RemoveAll(folder)
	model, prompts := filepath.Join(folder, "model"), filepath.Join(folder, "prompts.jsonl")
	if err := plainModel(s.dir, model); err != nil {
		return worker.Figures{}, err
	}
	var rows []byte
	for _, text := range slices.Concat(t.Texts...) {
		row, err := json.Marshal(map[string]string{"problem": text, "answer": "0"})
		if err != nil {
			return worker.Figures{}, err
		}
		rows = append(append(rows, row...), '\n')
	}
	if err := os.WriteFile(prompts, rows, 0o644); err != nil {
		return worker.Figures{}, err
	}
	groups := len(t.Texts[0])
	c, err := config.Parse("benchmark", fmt.Appendf(nil, grpoConfig, s.threads, folder, model, string(s.on.Compute),
		s.on.Device, groups, t.Copies,
		prompts, t.New, groups*t.Copies), nil)
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
	figures := worker.Figures{Parts: map[string]float64{}}
	for record, err := range metrics.Read(filepath.Join(folder, "grpo", metrics.File)) {
		if err != nil {
			return figures, err
		}
		for name := range record.Values {
			if part, ok := strings.CutPrefix(name, "timing_s/"); ok {
				figures.Parts[part], _ = record.Float(name)
			}
		}
	}
	figures.Seconds = figures.Parts["step"]
	return figures, nil
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
