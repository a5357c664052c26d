package translate

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
)

// fromCheckpoint is the long command of RAGEN's guide: resume step 100, analyse once, stop.
const fromCheckpoint = `CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 python train.py --config-name _2_sokoban model_path=Qwen/Qwen2.5-3B
trainer.project_name=ragen_gradient_analysis trainer.experiment_name=sokoban-PPO-filter-topp09-grad-from-ckpt100
trainer.default_local_dir=model_saving/gradient_analysis/sokoban/PPO/filter/sokoban-PPO-filter-topp09-grad-from-ckpt100
trainer.resume_mode=resume_path trainer.resume_from_path=/ABS/PATH/TO/your_run/global_step_100 trainer.total_training_steps=101
trainer.save_freq=-1 trainer.val_before_train=False trainer.test_freq=-1 trainer.n_gpus_per_node=8 ray_kwargs.ray_init.num_cpus=16
system.CUDA_VISIBLE_DEVICES='0,1,2,3,4,5,6,7' es_manager.train.env_groups=32 es_manager.train.group_size=16
es_manager.train.env_configs.n_groups=[32] actor_rollout_ref.actor.use_kl_loss=False actor_rollout_ref.actor.kl_loss_type=low-var-kl
actor_rollout_ref.actor.kl_loss_coef=0.001 actor_rollout_ref.actor.entropy_coeff=0.001
actor_rollout_ref.actor.entropy_from_logits_with_chunking=True actor_rollout_ref.actor.filter_loss_scaling=none
actor_rollout_ref.actor.loss_agg_mode=token-mean actor_rollout_ref.rollout.gpu_memory_utilization=0.3
actor_rollout_ref.rollout.rollout_filter_value=0.9 actor_rollout_ref.rollout.rollout_filter_strategy=top_p
actor_rollout_ref.rollout.rollout_filter_top_p_prob_mode=softmax actor_rollout_ref.rollout.rollout_filter_type=largest
actor_rollout_ref.rollout.rollout_filter_metric=reward_variance actor_rollout_ref.rollout.rollout_filter_include_zero=True
algorithm.adv_estimator=gae trainer.gradient_analysis_mode=True trainer.gradient_analysis_every=1
trainer.exit_after_gradient_analysis=True actor_rollout_ref.rollout.gradient_analysis_num_buckets=6
actor_rollout_ref.rollout.gradient_analysis_bucket_mode=quantile`

func translated(t *testing.T, text string) Result {
	t.Helper()
	r, err := Words(strings.Fields(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

// The resolved run analyses at the same step, on the same batch, and ends there.
func TestRunFromACheckpoint(t *testing.T) {
	r := translated(t, fromCheckpoint)
	c := r.Config
	if !slices.Equal(r.Command, []string{"--resume-from", "/ABS/PATH/TO/your_run/global_step_100"}) {
		t.Errorf("command %v", r.Command)
	}
	const resumed = 100
	a := c.Analysis
	if step := resumed + 1; !a.Enabled || (step-1)%a.Every != 0 || c.Run.Steps != step || !a.ExitAfter {
		t.Errorf("steps %d, analysis %+v: expected one at step %d and the end", c.Run.Steps, a, step)
	}
	if e := c.Envs; c.Separate() || len(e) != 1 || e[0].Tag != "CoordSokoban" || e[0].Groups != 32 ||
		e[0].GroupSize != 16 || e[0].MaxTurns != 5 || e[0].MaxActionsPerTurn != 2 {
		t.Errorf("the batch is that of %+v, separate %v", e, c.Separate())
	}
	want := config.Filter{Strategy: "top_p", Value: 0.9, ProbMode: "softmax", Metric: "reward_variance",
		Type: "largest", IncludeZero: true, SelectionEps: 0.01, MaxBatches: 1, LossScaling: "none"}
	if c.Filter != want || c.Algorithm.KLCoef != 0 || c.Algorithm.Advantage != "gae" ||
		c.Algorithm.EntropyCoef != 0.001 || a.NumBuckets != 6 || a.Buckets != "quantile" {
		t.Errorf("filter %+v, algorithm %+v, analysis %+v", c.Filter, c.Algorithm, a)
	}
	if c.Run.Name != "sokoban-PPO-filter-topp09-grad-from-ckpt100" ||
		c.Run.Output != "model_saving/gradient_analysis/sokoban/PPO/filter" || c.Run.SaveEvery != -1 ||
		c.Run.ValidateEvery != 0 || c.Run.ValidateFirst || c.Model.Path != "models/Qwen2.5-3B" {
		t.Errorf("run %+v, model %s", c.Run, c.Model.Path)
	}
	for _, key := range []string{"ray_kwargs.ray_init.num_cpus", "system.CUDA_VISIBLE_DEVICES",
		"actor_rollout_ref.rollout.gpu_memory_utilization",
		"actor_rollout_ref.actor.entropy_from_logits_with_chunking", "CUDA_VISIBLE_DEVICES"} {
		if !slices.ContainsFunc(r.Unused, func(u Unused) bool { return u.Key == key && u.Why != "" }) {
			t.Errorf("%s is not named as without counterpart", key)
		}
	}
	if len(r.Unused) != 5 || c.Run.Project != "ragen_gradient_analysis" {
		t.Errorf("without counterpart: %v", r.Unused)
	}
}

// Where nothing is said, the document resolves to Gyre's own defaults, and RAGEN's project.
func TestDefaultsAreShared(t *testing.T) {
	r := translated(t, "--config-name _2_sokoban")
	want, err := config.Parse("x", []byte("model.path = \"models/Qwen2.5-3B-Instruct\"\nrun.name=\"sokoban-main\"\nrun.project=\"ragen\"\n[[envs]]\ntag = \"CoordSokoban\"\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(r.Config, want) {
		t.Errorf("got\n%s\n%+v, want\n%+v", r.Document, r.Config, want)
	}
}

func TestSettingsThatActTogether(t *testing.T) {
	for words, check := range map[string]func(c *config.Config) bool{
		"lora.rank=8 lora.alpha=24 lora.target_modules=all-linear": func(c *config.Config) bool {
			return c.LoRA.Rank == 8 && c.LoRA.Alpha == 24 && slices.Equal(c.LoRA.Targets, []string{"all"})
		},
		"lora.rank=0 lora.alpha=24": func(c *config.Config) bool { return c.LoRA.Rank == 0 && c.LoRA.Alpha == 32 },
		"actor_rollout_ref.actor.use_kl_loss=True": func(c *config.Config) bool {
			return c.Algorithm.KLCoef == 0.001 && c.Algorithm.KLEstimator == "k1" && c.Algorithm.KLIn == "loss"
		},
		"actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.03 " +
			"actor_rollout_ref.actor.kl_loss_type=low_var_kl": func(c *config.Config) bool {
			return c.Algorithm.KLCoef == 0.03 && c.Algorithm.KLEstimator == "k3"
		},
		"actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.use_ref=False": func(c *config.Config) bool { return c.Algorithm.KLCoef == 0 },
		"algorithm.use_kl_in_reward=True algorithm.kl_ctrl.type=adaptive": func(c *config.Config) bool {
			return c.Algorithm.KLIn == "reward" && c.Algorithm.KLControl == "adaptive"
		},
		"algorithm.bi_level_gae=True algorithm.adv_estimator=gae":                             func(c *config.Config) bool { return c.Algorithm.Advantage == "bi_level_gae" && c.Rollout.TurnRewards },
		"algorithm.adv_estimator=reinforce_plus_plus":                                         func(c *config.Config) bool { return c.Algorithm.Advantage == "reinforce_pp" },
		"actor_rollout_ref.rollout.rollout_filter_ratio=0.25":                                 func(c *config.Config) bool { return c.Filter.Strategy == "top_k" && c.Filter.Value == 0.25 },
		"actor_rollout_ref.rollout.rollout_filter_type=std_rev":                               func(c *config.Config) bool { return c.Filter.Type == "smallest" },
		"+trainer.save_freq=null ++trainer.test_freq=0":                                       func(c *config.Config) bool { return c.Run.SaveEvery == 100 && c.Run.ValidateEvery == 0 },
		"seed.train=7 ~seed.train seed.val=9":                                                 func(c *config.Config) bool { return c.Run.EnvSeed == 10000 && c.Validation.Seed == 9 },
		"trainer.logger=[console,wandb]":                                                      func(c *config.Config) bool { return len(c.Run.Loggers) == 2 && c.Run.Logs("wandb") },
		"actor_rollout_ref.rollout.val_kwargs.do_sample=False":                                func(c *config.Config) bool { return c.Validation.Temperature == 0 },
		"actor_rollout_ref.actor.clip_ratio=0.1 actor_rollout_ref.actor.clip_ratio_high=0.3":  func(c *config.Config) bool { return c.Actor.ClipLow == 0.1 && c.Actor.ClipHigh == 0.3 },
		"actor_rollout_ref.rollout.n=8 data.train_batch_size=32 algorithm.adv_estimator=grpo": func(c *config.Config) bool { return c.Envs[0].Groups == 32 && c.Envs[0].GroupSize == 8 },
		"data.max_prompt_length=512 data.max_response_length=1024":                            func(c *config.Config) bool { return c.Rollout.MaxLength == 1536 && c.Rollout.MaxTokens == 1024 },
		"actor_rollout_ref.actor.checkpoint.save_contents=[model]":                            func(c *config.Config) bool { return !c.Checkpoint.Optimizer },
		"agent_proxy.context_window_mode=limited_multi_turn agent_proxy.max_context_window=5": func(c *config.Config) bool {
			return c.Rollout.Context == "window" && c.Rollout.Window == 5
		},
		"agent_proxy.max_context_window=5": func(c *config.Config) bool {
			return c.Rollout.Context == "full" &&
				c.Rollout.Window == 0
		},
		"agent_proxy.enable_think=False": func(c *config.Config) bool {
			return !c.Rollout.Think &&
				c.Rollout.Replies == "sampled"
		},
		"collapse_detection.compute_freq=5 collapse_detection.num_samples=all": func(c *config.Config) bool {
			return c.Collapse.Every == 5 && c.Collapse.Samples == 4096
		},
		"algorithm.adv_estimator=grpo data.train_files=/d/train.parquet data.val_files=[/d/test.parquet] " +
			"data.train_batch_size=32 data.max_prompt_length=512 data.max_response_length=1024 " +
			"actor_rollout_ref.model.path=/m actor_rollout_ref.actor.use_kl_loss=True " +
			"actor_rollout_ref.actor.kl_loss_coef=0.001 actor_rollout_ref.rollout.name=vllm " +
			"actor_rollout_ref.rollout.n=8 trainer.save_freq=20 trainer.test_freq=5 trainer.total_epochs=10": func(c *config.Config) bool {
			e, v := c.Envs[0], c.Validation.Envs[0]
			return e.Tag == "Dataset" && e.Groups == 32 && e.GroupSize == 8 && e.MaxTurns == 1 &&
				e.Options["file"] == "/d/train.parquet" && v.Options["file"] == "/d/test.parquet" &&
				c.Model.Path == "/m" && c.Run.SaveEvery == 20 && c.Rollout.MaxLength == 1536
		},
		"--config-name=_1_bandit": func(c *config.Config) bool {
			return len(c.Validation.Envs) == 2 && c.Validation.Envs[1].Tag == "BanditTest" &&
				c.Validation.Envs[1].Groups == 256
		},
		"es_manager.train.env_configs.tags=[SimpleSokoban,FrozenLake] es_manager.train.env_configs.n_groups=[6,2] " +
			"custom_envs.SimpleSokoban.env_config.dim_x=8 custom_envs.SimpleSokoban.env_config.dim_y=7 " +
			"custom_envs.SimpleSokoban.env_config.num_boxes=2 custom_envs.FrozenLake.max_actions_per_traj=20": func(c *config.Config) bool {
			return len(c.Envs) == 2 && c.Envs[0].Groups == 6 && reflect.DeepEqual(c.Envs[0].Options,
				map[string]any{"num_boxes": int64(2), "size": []any{int64(8), int64(7)}}) && c.Envs[1].MaxActions == 20
		},
	} {
		if r := translated(t, words); !check(r.Config) {
			t.Errorf("%s becomes\n%s", words, r.Document)
		}
	}
}

func TestResolvedFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolved.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(`model_path: Qwen/Qwen2.5-0.5B
trainer: {total_training_steps: 400, save_freq: -1, experiment_name: a/b, gradient_analysis_env_groups: null, logger: [console]}
actor_rollout_ref:
  actor: {optim: {lr: 1.0e-6, betas: [0.9, 0.95]}, use_kl_loss: true, kl_loss_coef: 0.01, fsdp_config: {param_offload: false}}
  rollout: {rollout_filter_value: 0.8, rollout_filter_strategy: top_p, n: 1}
es_manager:
  train: {env_groups: 4, group_size: 8, env_configs: {tags: [CoordFrozenLake], n_groups: [4]}}
  val: {env_groups: 32, group_size: 1, env_configs: {tags: [CoordFrozenLake], n_groups: [32]}}
`)
	r := translated(t, "--yaml "+path+" trainer.total_training_steps=5")
	c := r.Config
	if c.Run.Steps != 5 || c.Run.Name != "a-b" || c.Actor.LR != 1e-6 || c.Actor.Betas != [2]float64{0.9, 0.95} ||
		c.Algorithm.KLCoef != 0.01 || c.Envs[0].GroupSize != 8 ||
		c.Validation.Envs[0].Groups != 32 || c.Separate() {
		t.Errorf("%s", r.Document)
	}
	if len(r.Unused) != 1 || r.Unused[0].Key != "actor_rollout_ref.actor.fsdp_config.param_offload" {
		t.Errorf("without counterpart: %v", r.Unused)
	}
	write("trainer: {n: \"${a.b}\"}\n")
	if _, err := Words([]string{"--yaml", path}); err == nil || !strings.Contains(err.Error(), "not resolved") {
		t.Errorf("interpolations: %v", err)
	}
}

func TestTrainSh(t *testing.T) {
	r, err := Words(strings.Fields("--train-sh two_armed_bandit model.base_model=Qwen/Qwen2.5-3B-Instruct " +
		"model.experiment_name=x training.micro_batch_size=4 training.train_batch_size=32 training.ppo_batch_size=32 " +
		"training.max_turns=1 training.n_rollout=1 optimization.kl_coef=0.001 optimization.adv_estimator=brpo " +
		"training.val_data_num="))
	if err != nil {
		t.Fatal(err)
	}
	c := r.Config
	if e := c.Envs[0]; e.Tag != "TwoArmedBandit" || e.Groups != 32 || e.GroupSize != 1 || e.MaxTurns != 1 ||
		c.Validation.Envs[0].Groups != 500 || c.Rollout.FormatPenalty != 0 ||
		c.Algorithm.Advantage != "brpo" || c.Algorithm.KLEstimator != "k3" || c.Actor.ClipHigh != 0.2 ||
		c.Run.Steps != 5*(10000/32) || c.Rollout.MaxLength != 400+400+200 || c.Analysis.Enabled {
		t.Errorf("%s", r.Document)
	}
	r, err = Words(strings.Fields("--train-sh frozenlake rl_or_sft=sft " +
		"sft.output_dir=models/sft/frozenlake/Qwen2.5-3B-Instruct sft.training.base_model=Qwen/Qwen2.5-3B-Instruct " +
		"sft.training.experiment_name=y sft.data_generation.train_size=2000 sft.data_generation.test_size=200 " +
		"sft.training.epochs=5 training.n_rollout=1"))
	if err != nil {
		t.Fatal(err)
	}
	if c = r.Config; c.Run.Output != "models/sft/frozenlake" || c.Run.Name != "Qwen2.5-3B-Instruct" ||
		c.SFT.Episodes != 2000 || c.SFT.ValidationEpisodes != 200 || c.SFT.Epochs != 5 ||
		c.Model.Path != "models/Qwen2.5-3B-Instruct" || c.Rollout.FormatPenalty != -1 {
		t.Errorf("%s", r.Document)
	}
}

// Every command of the base experiments, at every size that stands there.
func TestBaseExperiments(t *testing.T) {
	for _, env := range []string{"two_armed_bandit", "sokoban", "frozenlake"} {
		shape := "training.micro_batch_size=4 training.train_batch_size=4 training.ppo_batch_size=32 " +
			"training.max_turns=5 training.n_rollout=8"
		if env == "two_armed_bandit" {
			shape = "training.micro_batch_size=4 training.train_batch_size=32 training.ppo_batch_size=32 " +
				"training.max_turns=1 training.n_rollout=1"
		}
		for _, size := range []string{"0.5B", "1.5B", "3B", "7B"} {
			model := "Qwen/Qwen2.5-" + size + "-Instruct"
			for kind, words := range map[string]string{
				"main": "model.base_model=" + model + " model.experiment_name=a_main " + shape +
					" optimization.kl_coef=0.001 optimization.adv_estimator=brpo system.n_gpus=2",
				"no_think": "model.base_model=" + model + " model.experiment_name=a " + shape +
					" training.no_think_rl=True optimization.kl_coef=0.001 optimization.adv_estimator=brpo",
				"sft": "rl_or_sft=sft sft.output_dir=models/sft/" + env + "/x sft.training.base_model=" + model + " " +
					"sft.training.experiment_name=a sft.data_generation.train_size=2000 " +
					"sft.data_generation.test_size=200 sft.training.micro_batch_size=4 sft.training.epochs=5 " +
					"training.val_batch_size=10 training.val_data_num= training.n_rollout=1 " +
					"optimization.adv_estimator=brpo",
			} {
				r, err := Words(append([]string{"--train-sh", env}, strings.Fields(words)...))
				if err != nil {
					t.Errorf("%s %s: %v", env, words, err)
				} else if r.Config.Model.Path != "models/Qwen2.5-"+size+"-Instruct" ||
					(kind == "sft") != (r.Config.SFT.Episodes == 2000) ||
					(kind == "no_think") != (r.Config.Rollout.Replies == "action") {
					t.Errorf("%s %s becomes\n%s", env, words, r.Document)
				}
			}
		}
	}
}

func TestErrors(t *testing.T) {
	for words, want := range map[string]string{
		"":                                  "nothing to translate",
		"--config-name _2_sokban":           "did you mean _2_sokoban?",
		"--config-name _6_webshop":          "name RAGEN's own environment",
		"--yaml":                            "needs a value",
		"seed.train=1 extra":                "extra is no key=value",
		"trainer.total_training_steps=many": "run.steps",
		"algorithm.adv_estimator=remax":     "algorithm.advantage",
		"agent_proxy.max_turn=two":          "agent_proxy.max_turn is two, expected a number",
		"trainer.resume_mode=resume_path":   "trainer.resume_from_path is missing",
		"es_manager.train.env_groups=8 es_manager.train.env_configs.n_groups=[4]":           "adds up to 4 groups",
		"es_manager.train.env_configs.tags=[A,B] es_manager.train.env_configs.n_groups=[8]": "has 1 numbers for 2 tags",
		"actor_rollout_ref.actor.use_kl_loss=perhaps":                                       "expected true or false",
		"actor_rollout_ref.rollout.rollout_filter_strategy=best":                            "filter.strategy",
	} {
		if _, err := Words(strings.Fields(words)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v; want one with %q", words, err, want)
		}
	}
	if _, err := Words([]string{"--train-sh", "chess"}); err == nil || !strings.Contains(err.Error(), "chess is no environment") {
		t.Errorf("another environment: %v", err)
	}
	if _, err := Words([]string{"--train-sh=sokoban", "training.max_turn=3"}); err == nil ||
		!strings.Contains(err.Error(), "did you mean training.max_turns?") {
		t.Errorf("an unknown key of train.sh: %v", err)
	}
	r := translated(t, "trainer.total_trainig_steps=3 seed.train=1")
	if len(r.Unused) != 1 || !strings.Contains(r.Unused[0].Why, "did you mean trainer.total_training_steps?") {
		t.Errorf("a slip: %v", r.Unused)
	}
}

// What verl's words become is what scripts/run_grpo.sh makes of the same words.
func TestVerlIsWhatTheScriptRuns(t *testing.T) {
	dir := t.TempDir()
	train, test, stub, said := filepath.Join(dir, "train.jsonl"), filepath.Join(dir, "test.jsonl"),
		filepath.Join(dir, "gyre"), filepath.Join(dir, "said")
	row := `{"prompt": [{"role": "user", "content": "1 + 1?"}], "reward_model": {"ground_truth": "2"}}` + "\n"
	for path, text := range map[string]string{train: strings.Repeat(row, 470), test: strings.Repeat(row, 30),
		stub: "#!/bin/sh\nprintf '%s\\n' \"$@\" >" + said + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const grpo = "algorithm.adv_estimator=grpo data.train_batch_size=16 data.max_prompt_length=512 " +
		"data.max_response_length=1024 actor_rollout_ref.model.path=models/M actor_rollout_ref.actor.optim.lr=2e-6 " +
		"actor_rollout_ref.model.enable_gradient_checkpointing=True actor_rollout_ref.actor.ppo_mini_batch_size=8 " +
		"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 actor_rollout_ref.actor.use_kl_loss=True " +
		"actor_rollout_ref.actor.kl_loss_coef=0.002 actor_rollout_ref.rollout.name=vllm " +
		"actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.rollout.n=4 trainer.total_epochs=3 " +
		"trainer.save_freq=20 trainer.test_freq=5 custom_reward_function.path=utils/rewards.py custom_reward_function.name=compute_correctness_score"
	words := append(strings.Fields(grpo), "data.train_files="+train, "data.val_files="+test)
	script := exec.Command("bash", append([]string{"../../../scripts/run_grpo.sh"}, words...)...)
	script.Env = append(os.Environ(), "GYRE="+stub)
	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	arguments, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(arguments)), "\n")
	run, err := config.Load(lines[1], slices.DeleteFunc(lines[2:],
		func(w string) bool { return strings.HasPrefix(w, "--") || w == "8" }))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Words(append(strings.Fields("python3 -m verl.trainer.main_ppo"), words...))
	if err != nil {
		t.Fatal(err)
	}
	// The script measures the components besides, names the run, keeps more checkpoints and takes verl's project for
	// none.
	run.Components, run.Rewards, run.Run.Name, run.Checkpoint.Keep, run.Run.Project = r.Config.Components,
		r.Config.Rewards, r.Config.Run.Name, r.Config.Checkpoint.Keep, r.Config.Run.Project
	run.Validation.Tracking = false
	texts := [2][]byte{}
	for i, c := range []*config.Config{r.Config, run} {
		if texts[i], err = config.Resolved(c); err != nil {
			t.Fatal(err)
		}
	}
	if differ, err := config.Compare(texts[0], texts[1]); err != nil || len(differ) > 0 {
		t.Errorf("the script's run differs (%v):\n%v", err, differ)
	}
	if got := r.Config.Rewards; len(got) != 1 || !strings.HasSuffix(show(got[0].Options["command"]),
		"scripts/reward_command.py,utils/rewards.py,compute_correctness_score]") {
		t.Errorf("the reward is %+v", got)
	}
}

// The programs of verl and of rldynamic stand for what they do beside training; a file may be verl's own, which is not
// here.
func TestPrograms(t *testing.T) {
	for words, check := range map[string]func(c *config.Config) bool{
		"python -m custom_training.custom_main_ppo --config config/ppo_trainer.yaml data.train_batch_size=4 " +
			"actor_rollout_ref.rollout.n=2": func(c *config.Config) bool {
			return c.Components.Save == "projection" &&
				c.Components.Link == "."
		},
		"python -m custom_training.custom_main_ppo_2 --config config/ppo_trainer.yaml data.train_batch_size=4 " +
			"actor_rollout_ref.rollout.n=2": func(c *config.Config) bool {
			return !c.Components.Enabled && c.Components.Tracking && c.Components.Data == "math500"
		},
		"python3 -m verl.trainer.main_ppo data.train_batch_size=4 actor_rollout_ref.rollout.n=2 " +
			"trainer.n_gpus_per_node=8 actor_rollout_ref.rollout.val_kwargs.do_sample=True " +
			"actor_rollout_ref.rollout.val_kwargs.temperature=0.6": func(c *config.Config) bool {
			return c.Actor.MiniBatch == 8 && c.Validation.Temperature == 0.6 && !c.Rollout.Think &&
				c.Rollout.Prompt == "compact"
		},
	} {
		if r := translated(t, words); !check(r.Config) {
			t.Errorf("%s\n%s", words, r.Document)
		}
	}
	r := translated(t, "python3 -m verl.trainer.main_ppo data.train_batch_size=4 trainer.n_gpus_per_node=8")
	if !slices.ContainsFunc(r.Notes, func(n string) bool {
		return strings.Contains(n,
			"--ranks 8 model.device=cuda")
	}) {
		t.Errorf("notes %q", r.Notes)
	}
	if _, err := Words(strings.Fields("python3 -m verl.trainer.main_dpo a=1")); err == nil ||
		!strings.Contains(err.Error(), "verl.trainer.main_ppo") {
		t.Errorf("another program: %v", err)
	}
}

// What the tables promise exists, every key stands in one row, and every task can be translated or says why not.
func TestTables(t *testing.T) {
	resolved, err := config.Resolved(translated(t, "--config-name _2_sokoban").Config)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if _, err := toml.Decode(string(resolved), &tree); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, chapter := range []string{"Keys of RAGEN and verl", "Keys of the first RAGEN"} {
		seen := map[string]bool{}
		for _, r := range table(chapter) {
			for _, key := range r.keys {
				if seen[key] {
					t.Errorf("%s stands in two rows", key)
				}
				seen[key], known[key] = true, true
			}
			if r.ours == nil && r.how == "" {
				t.Errorf("%s: no counterpart and no reason", r.keys)
			}
			for _, ours := range r.ours {
				name, key, dotted := strings.Cut(ours, ".")
				if !dotted || strings.ContainsAny(ours, " *[") {
					continue
				}
				inner, _ := tree[name].(map[string]any)
				if _, ok := inner[key]; !ok {
					t.Errorf("%s becomes %s, which is no key", r.keys, ours)
				}
			}
		}
		if len(seen) < 40 {
			t.Errorf("%s: %d keys were read from the page", chapter, len(seen))
		}
	}
	for key := range conversions {
		if !known[key] {
			t.Errorf("a conversion of %s, which no table has", key)
		}
	}
	for name := range tasks() {
		_, err := Words([]string{"--config-name", name})
		if refused := tasks()[name].how != ""; (err != nil) != refused {
			t.Errorf("--config-name %s: %v", name, err)
		}
	}
}

func FuzzWords(f *testing.F) {
	f.Add("trainer.save_freq=[1] algorithm.adv_estimator={a: 1} model_path='x\"\\x00'")
	f.Add(fromCheckpoint)
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "--yaml") {
			return
		}
		r, err := Words(strings.Fields(text))
		if err == nil && r.Config == nil {
			t.Fatal("no configuration and no error")
		}
	})
}

// A document whose data files are still to be fetched is written, with a note that says how.
func TestMissingDataIsANote(t *testing.T) {
	t.Chdir(t.TempDir())
	result, err := Words([]string{"--config-name", "_5_metamathqa"}, experiment.CheckEnvironments(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	text, notes := string(result.Document), strings.Join(result.Notes, "\n")
	if !strings.Contains(text, `problems = "data/metamathqa/train.jsonl"`) || !strings.Contains(notes,
		"gyre data prepare metamathqa") {
		t.Errorf("document and notes:\n%s\n%s", text, notes)
	}
}
