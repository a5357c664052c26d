package translate

import (
	"path"
	"slices"
	"strings"
)

// tasks are RAGEN's task configurations, as what they change of its base; "!" says why one cannot be translated.
var tasks = map[string]string{
	"base": "", "ppo_trainer": "trainer.project_name=verl_examples",
	"_1_bandit": "trainer.experiment_name=bandit-base actor_rollout_ref.rollout.response_length=500 " +
		"agent_proxy.max_turn=1 agent_proxy.max_actions_per_turn=1 es_manager.train.env_configs.tags=[Bandit] " +
		"es_manager.val.env_configs.tags=[Bandit,BanditTest] es_manager.val.env_configs.n_groups=[256,256]",
	"_2_sokoban": "trainer.experiment_name=sokoban-main",
	"_3_frozen_lake": "trainer.experiment_name=frozenlake-main es_manager.train.env_configs.tags=[CoordFrozenLake] " +
		"es_manager.val.env_configs.tags=[CoordFrozenLake] custom_envs.CoordFrozenLake.env_config.success_rate=1 " +
		"custom_envs.CoordFrozenLake.env_config.observation_format=grid_coord",
	"_4_countdown": "trainer.experiment_name=countdown agent_proxy.max_turn=1 agent_proxy.max_actions_per_turn=1 " +
		"es_manager.train.env_configs.tags=[Countdown] es_manager.val.env_configs.tags=[Countdown]",
	"_8_sudoku": "trainer.experiment_name=sudoku-main es_manager.train.env_configs.tags=[SimpleSudoku] " +
		"es_manager.val.env_configs.tags=[SimpleSudoku] es_manager.val.env_groups=32 es_manager.val.group_size=16 " +
		"es_manager.val.env_configs.n_groups=[32]",
	"_9_2048": "trainer.experiment_name=2048 agent_proxy.max_turn=800 agent_proxy.max_actions_per_turn=1 " +
		"actor_rollout_ref.rollout.max_model_len=8192 actor_rollout_ref.rollout.response_length=256 " +
		"es_manager.train.env_configs.tags=[game_2048] es_manager.val.env_configs.tags=[game_2048]",
	"_10_rubikscube": "trainer.experiment_name=rubikscube actor_rollout_ref.rollout.response_length=500 " +
		"agent_proxy.max_turn=25 agent_proxy.max_actions_per_turn=4 es_manager.train.env_configs.tags=[rubikscube] " +
		"es_manager.val.env_configs.tags=[rubikscube]",
	"_5_metamathqa": "es_manager.train.env_configs.tags=[MetamathQA] es_manager.val.env_configs.tags=[MetamathQA]",
	"_9_search":     "es_manager.train.env_configs.tags=[SearchQA] es_manager.val.env_configs.tags=[SearchQA]",
	"_6_webshop":    "!" + registryOnly, "webshop_full": "!" + registryOnly, "_7_lean": "!" + registryOnly,
	"_10_deepcoder": "trainer.experiment_name=deepcoder agent_proxy.max_turn=1 agent_proxy.max_actions_per_turn=1 " +
		"es_manager.train.env_configs.tags=[DeepCoder] es_manager.val.env_configs.tags=[DeepCoder]",
}

// metaMath asks the questions of a data set that RAGEN downloads and Gyre prepares once.
const (
	metaMath     = "MetamathQA"
	metaMathFile = "data/metamathqa/train.jsonl"
)

const (
	registryOnly = "RAGEN's own environment can be played over a pipe where its package is installed " +
		"(docs/environments.md): name it in [[envs]]"
	memoryOnly = "a matter of memory or speed on GPUs; results do not depend on it"
	noRay      = "Gyre is one program: it has no Ray and no workers to place"
	noVLLM     = "Gyre samples with the engine that it trains with: there is no second one to set up"
	together   = "together with the other keys of this section"
)

// ragen are the keys of RAGEN's base.yaml and envs.yaml and of verl's ppo_trainer. Keys whose How is "together…" are
// carried over by composeRAGEN.
var ragen = []Section{
	{"The run", []Rule{
		{"trainer.total_training_steps", "run.steps", "", nil},
		{"trainer.experiment_name trainer.default_local_dir", "run.name, run.output",
			"the checkpoints' folder is split into output and name", nil},
		{"trainer.val_before_train", "run.validate_first", "", nil},
		{"trainer.test_freq", "run.validate_every", "-1 and null become 0: never",
			func(t *translation, key string, v any) { t.put("run.validate_every", max(t.integer(key, 10), 0), key) }},
		{"trainer.save_freq", "run.save_every", "0 and below become -1: never",
			func(t *translation, key string, v any) {
				n := t.integer(key, 100)
				if n <= 0 {
					n = -1
				}
				t.put("run.save_every", n, key)
			}},
		{"trainer.resume_mode trainer.resume_from_path", "--resume, --resume-from DIR", "options of `gyre train`", nil},
		{"trainer.logger", "run.loggers",
			"console is always there; mlflow becomes a command, other services have no counterpart", loggers},
		{"trainer.critic_warmup", "critic.warmup", "", nil},
		{"trainer.max_actor_ckpt_to_keep trainer.max_critic_ckpt_to_keep", "checkpoint.keep", "",
			func(t *translation, key string, v any) { t.put("checkpoint.keep", v, key) }},
		{"actor_rollout_ref.actor.checkpoint.save_contents critic.checkpoint.save_contents", "checkpoint.optimizer",
			"false where optimizer is not among them", func(t *translation, key string, v any) {
				t.put("checkpoint.optimizer", slices.Contains(t.list(key), any("optimizer")), key)
			}},
		{"seed.train", "run.env_seed", "", nil},
		{"seed.val", "validation.seed", "", nil},
		{"trainer.project_name", "run.project", "", nil},
		{"trainer.val_only", "", "use `gyre eval`", nil},
		{"trainer.total_epochs", "run.steps", "epochs × (rows / prompts per step), of verl's runs on files", noop},
		{"trainer.validation_steps trainer.esi_redundant_time", "", "the validation set is played once", nil},
		{"trainer.n_gpus_per_node", "analysis.paper_ranks, --ranks",
			"as an option of `gyre train`, with model.device=cuda; analysis.paper_ranks acts in the paper profile",
			func(t *translation, key string, v any) { t.put("analysis.paper_ranks", v, key) }},
		{"trainer.nnodes system.CUDA_VISIBLE_DEVICES trainer.device", "",
			"where to compute is model.device; the variable CUDA_VISIBLE_DEVICES holds as usual", nil},
		{"trainer.rollout_data_dir trainer.validation_data_dir trainer.local_log_dir trainer.log_val_generations " +
			"trainer.generations_to_log_to_wandb.*", "",
			"every episode is in rollouts/ of the run's folder (run.save_rollouts)", nil},
		{"trainer.log_group_rv_table", "", "the table of groups is always written", nil},
		{"trainer.balance_batch trainer.use_legacy_worker_impl trainer.ray_wait_register_center_timeout " +
			"trainer.del_local_ckpt_after_load trainer.default_hdfs_dir", "", noRay, nil},
		{"ray_kwargs.* ray_init.* global_profiler.* profiler.*", "", noRay, nil},
	}},
	{"The model", []Rule{
		{"model_path actor_rollout_ref.model.path", "model.path",
			"a name on the hub becomes models/NAME, where `gyre model pull` puts it",
			func(t *translation, key string, v any) {
				t.model("model.path", show(v), key)
			}},
		{"critic.model.path critic.model.tokenizer_path", "critic.path", "left out where it is the policy's",
			func(t *translation, key string, v any) {
				if key == "critic.model.path" && show(v) != t.text("model_path",
					t.text("actor_rollout_ref.model.path", "")) {
					t.model("critic.path", show(v), key)
				}
			}},
		{"actor_rollout_ref.model.enable_gradient_checkpointing", "actor.recompute_activations", "", nil},
		{"critic.model.enable_gradient_checkpointing", "", "follows actor.recompute_activations", nil},
		{"lora.* actor_rollout_ref.model.lora_rank actor_rollout_ref.model.lora_alpha " +
			"actor_rollout_ref.model.target_modules critic.model.lora_rank critic.model.lora_alpha", "",
			"all weights are trained", nil},
		{"actor_rollout_ref.model.* critic.model.*", "", memoryOnly, nil},
		{"enable_response_mask", "", "what the policy did not sample is never trained on", nil},
	}},
	{"Environments", []Rule{
		{"es_manager.train.env_groups es_manager.train.group_size es_manager.train.env_configs.tags " +
			"es_manager.train.env_configs.n_groups", "[[envs]] tag, groups, group_size", "one table for every tag",
			nil},
		{"es_manager.val.env_groups es_manager.val.group_size es_manager.val.env_configs.tags " +
			"es_manager.val.env_configs.n_groups", "[[validation.envs]] tag, groups, group_size",
			"one table for every tag", nil},
		{"agent_proxy.max_turn", "[[envs]] max_turns", "", nil},
		{"agent_proxy.max_actions_per_turn", "[[envs]] max_actions_per_turn", "", nil},
		{"custom_envs.*", "[[envs]] max_actions, options",
			"max_actions_per_traj and env_config of the tags that are played; types, instructions and workers are " +
				"Gyre's own", nil},
		{"es_manager.format_penalty", "rollout.format_penalty", "", nil},
		{"es_manager.*", "",
			"environments are Go code in this process: rollout.env_workers says how many are stepped at once", nil},
	}},
	{"Rollouts", []Rule{
		{"actor_rollout_ref.rollout.temperature", "rollout.temperature", "", nil},
		{"actor_rollout_ref.rollout.top_p", "rollout.top_p", "", nil},
		{"actor_rollout_ref.rollout.top_k", "rollout.top_k", "-1 becomes 0: off",
			func(t *translation, key string, v any) { t.put("rollout.top_k", max(t.integer(key, -1), 0), key) }},
		{"actor_rollout_ref.rollout.response_length data.max_response_length", "rollout.max_tokens",
			"new tokens per turn", nil},
		{"actor_rollout_ref.rollout.max_model_len", "rollout.max_length", "", nil},
		{"data.max_prompt_length", "rollout.max_length", "prompt and reply together",
			func(t *translation, key string, v any) {
				t.put("rollout.max_length", t.integer(key, 512)+t.integer("data.max_response_length", 512), key)
			}},
		{"actor_rollout_ref.rollout.val_kwargs.temperature actor_rollout_ref.rollout.val_kwargs.do_sample",
			"validation.temperature", "0 where do_sample is false", func(t *translation, key string, v any) {
				if !t.truth("actor_rollout_ref.rollout.val_kwargs.do_sample", true) {
					t.put("validation.temperature", 0.0, "actor_rollout_ref.rollout.val_kwargs.do_sample")
				} else if strings.HasSuffix(key, "temperature") {
					t.put("validation.temperature", v, key)
				}
			}},
		{"actor_rollout_ref.rollout.val_kwargs.top_p", "validation.top_p", "", nil},
		{"agent_proxy.enable_think", "rollout.think", "", nil},
		{"agent_proxy.action_sep", "rollout.action_separator", "", nil},
		{"agent_proxy.use_turn_scores", "rollout.turn_rewards", "", nil},
		{"agent_proxy.reward_normalization.grouping", "rollout.normalize_within", "inductive becomes tag",
			func(t *translation, key string, v any) {
				if v == "inductive" {
					v = "tag"
				}
				t.put("rollout.normalize_within", v, key)
			}},
		{"agent_proxy.reward_normalization.method", "rollout.normalize", "", nil},
		{"agent_proxy.context_window_mode agent_proxy.max_context_window", "rollout.context, rollout.window",
			"limited_multi_turn becomes window; the window acts outside full only", nil},
		{"agent_proxy.batch_adjust_mode", "", "batches of any size are trained on: nothing is copied or deleted", nil},
		{"actor_rollout_ref.rollout.max_num_batched_tokens", "engine.max_batch_tokens", "", nil},
		{"actor_rollout_ref.rollout.max_num_seqs", "engine.max_sequences", "", nil},
		{"actor_rollout_ref.rollout.enable_prefix_caching", "engine.prefix_cache", "", nil},
		{"actor_rollout_ref.rollout.gpu_memory_utilization", "",
			"the KV cache takes what the batch needs; engine.kv_mib bounds it in MiB", nil},
		{"actor_rollout_ref.rollout.tensor_model_parallel_size", "engine.tensor_parallel",
			"over --ranks; one process samples alone", nil},
		{"actor_rollout_ref.rollout.prompt_length", "",
			"an episode's prompt grows with it; rollout.max_length bounds the whole", nil},
		{"ctx_manager.*", "", "Gyre has no such part", nil},
	}},
	{"The filter", []Rule{
		{"actor_rollout_ref.rollout.rollout_filter_value", "filter.value", "", nil},
		{"actor_rollout_ref.rollout.rollout_filter_strategy", "filter.strategy", "", nil},
		{"actor_rollout_ref.rollout.rollout_filter_type", "filter.type",
			"std and std_rev of earlier versions become largest and smallest", func(t *translation, key string, v any) {
				name := show(v)
				if now, earlier := map[string]string{"std": "largest", "std_rev": "smallest"}[name]; earlier {
					name = now
				}
				t.put("filter.type", name, key)
			}},
		{"actor_rollout_ref.rollout.rollout_filter_ratio", "filter.strategy, filter.value",
			"of earlier versions: a share of the groups, top_k", func(t *translation, key string, v any) {
				if t.given["actor_rollout_ref.rollout.rollout_filter_value"] == nil {
					t.put("filter.strategy", "top_k", key)
					t.put("filter.value", v, key)
				}
			}},
		{"actor_rollout_ref.rollout.rollout_filter_metric", "filter.metric", "", nil},
		{"actor_rollout_ref.rollout.rollout_filter_include_zero", "filter.include_zero", "", nil},
		{"actor_rollout_ref.rollout.rollout_filter_top_p_prob_mode", "filter.prob_mode", "", nil},
		{"actor_rollout_ref.rollout.rollout_filter_selection_eps", "filter.selection_eps", "", nil},
		{"actor_rollout_ref.rollout.rollout_filter_empty_stop_steps", "early_stop.empty_steps", "", nil},
		{"actor_rollout_ref.actor.filter_loss_scaling", "filter.loss_scaling", "", nil},
	}},
	{"Advantages, KL and entropy", []Rule{
		{"algorithm.adv_estimator algorithm.bi_level_gae", "algorithm.advantage", together, nil},
		{"algorithm.gamma", "algorithm.gamma", "", nil},
		{"algorithm.lam", "algorithm.lambda", "", nil},
		{"algorithm.high_level_gamma", "algorithm.high_level_gamma", "", nil},
		{"algorithm.norm_adv_by_std_in_grpo", "algorithm.norm_by_std", "", nil},
		{"algorithm.zero_task_advantage", "algorithm.zero_task_advantage", "", nil},
		{"algorithm.soft_advantage_reweight", "algorithm.soft_reweight", "", nil},
		{"grpo_advantage_length_weight", "algorithm.length_weight", "", nil},
		{"actor_rollout_ref.actor.use_kl_loss actor_rollout_ref.actor.kl_loss_coef " +
			"actor_rollout_ref.actor.kl_loss_type actor_rollout_ref.actor.use_ref",
			"algorithm.kl_coef, algorithm.kl_estimator", "0 where use_kl_loss or use_ref is false", nil},
		{"algorithm.use_kl_in_reward algorithm.kl_penalty algorithm.kl_ctrl.type algorithm.kl_ctrl.kl_coef " +
			"algorithm.kl_ctrl.horizon algorithm.kl_ctrl.target_kl", "algorithm.kl_in, algorithm.kl_*",
			"where use_kl_in_reward is true", nil},
		{"actor_rollout_ref.actor.entropy_coeff", "algorithm.entropy_coef", "", nil},
		{"algorithm.*", "", "Gyre has no such estimator or correction", nil},
	}},
	{"Actor and critic", []Rule{
		{"ppo_mini_batch_size actor_rollout_ref.actor.ppo_mini_batch_size", "actor.mini_batch",
			"episodes; verl's runs on files count prompts, × rollout.n", nil},
		{"critic.ppo_mini_batch_size", "critic.mini_batch", "likewise", nil},
		{"micro_batch_size_per_gpu actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", "actor.micro_batch_tokens",
			"1024 tokens for each sequence; memory, not mathematics (but for the paper profile)", micro},
		{"actor_rollout_ref.actor.ppo_epochs", "actor.epochs", "", nil},
		{"critic.ppo_epochs", "critic.epochs", "", nil},
		{"actor_rollout_ref.actor.clip_ratio", "actor.clip_low, actor.clip_high", "both, unless given on their own",
			func(t *translation, key string, v any) {
				for ours, theirs := range map[string]string{"actor.clip_low": "clip_ratio_low",
					"actor.clip_high": "clip_ratio_high"} {
					if t.given["actor_rollout_ref.actor."+theirs] == nil {
						t.put(ours, v, key)
					}
				}
			}},
		{"actor_rollout_ref.actor.clip_ratio_low", "actor.clip_low", "", nil},
		{"actor_rollout_ref.actor.clip_ratio_high", "actor.clip_high", "", nil},
		{"actor_rollout_ref.actor.clip_ratio_c", "actor.clip_dual", "", nil},
		{"actor_rollout_ref.actor.loss_agg_mode", "actor.loss_aggregation",
			"Gyre aggregates over mini-batches, not micro-batches", nil},
		{"actor_rollout_ref.actor.grad_clip", "actor.clip_grad", "", nil},
		{"critic.grad_clip", "critic.clip_grad", "", nil},
		{"critic.cliprange_value", "critic.clip_value", "", nil},
		{"actor_rollout_ref.actor.optim.lr", "actor.lr", "", nil},
		{"critic.optim.lr", "critic.lr", "", nil},
		{"actor_rollout_ref.actor.optim.betas", "actor.betas", "", nil},
		{"actor_rollout_ref.actor.optim.weight_decay", "actor.weight_decay", "", nil},
		{"critic.optim.weight_decay", "critic.weight_decay", "", nil},
		{"actor_rollout_ref.actor.optim.min_lr_ratio", "actor.min_lr_ratio", "", nil},
		{"actor_rollout_ref.actor.optim.lr_warmup_steps", "actor.warmup_steps", "negative ones count as none",
			func(t *translation, key string, v any) { t.put("actor.warmup_steps", max(t.integer(key, 0), 0), key) }},
		{"critic.optim.lr_warmup_steps", "critic.warmup_steps", "negative ones count as none",
			func(t *translation, key string, v any) { t.put("critic.warmup_steps", max(t.integer(key, 0), 0), key) }},
		{"actor_rollout_ref.actor.optim.warmup_style actor_rollout_ref.actor.optim.lr_scheduler_type",
			"actor.schedule", "", func(t *translation, key string, v any) { t.put("actor.schedule", v, key) }},
		{"critic.optim.warmup_style critic.optim.lr_scheduler_type", "critic.schedule", "",
			func(t *translation, key string, v any) { t.put("critic.schedule", v, key) }},
		{"actor_rollout_ref.actor.* actor_rollout_ref.ref.* critic.*", "", memoryOnly, nil},
		{"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu log_prob_micro_batch_size_per_gpu " +
			"actor_rollout_ref.rollout.log_prob_micro_batch_size", "",
			"log-probs come from sampling and need no pass of their own", nil},
	}},
	{"Gradient analysis", []Rule{
		{"trainer.gradient_analysis_mode", "analysis.enabled", "", nil},
		{"trainer.gradient_analysis_every", "analysis.every", "", nil},
		{"trainer.exit_after_gradient_analysis", "analysis.exit_after", "", nil},
		{"trainer.gradient_analysis_only", "analysis.only", "", nil},
		{"trainer.gradient_analysis_env_groups", "analysis.groups", "", nil},
		{"trainer.gradient_analysis_group_size", "analysis.group_size", "", nil},
		{"trainer.gradient_analysis_log_prefilter", "analysis.log_prefilter", "", nil},
		{"actor_rollout_ref.rollout.gradient_analysis_num_buckets", "analysis.num_buckets", "", nil},
		{"actor_rollout_ref.rollout.gradient_analysis_bucket_mode", "analysis.buckets", "", nil},
	}},
	{"Collapse", []Rule{
		{"collapse_detection.compute_freq", "collapse.every",
			"measured only where it is asked for: it takes many short passes", nil},
		{"collapse_detection.num_samples", "collapse.samples", "all becomes the most that is possible",
			func(t *translation, key string, v any) {
				if v == "all" {
					v = 4096
				}
				t.put("collapse.samples", v, key)
			}},
		{"collapse_detection.first_turn_enabled", "collapse.first_turn", "", nil},
		{"collapse_detection.multi_turn_enabled", "collapse.multi_turn", "", nil},
		{"collapse_detection.std_eps", "collapse.std_eps", "", nil},
		{"collapse_detection.ema_decay", "collapse.ema_decay", "", nil},
		{"collapse_detection.micro_batch_size", "", memoryOnly, nil},
	}},
	{"What verl needs besides", []Rule{
		{"data.train_batch_size", "[[envs]] groups", "prompts per step, where es_manager names none", nil},
		{"actor_rollout_ref.rollout.n", "[[envs]] group_size", "replies per prompt, where es_manager names none", nil},
		{"data.train_files data.val_files", "[[envs]] tag, options",
			"the environment Dataset with that file (the first of a list); one reply per episode", nil},
		{"data.prompt_key data.reward_fn_key", "", "columns are found by name; options of Dataset name others", nil},
		{"data.shuffle data.seed", "[[envs]] options", "shuffle and shuffle_seed of Dataset", nil},
		{"custom_reward_function.path custom_reward_function.name", "[[rewards]] options",
			"a command reward that calls the function (scripts/reward_command.py)", noop},
		{"custom_reward_function.* reward_model.* reward_manager.*", "",
			"rewards are the environment's, weighted by [[rewards]]", nil},
		{"data.* actor_rollout_ref.rollout.* actor_rollout_ref.hybrid_engine actor_rollout_ref.nccl_timeout", "",
			noVLLM, nil},
	}},
}

// noop leaves a setting to those that act together.
func noop(*translation, string, any) {}

func loggers(t *translation, key string, v any) {
	out := []any{"jsonl"}
	for _, name := range t.list(key) {
		switch show(name) {
		case "console":
		case "wandb", "tensorboard":
			out = append(out, name)
		case "mlflow":
			out = append(out, verbatim(`{ command = ["python3", "scripts/mlflow_sink.py"] }`))
		default:
			t.drop(key, show(name), "name a program that takes metrics in run.loggers")
		}
	}
	t.put("run.loggers", out, key)
}

// composeRAGEN carries over the settings that act together.
func (t *translation) composeRAGEN() {
	t.place()
	t.resume()
	t.regularise()
	const estimator, bilevel = "algorithm.adv_estimator", "algorithm.bi_level_gae"
	switch {
	case t.truth(bilevel, false):
		t.put("algorithm.advantage", "bi_level_gae", bilevel)
		t.put("rollout.turn_rewards", true, bilevel) // there the estimator finds the turns' rewards by itself
	case t.given[estimator] != nil:
		t.put("algorithm.advantage", t.text(estimator, ""), estimator)
	}
	const mode, window = "agent_proxy.context_window_mode", "agent_proxy.max_context_window"
	switch name := t.text(mode, "full"); name {
	case "full":
	case "limited_multi_turn", "single_turn":
		if name == "limited_multi_turn" {
			name = "window"
		}
		t.put("rollout.context", name, mode)
		t.put("rollout.window", max(t.integer(window, 0), 0), window)
	default:
		t.fail(mode, "is %s, expected full, limited_multi_turn or single_turn", name)
	}
	groups, size := "es_manager.train.env_groups", "es_manager.train.group_size"
	if t.given[groups] == nil && t.given["data.train_batch_size"] != nil {
		groups = "data.train_batch_size"
	}
	if t.given[size] == nil && t.given["actor_rollout_ref.rollout.n"] != nil {
		size = "actor_rollout_ref.rollout.n"
	}
	t.doc.envs = t.sources("es_manager.train", groups, size, 8, 16)
	gpus := t.integer("trainer.n_gpus_per_node", 1) * t.integer("trainer.nnodes", 1)
	if t.verl {
		t.composeVerl(t.integer(groups, 1024), t.integer(size, 1))
		t.device(gpus)
		return
	}
	validation := t.sources("es_manager.val", "es_manager.val.env_groups", "es_manager.val.group_size", 512, 1)
	same := slices.EqualFunc(t.doc.envs, validation, func(a, b source) bool {
		return a.tag == b.tag &&
			b.groups == 512 && b.groupSize == 1
	})
	if !same { // otherwise what Gyre does by itself
		t.doc.validation = validation
	}
	if t.given["model_path"] == nil && t.given["actor_rollout_ref.model.path"] == nil {
		t.model("model.path", "Qwen/Qwen2.5-3B-Instruct", "RAGEN's default")
	}
	t.device(gpus)
}

// place splits the folder of checkpoints into output and name.
func (t *translation) place() {
	const experiment, folder = "trainer.experiment_name", "trainer.default_local_dir"
	name := t.text(experiment, "")
	if dir := t.text(folder, ""); dir != "" {
		t.put("run.output", path.Dir(dir), folder)
		if path.Base(dir) != name {
			t.put("run.name", path.Base(dir), folder)
			return
		}
	}
	if name != "" {
		t.put("run.name", strings.ReplaceAll(name, "/", "-"), experiment)
	}
}

func (t *translation) resume() {
	switch mode := t.text("trainer.resume_mode", ""); mode {
	case "auto":
		t.command = append(t.command, "--resume")
	case "resume_path":
		if from := t.text("trainer.resume_from_path", ""); from != "" {
			t.command = append(t.command, "--resume-from", from)
		} else {
			t.fail("trainer.resume_from_path", "is missing: trainer.resume_mode is resume_path")
		}
	case "", "disable":
	default:
		t.fail("trainer.resume_mode", "is %s, expected auto, disable or resume_path", mode)
	}
}

// regularise carries over the KL term, which is part of the loss, of the rewards, or off.
func (t *translation) regularise() {
	const use, ref, coef, kind = "actor_rollout_ref.actor.use_kl_loss", "actor_rollout_ref.actor.use_ref",
		"actor_rollout_ref.actor.kl_loss_coef", "actor_rollout_ref.actor.kl_loss_type"
	const inReward = "algorithm.use_kl_in_reward"
	estimator := "kl"
	if t.verl {
		estimator = "low_var_kl"
	}
	switch {
	case t.truth(inReward, false):
		t.put("algorithm.kl_in", "reward", inReward)
		t.put("algorithm.kl_coef", t.number("algorithm.kl_ctrl.kl_coef", 0.001), "algorithm.kl_ctrl.kl_coef")
		t.put("algorithm.kl_estimator", t.text("algorithm.kl_penalty", "kl"), "algorithm.kl_penalty")
		for theirs, ours := range map[string]string{"type": "kl_control", "horizon": "kl_horizon",
			"target_kl": "kl_target"} {
			if v := t.given["algorithm.kl_ctrl."+theirs]; v != nil {
				t.put("algorithm."+ours, v, "algorithm.kl_ctrl."+theirs)
			}
		}
	case t.truth(use, false) && t.truth(ref, true):
		t.put("algorithm.kl_coef", t.number(coef, 0.001), coef)
		t.put("algorithm.kl_estimator", t.text(kind, estimator), kind)
	case t.given[use] != nil || t.given[ref] != nil:
		t.put("algorithm.kl_coef", 0.0, use, ref)
	}
}

// sources are the environments of one side.
func (t *translation) sources(side, groupsKey, sizeKey string, groups, size int) []source {
	groups, size = t.integer(groupsKey, groups), t.integer(sizeKey, size)
	tags, shares := t.list(side+".env_configs.tags"), t.list(side+".env_configs.n_groups")
	if tags == nil {
		tags = []any{"CoordSokoban"}
	}
	if shares == nil {
		shares = []any{groups}
	}
	if len(shares) != len(tags) {
		t.fail(side+".env_configs.n_groups", "has %d numbers for %d tags", len(shares), len(tags))
		return nil
	}
	total := 0
	var out []source
	for i, tag := range tags {
		n, ok := shares[i].(int)
		if !ok {
			t.fail(side+".env_configs.n_groups", "is %s, expected integers", show(shares))
			return nil
		}
		total += n
		name := show(tag)
		s := source{tag: name, groups: n, groupSize: size, turns: t.integer("agent_proxy.max_turn", 5),
			perTurn: t.integer("agent_proxy.max_actions_per_turn", 2),
			options: map[string]any{}, from: side}
		for _, key := range t.order {
			rest, mine := strings.CutPrefix(key, "custom_envs."+name+".")
			option, isOption := strings.CutPrefix(rest, "env_config.")
			switch {
			case !mine || t.given[key] == nil:
			case rest == "max_actions_per_traj":
				s.allActions = t.integer(key, 0)
			case isOption:
				s.options[option] = t.given[key]
			}
		}
		size := s.options["dim_x"]
		if size != nil && s.options["dim_y"] != nil { // Sokoban's board, with Gyre's one option for both
			s.options["size"] = []any{size, s.options["dim_y"]}
			delete(s.options, "dim_x")
			delete(s.options, "dim_y")
		}
		if name == metaMath && s.options["problems"] == nil { // RAGEN's downloads the data set
			s.options["problems"] = metaMathFile
			t.note("get the problems: gyre data prepare metamathqa (writes %s)",
				metaMathFile)
		}
		out = append(out, s)
	}
	if total != groups {
		t.fail(side+".env_configs.n_groups", "adds up to %d groups, %s is %d", total, groupsKey, groups)
	}
	return out
}
