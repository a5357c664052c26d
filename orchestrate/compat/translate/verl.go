package translate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gyre/internal/dataset"
)

// modules are the programs of verl, and of the rldynamic project on top of it, with the settings of ours that they
// stand for. The latter write to folders of fixed names in the working directory.
var modules = map[string]string{
	"verl.trainer.main_ppo":             "",
	"custom_training.custom_main_ppo":   "components.enabled=true components.save=projection" + fixedFolders,
	"custom_training.custom_main_ppo_2": "components.tracking=true" + fixedFolders,
}

const fixedFolders = " components.data=math500 components.link=."

// module takes the program of `python -m MODULE`.
func (t *translation) module(name string) error {
	settings, known := modules[name]
	if !known {
		return errors.New("is no program that can be translated: expected verl.trainer.main_ppo, " +
			"custom_training.custom_main_ppo or _2")
	}
	t.verl = true
	for _, word := range strings.Fields(settings) {
		key, value, _ := strings.Cut(word, "=")
		t.put(key, parsed(value), "-m "+name)
	}
	return nil
}

// file is a configuration of verl's, by its path; verl's own, which has only defaults, need not be there.
func (t *translation) file(path string) error {
	t.verl = true
	if _, err := os.Stat(path); err != nil && strings.TrimSuffix(filepath.Base(path), ".yaml") == "ppo_trainer" {
		t.note("%s is not here: what the words do not say has verl's defaults", path)
		return nil
	}
	return t.resolved(path)
}

// verlRules are what verl does where its keys say nothing, and what it lacks.
var verlRules = []rule{
	{"run.save_every", -1}, {"run.validate_every", 0}, {"rollout.prompt", "compact"}, {"rollout.think", false},
	{"validation.temperature", 0.0}, {"filter.strategy", "none"}, {"algorithm.entropy_coef", 0.0},
	{"actor.clip_low", 0.2}, {"actor.clip_high", 0.2}, {"analysis.enabled", false},
	{"early_stop.spread_fraction", 0.0}, {"early_stop.low_success_count", 0}, {"early_stop.empty_steps", 0},
}

// composeVerl carries over a run of verl's on files of prompts: what it counts in prompts, and its defaults where
// they are not Gyre's.
func (t *translation) composeVerl(groups, size int) {
	prompt, reply := t.integer("data.max_prompt_length", 512), t.integer("data.max_response_length", 512)
	t.put("rollout.max_tokens", reply, "data.max_response_length")
	t.put("rollout.max_length", prompt+reply, "data.max_prompt_length", "data.max_response_length")
	const mini, criticMini = "actor_rollout_ref.actor.ppo_mini_batch_size", "critic.ppo_mini_batch_size"
	prompts := min(t.integer(mini, 256), groups)
	t.put("actor.mini_batch", prompts*size, mini, "actor_rollout_ref.rollout.n")
	t.put("critic.mini_batch", min(t.integer(criticMini, prompts), groups)*size, criticMini,
		"actor_rollout_ref.rollout.n")
	if micro := "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"; t.given[micro] != nil {
		t.put("actor.micro_batch_tokens", t.integer(micro, 1)*(prompt+reply), micro)
		t.doc.unset("analysis.paper_micro_batch")
	}
	if t.given["actor_rollout_ref.model.path"] == nil {
		t.put("model.path", t.modelDir("deepseek-ai/deepseek-llm-7b-chat"), "verl's default")
	}

	train := t.rows("data.train_files", prompt)
	count := train.groups
	train.groups, train.groupSize = groups, size
	if !t.truth("data.shuffle", true) {
		train.options["shuffle"] = false
	}
	if t.given["data.seed"] != nil {
		train.options["shuffle_seed"] = t.integer("data.seed", 1)
	}
	t.doc.envs = []source{train}
	if t.given["data.val_files"] != nil {
		held := t.rows("data.val_files", 0)
		held.groupSize = t.integer("actor_rollout_ref.rollout.val_kwargs.n", 1)
		held.options["shuffle"], held.options["first_seed"] = false, t.integer("seed.val", 123)
		t.doc.validation = []source{held}
	}
	t.steps(count, groups)
	t.reward()
	if t.truth(doSample, false) {
		t.put("validation.temperature", t.number("actor_rollout_ref.rollout.val_kwargs.temperature", 0), doSample)
	} else {
		t.doc.unset("validation.temperature") // unless samples are drawn, whatever the temperature
	}
	t.rules(verlRules, "verl's rule")
}

// rows makes the source of a file, with a group for each of its rows; none where the file is not here. maxPrompt leaves
// out rows with longer prompts.
func (t *translation) rows(key string, maxPrompt int) source {
	options := map[string]any{"file": ""}
	if list := t.list(key); len(list) > 0 {
		options["file"] = show(list[0])
		if len(list) > 1 {
			t.drop(key, show(list[1:]), "Dataset plays one file")
		}
	}
	if maxPrompt > 0 {
		options["max_prompt_length"], options["tokenizer"] = maxPrompt, t.doc.text("model.path")
	}
	s := source{tag: "Dataset", turns: 1, options: options, from: key}
	table, err := dataset.Read(show(options["file"]))
	if err != nil {
		t.note("%s: %v", key, err)
		return s
	}
	s.groups = len(table.Rows)
	return s
}

// steps are those that are named, or epochs × batches of the file's rows.
func (t *translation) steps(rows, batch int) {
	if t.given["trainer.total_training_steps"] != nil {
		return
	}
	epochs := t.integer("trainer.total_epochs", 30)
	if batch < 1 || rows < batch {
		t.note("set run.steps: %d epochs of %d prompts per step, and the rows of data.train_files are not known",
			epochs, batch)
		if rows > 0 {
			t.fail("data.train_batch_size", "is %d, and data.train_files has %d rows", batch, rows)
		}
		return
	}
	t.put("run.steps", epochs*(rows/batch), "trainer.total_epochs", fmt.Sprintf("× (%d rows / data.train_batch_size)",
		rows))
}

// reward makes verl's custom_reward_function a command, which gets its arguments as verl gives them.
func (t *translation) reward() {
	const pathKey, nameKey = "custom_reward_function.path", "custom_reward_function.name"
	file, name := t.text(pathKey, ""), t.text(nameKey, "compute_score")
	if file == "" {
		return
	}
	options := map[string]any{"component": "command",
		"command": []any{"python3", "scripts/reward_command.py", file, name}}
	t.doc.rewards = []section{{{"name", literal("reward"), pathKey + "=" + file}, {"options", literal(options), ""}}}
	if _, err := os.Stat(file); err != nil {
		t.note("%s: %v", pathKey, err)
	}
}
