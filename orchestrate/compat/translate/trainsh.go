package translate

import (
	"maps"
	"path"
	"strings"
)

const unusedThere = "declared in the first RAGEN, and used by nothing"

// trainSh are the keys of the first RAGEN's train.sh. Keys whose How is "together…" are carried over by composeTrainSh.
var trainSh = []Section{
	{"Words of `train.sh`", []Rule{
		{"rl_or_sft", "gyre train or gyre sft", together, nil},
		{"model.base_model sft.training.base_model", "model.path",
			"a name on the hub becomes models/NAME; sft's own when it is given", nil},
		{"model.experiment_name sft.training.experiment_name sft.output_dir", "run.name, run.output", together, nil},
		{"model.gradient_checkpointing", "actor.recompute_activations", "", nil},
		{"training.train_batch_size", "[[envs]] groups", "prompts per step", nil},
		{"training.n_rollout", "[[envs]] group_size", "", nil},
		{"training.max_turns", "[[envs]] max_turns", "one action per turn", nil},
		{"training.ppo_batch_size", "actor.mini_batch", "", nil},
		{"training.micro_batch_size", "actor.micro_batch_tokens", "1024 tokens for each sequence", micro},
		{"training.total_epochs training.train_data_num training.total_training_steps trainer.total_training_steps",
			"run.steps", "epochs × prompts / prompts per step; 10,000 prompts where their number is empty", nil},
		{"training.val_data_num", "[[validation.envs]] groups", "empty: all 500", nil},
		{"training.max_response_length", "rollout.max_tokens", "", nil},
		{"training.max_start_length training.max_obs_length", "rollout.max_length",
			"start + reply × turns + observation × turns", nil},
		{"training.temperature", "rollout.temperature", "", nil},
		{"training.use_kl_loss optimization.kl_coef optimization.kl_loss_type",
			"algorithm.kl_coef, algorithm.kl_estimator, algorithm.kl_in", "of the rewards where use_kl_loss is false",
			nil},
		{"training.no_think_rl", "rollout.replies",
			"true: replies are rewritten to their bare action, which is fed back and trained on (the second RAGEN's " +
				"form is rollout.think = false)", func(t *translation, key string, v any) {
				if t.truth(key, false) {
					t.put("rollout.replies", "action", key)
				}
			}},
		{"optimization.actor_lr", "actor.lr", "", nil},
		{"optimization.critic_lr", "critic.lr", "", nil},
		{"optimization.adv_estimator", "algorithm.advantage", "", nil},
		{"trainer.save_freq", "run.save_every", "", nil},
		{"trainer.test_freq", "run.validate_every", "", nil},
		{"trainer.val_before_train", "run.validate_first", "", nil},
		{"sft.data_generation.train_size sft.data_generation.test_size", "sft.episodes, sft.validation_episodes",
			together, nil},
		{"sft.training.epochs", "sft.epochs", "", nil},
		{"sft.training.lr sft.training.learning_rate", "sft.lr", "there of LoRA's matrices, here of all weights",
			func(t *translation, key string, v any) { t.put("sft.lr", v, key) }},
		{"sft.training.train_batch_size sft.training.batch_size", "sft.batch", "",
			func(t *translation, key string, v any) { t.put("sft.batch", v, key) }},
		{"sft.training.micro_batch_size", "actor.micro_batch_tokens", "1024 tokens for each sequence", micro},
		{"env.*", "[[envs]] options", "options of the environment", nil},
		{"training.val_batch_size", "", "the validation set is played at once", nil},
		{"training.state_masking", "", "what the policy did not sample is never trained on", nil},
		{"training.ref_update_steps", "", "the KL reference never moves", nil},
		{"training.use_sft training.binary_reward training.mask_state training.length_penalty", "", unusedThere, nil},
		{"training.rollout_tp_size optimization.gpu_memory_utilization system.multi_processing " +
			"system.vllm_attention_backend", "", noVLLM, nil},
		{"system.n_gpus", "--ranks", "an option of `gyre train`, with model.device=cuda; train.sh gives both", noop},
		{"system.cuda_visible_devices", "", "the variable CUDA_VISIBLE_DEVICES holds as usual; train.sh sets it", nil},
		{"trainer.project_name", "run.project", "", nil},
		{"logging.* trainer.val_only", "", "metrics and every episode are files of the run's folder", nil},
		{"sft.*", "", "Gyre trains all weights on demonstrations that it makes itself", nil},
	}},
}

// trainShEnvs are the environments of train.sh.
var trainShEnvs = map[string]source{
	"two_armed_bandit": {tag: "TwoArmedBandit"},
	"bandit":           {tag: "GaussianBandit"},
	"sokoban":          {tag: "sokoban"},
	// slips as often to either side
	"frozenlake": {tag: "FrozenLake", options: map[string]any{"success_rate": 1.0 / 3}},
}

// trainShRules are the first RAGEN's where its words say nothing and Gyre's defaults are others.
var trainShRules = []rule{
	{"rollout.temperature", 0.7}, {"validation.temperature", 0.0}, {"run.validate_first", false},
	{"run.validate_every", 100}, {"run.save_every", 100}, {"algorithm.advantage", "grpo"}, {"actor.mini_batch", 128},
	{"actor.clip_high", 0.2}, {"actor.clip_dual", 0.0}, {"filter.strategy", "none"}, {"analysis.enabled", false},
	{"early_stop.spread_fraction", 0.0}, {"early_stop.low_success_count", 0}, {"early_stop.empty_steps", 0},
}

// composeTrainSh carries over the settings that act together, and the first RAGEN's defaults and rules where they are
// not Gyre's.
func (t *translation) composeTrainSh(env string) {
	s, known := trainShEnvs[env]
	if !known {
		t.fail(env, "is no environment of train.sh: expected two_armed_bandit, sokoban, frozenlake or bandit")
		return
	}
	turns, prompts := t.integer("training.max_turns", 5), t.integer("training.train_batch_size", 8)
	s.groups, s.groupSize, s.turns, s.perTurn = prompts, t.integer("training.n_rollout", 16), turns, 1
	s.allActions, s.options, s.from = turns, t.trainShOptions(s.options), "train.sh "+env
	t.doc.envs = []source{s}
	v := s
	v.groups, v.groupSize = t.integer("training.val_data_num", 50), 1
	v.from = "training.val_data_num=" + t.text("training.val_data_num", "50")
	if value, given := t.given["training.val_data_num"]; given && value == nil {
		v.groups, v.from = 500, "training.val_data_num=: all"
	}
	t.doc.validation = []source{v}

	base := t.text("model.base_model", "Qwen/Qwen2.5-0.5B-Instruct")
	name := t.text("model.experiment_name", "ragen-main-exp")
	if t.text("rl_or_sft", "rl") == "sft" {
		base, name = t.sft(base, name, prompts*s.groupSize)
	}
	t.put("run.name", name, "experiment_name")
	t.model("model.path", base, "base_model")
	t.lengths(prompts, turns)

	t.put("algorithm.kl_coef", t.number("optimization.kl_coef", 0.001), "optimization.kl_coef")
	if t.truth("training.use_kl_loss", true) {
		t.put("algorithm.kl_estimator", t.text("optimization.kl_loss_type", "low_var_kl"), "optimization.kl_loss_type")
	} else {
		t.put("algorithm.kl_in", "reward", "training.use_kl_loss")
	}
	penalty := rule{"rollout.format_penalty", -1.0}
	if strings.HasSuffix(env, "bandit") {
		penalty.value = 0.0
	}
	t.rules(append([]rule{penalty}, trainShRules...), "the first RAGEN's rule")
	t.device(t.integer("system.n_gpus", 1))
}

// trainShOptions are an environment's options, with those of the words env.NAME=VALUE.
func (t *translation) trainShOptions(own map[string]any) map[string]any {
	options := maps.Clone(own)
	for _, key := range t.order {
		if name, ok := strings.CutPrefix(key, "env."); ok && t.given[key] != nil {
			if options == nil {
				options = map[string]any{}
			}
			options[name] = t.given[key]
		}
	}
	return options
}

// sft carries over what fine-tuning takes; its RL settings are for the validation only.
func (t *translation) sft(base, name string, episodes int) (string, string) {
	t.put("actor.mini_batch", min(t.integer("training.ppo_batch_size", 128), episodes), "training.ppo_batch_size")
	t.rules([]rule{{"algorithm.advantage", "brpo"}, {"sft.batch", 128}}, "the first RAGEN's rule")
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
