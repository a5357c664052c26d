package gyre

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/trainer"
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
func (s *server) grpo(t work.Task, folder string) (worker.Figures, error) {
	model, prompts := filepath.Join(folder, "model"), filepath.Join(folder, "prompts.json")
	var rows []any
	for _, text := range slices.Concat(t.Texts...) {
		rows = append(rows, map[string]string{"problem": text, "answer": "0"})
	}
	text, _ := json.Marshal(rows)
	if err := errors.Join(plainModel(s.Model, model), os.WriteFile(prompts, text, 0o644)); err != nil {
		return worker.Figures{}, err
	}
	document := fmt.Sprintf(runConfig+promptConfig, folder, model, string(s.On.Compute), t.Batch*t.Copies, t.Batch,
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
	step, err := logged(folder, 2)
	figures := worker.Figures{Seconds: step["timing_s/step"], Parts: map[string]float64{}}
	for name, value := range step {
		if part, ok := strings.CutPrefix(name, "timing_s/"); ok {
			figures.Parts[part] = value
		}
	}
	return figures, err
}

// train updates on given episodes, in s.Ranks processes that share the threads, and reports the second step: the time
// of its tokens, and how much of it a rank waited for others.
func (s *server) train(t work.Task, folder string) (worker.Figures, error) {
	episodes := filepath.Join(folder, "episodes.jsonl")
	model, err := filepath.Abs(s.Model)
	if err = errors.Join(err, episode.WriteFile(episodes, givenEpisodes(t.Sequences))); err != nil {
		return worker.Figures{}, err
	}
	arguments := []string{"--replay", episodes, "algorithm.kl_coef=0"}
	if t.Op == work.OpPass { // SmolLM2-135M's shape with other layers: no cost depends on what weights are
		tokenizer := model
		model = filepath.Join(folder, "model")
		if err := s.gyre("model", "init", model, "--tokenizer", tokenizer, "--hidden", "576", "--heads", "9",
			"--kv-heads", "3", "--intermediate", "1536", "--layers", strconv.Itoa(t.Layers)); err != nil {
			return worker.Figures{}, err
		}
		arguments = append(arguments, fmt.Sprintf("actor.micro_batch_tokens=%d", max(t.Tokens(), 1024)))
	}
	document := fmt.Sprintf(runConfig+"[[envs]]\ntag = \"Bandit\"\n", folder, model, string(s.On.Compute),
		len(t.Sequences))
	if s.Ranks > 1 {
		arguments = append(arguments, "--ranks", strconv.Itoa(s.Ranks), "fsdp.shard="+t.Shard)
	}
	step, err := s.command(folder, document, 2, arguments...)
	if err == nil && step["perf/update_tokens_per_s"] == 0 {
		err = fmt.Errorf("gyre train %v has logged no update", arguments)
	}
	if err != nil {
		return worker.Figures{}, err
	}
	seconds := float64(t.Tokens()) / step["perf/update_tokens_per_s"]
	waited := seconds * step["perf/comm_share"]
	return worker.Figures{Seconds: seconds, ChildBytes: peak(step), Parts: map[string]float64{"waiting": waited}}, nil
}

// peak is the most memory that a logged step had held of its process.
func peak(step map[string]float64) int64 { return int64(step["perf/peak_rss_gib"] * (1 << 30)) }

// gyre runs the gyre command.
func (s *server) gyre(arguments ...string) error {
	command := exec.Command("./gyre", arguments...)
	command.Env = append(os.Environ(), "GYRE_THREADS="+strconv.Itoa(s.Threads))
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", command.Args, err, out)
	}
	return nil
}

// command has the gyre command train by a document, and gives what it logs of the steps from one on.
func (s *server) command(folder, document string, from int, arguments ...string) (map[string]float64, error) {
	path := filepath.Join(folder, "run.toml")
	if err := os.WriteFile(path, []byte(document), 0o644); err != nil {
		return nil, err
	}
	if err := s.gyre(append([]string{"train", path}, arguments...)...); err != nil {
		return nil, err
	}
	return logged(folder, from)
}

// givenEpisodes are sequences as the episodes of two groups, every second one a success; all tokens but the first are
// trained on.
func givenEpisodes(sequences [][]int32) (all []*episode.Episode) {
	for i, ids := range sequences {
		e := &episode.Episode{Group: 2 * i / len(sequences), IDs: ids, Mask: make([]bool, len(ids)),
			Score: float64(i % 2)}
		for k := range ids {
			e.Mask[k] = k > 0
		}
		e.Rewards = []episode.Reward{{Token: len(ids) - 1, Value: e.Score}}
		all = append(all, e)
	}
	return all
}

// logged are the numbers that the folder's run has logged of the steps from one on: their means.
func logged(folder string, from int) (map[string]float64, error) {
	means, steps := map[string]float64{}, 0.0
	for record, err := range metrics.Read(filepath.Join(folder, "run", metrics.File)) {
		if err != nil {
			return nil, err
		}
		if record.Step < from {
			continue
		}
		steps++
		for name := range record.Values {
			if v, ok := record.Float(name); ok {
				means[name] += (v - means[name]) / steps
			}
		}
	}
	if steps == 0 {
		return nil, fmt.Errorf("gyre train has logged nothing of step %d or later", from)
	}
	return means, nil
}

// plainModel makes a folder with the weights of a model directory whose chat template adds nothing to a message, and
// whose end of sequence is no token of its vocabulary: replies are as long as they may be.
func plainModel(dir, folder string) error {
	source, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(source)
	problems := []error{err, os.Mkdir(folder, 0o755)}
	own := map[string]string{
		"generation_config.json": `{"eos_token_id": 2147483647}`,
		"tokenizer_config.json":  "{}",
		"chat_template.jinja":    "{% for message in messages %}{{ message.content }}{% endfor %}",
	}
	for name, text := range own {
		problems = append(problems, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	for _, entry := range entries {
		if _, replaced := own[entry.Name()]; !replaced {
			problems = append(problems, os.Symlink(filepath.Join(source, entry.Name()),
				filepath.Join(folder, entry.Name())))
		}
	}
	return errors.Join(problems...)
}
