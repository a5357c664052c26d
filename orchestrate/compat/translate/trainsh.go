package translate

import (
	"cmp"
	"path"
	"strings"
)

// trainShEnvs are the environments of the first RAGEN's train.sh.
var trainShEnvs = map[string]source{
	"two_armed_bandit": {tag: "TwoArmedBandit"},
	"bandit":           {tag: "GaussianBandit"},
	"sokoban":          {tag: "sokoban"},
	// slips as often to either side
	"frozenlake": {tag: "FrozenLake", options: map[string]any{"success_rate": 1.0 / 3}},
}

const firstRule = "the first RAGEN's rule"

// trainShRules are the first RAGEN's where its words say nothing and Gyre's defaults are others.
var trainShRules = []rule{
	{"rollout.format_penalty", -1.0}, {"rollout.temperature", 0.7}, {"validation.temperature", 0.0},
	{"run.validate_first", false}, {"run.validate_every", 100}, {"run.save_every", 100},
	{"algorithm.advantage", "grpo"}, {"actor.mini_batch", 128}, {"actor.clip_high", 0.2}, {"actor.clip_dual", 0.0},
	{"filter.strategy", "none"}, {"analysis.enabled", false}, {"early_stop.spread_fraction", 0.0},
	{"early_stop.low_success_count", 0}, {"early_stop.empty_steps", 0},
}

// composeTrainSh carries over the settings that act together, and the first RAGEN's defaults and rules where they are
// not Gyre's.
func (t *translation) composeTrainSh() {
	env := t.trainSh
	s, known := trainShEnvs[env]
	if !known {
		t.fail(env, "is no environment of train.sh: expected two_armed_bandit, sokoban, frozenlake or bandit")
		return
	}
	turns, prompts := t.integer("training.max_turns", 5), t.integer("training.train_batch_size", 8)
	s.groups, s.groupSize, s.turns, s.perTurn = prompts, t.integer("training.n_rollout", 16), turns, 1
	options := t.below("env.")
	for name, value := range s.options {
		options[name] = cmp.Or(options[name], value)
	}
	s.allActions, s.options, s.from = turns, options, "train.sh "+env
	v := s
	v.groups, v.groupSize = t.integer("training.val_data_num", 50), 1
	v.from = "training.val_data_num=" + t.text("training.val_data_num", "50")
	if value, given := t.given["training.val_data_num"]; given && value == nil {
		v.groups, v.from = 500, "training.val_data_num=: all"
	}
	t.doc.envs, t.doc.validation = []source{s}, []source{v}

	base := t.text("model.base_model", "Qwen/Qwen2.5-0.5B-Instruct")
	name := t.text("model.experiment_name", "ragen-main-exp")
	if t.text("rl_or_sft", "rl") == "sft" {
		base, name = t.sft(base, name, prompts*s.groupSize)
	}
	t.put("run.name", name, "experiment_name")
	t.put("model.path", t.modelDir(base), "base_model")
	t.lengths(prompts, turns)

	t.put("algorithm.kl_coef", t.number("optimization.kl_coef", 0.001), "optimization.kl_coef")
	if t.truth("training.use_kl_loss", true) {
		t.put("algorithm.kl_estimator", t.text("optimization.kl_loss_type", "low_var_kl"), "optimization.kl_loss_type")
	} else {
		t.put("algorithm.kl_in", "reward", "training.use_kl_loss")
	}
	if strings.HasSuffix(env, "bandit") {
		t.put("rollout.format_penalty", 0.0, firstRule)
	}
	t.rules(trainShRules, firstRule)
	t.device(t.integer("system.n_gpus", 1))
}

// sft carries over what fine-tuning takes; its RL settings are for the validation only.
func (t *translation) sft(base, name string, episodes int) (string, string) {
	t.put("actor.mini_batch", min(t.integer("training.ppo_batch_size", 128), episodes), "training.ppo_batch_size")
	t.rules([]rule{{"algorithm.advantage", "brpo"}, {"sft.batch", 128}}, firstRule)
	base, name = t.text("sft.training.base_model", base), t.text("sft.training.experiment_name", name)
	if dir := t.text("sft.output_dir", ""); dir != "" {
		t.put("run.output", path.Dir(dir), "sft.output_dir")
		name = path.Base(dir)
	}
	const train, test = "sft.data_generation.train_size", "sft.data_generation.test_size"
	t.put("sft.episodes", t.integer(train, 1000), train)
	t.put("sft.validation_episodes", t.integer(test, 100), test)
	return base, name
}

// lengths are those of the run, of replies and of episodes.
func (t *translation) lengths(prompts, turns int) {
	steps := t.integer("training.total_training_steps", t.integer("trainer.total_training_steps", 0))
	from := "total_training_steps"
	if steps == 0 {
		data := t.integer("training.train_data_num", 10000)
		steps = max(t.integer("training.total_epochs", 5)*(data/max(prompts, 1)), 1)
		from = "total_epochs × train_data_num / train_batch_size"
	}
	t.put("run.steps", steps, from)
	reply, observation := t.integer("training.max_response_length", 400), t.integer("training.max_obs_length", 200)
	t.put("rollout.max_tokens", reply, "training.max_response_length")
	t.put("rollout.max_length", t.integer("training.max_start_length", 400)+(reply+observation)*turns,
		"max_start_length + (max_response_length + max_obs_length) × turns")
}
