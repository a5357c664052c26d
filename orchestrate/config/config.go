// Package config reads experiments: TOML files with key=value overrides into typed, checked structs.
//
// Everything wrong with a configuration is reported at once, with the line or the override it comes from, what was
// expected and the nearest legal name. Every key has a default; Resolved writes all of them.
package config

// Config is a whole experiment: one struct per TOML table. A field's comment is its help text and its entry in
// docs/configuration.md. Tags: default is applied before the file is read, oneof lists the legal values, range is the
// interval of legal numbers.
type Config struct {
	Run        Run        `toml:"run"`
	Model      Model      `toml:"model"`
	LoRA       LoRA       `toml:"lora"`
	Envs       []Env      `toml:"envs"`
	Validation Validation `toml:"validation"`
	Rewards    []Reward   `toml:"rewards"`
	Rollout    Rollout    `toml:"rollout"`
	Sampling   Sampling   `toml:"sampling"`
	Filter     Filter     `toml:"filter"`
	Algorithm  Algorithm  `toml:"algorithm"`
	Actor      Actor      `toml:"actor"`
	Importance Importance `toml:"importance"`
	Critic     Critic     `toml:"critic"`
	Analysis   Analysis   `toml:"analysis"`
	Components Components `toml:"components"`
	EarlyStop  EarlyStop  `toml:"early_stop"`
	Collapse   Collapse   `toml:"collapse"`
	Checkpoint Checkpoint `toml:"checkpoint"`
	Engine     Engine     `toml:"engine"`
	FSDP       FSDP       `toml:"fsdp"`
	SFT        SFT        `toml:"sft"`

	preset string // what algorithm.preset has set, for people
	// ungrouped are the validation sources whose groups nobody gave, while checks run.
	ungrouped map[int]bool
	notes     []string // of checks
	training  []string // those on what only training plays
}

// Run names the experiment and says how long it lasts.
type Run struct {
	// Name of the run; its directory is output/name.
	Name string `toml:"name" default:"gyre-run"`
	// Number of training steps in total (a resumed run counts from where it stopped).
	Steps int `toml:"steps" default:"200" range:"[1,)"`
	// Master seed of every random draw that is not an environment's.
	Seed uint64 `toml:"seed" default:"1"`
	// Seed of the first training environment; groups and steps count up from it.
	EnvSeed int64 `toml:"env_seed" default:"10000"`
	// Validate after every N-th step and after the last; 0 = never.
	ValidateEvery int `toml:"validate_every" default:"10" range:"[0,)"`
	// Validate once before the first step; where validate_every is 0 only if this is set.
	ValidateFirst bool `toml:"validate_first" default:"true"`
	// Save a checkpoint after every N-th step and after the last; 0 = only after the last, -1 = never.
	SaveEvery int `toml:"save_every" default:"100" range:"[-1,)"`
	// Folder that holds run directories. Relative to the working directory.
	Output string `toml:"output" default:"runs"`
	// CPU threads of the numerical kernels; 0 = as many as there are cores, or half of them where that is measured to
	// be faster.
	Threads int `toml:"threads" default:"0" range:"[0,)"`
	// Which episodes are written to rollouts/step_N.jsonl.
	SaveRollouts string `toml:"save_rollouts" default:"all" oneof:"all,validation,none"`
	// Project of the run at experiment trackers.
	Project string `toml:"project" default:"gyre"`
	// Where metrics go: jsonl (metrics.jsonl, always), tensorboard (event files in tensorboard/), wandb (Weights &
	// Biases by its Python package; offline in wandb/ where no key is known), or { command = ["PROGRAM", …] }: a
	// program that gets the run and then every record, a line of JSON each.
	Loggers []Logger `toml:"loggers" default:"[\"jsonl\"]"`
}

// Model says which policy is trained.
type Model struct {
	// Hugging Face directory of the policy.
	Path string `toml:"path"`
	// Hugging Face directory of the KL reference, or http://HOST:PORT of a server with OpenAI's interface that gives
	// the log-probs of given tokens (gyre serve, vLLM); the initial policy when empty.
	Reference string `toml:"reference"`
	// Name that this server knows the reference by; empty = the only one that it lists.
	ReferenceName string `toml:"reference_name"`
	// Environment variable that holds the server's key.
	ReferenceKeyEnv string `toml:"reference_key_env"`
	// Jinja chat template that replaces the model's own (a file).
	ChatTemplate string `toml:"chat_template"`
	// What computes: cpu, a GPU as cuda or cuda:N, or aten (the GPU's operations on the CPU, slow: to check them).
	Device string `toml:"device" default:"cpu"`
	// Type of the arithmetic. auto is what is faster: bfloat16 on a GPU and on processors with AMX, or of AMD with
	// AVX512_BF16, float32 elsewhere; a run that is resumed, and a checkpoint that is analysed or evaluated, keep the
	// type that the run began with (config.toml names it). Weights and optimizer are float32 in any case. On the CPU
	// bfloat16 is the type of the factors of matrix products and of keys and values; sums and all else are float32.
	DType string `toml:"dtype" default:"auto" oneof:"auto,float32,bfloat16" aliases:"fp32=float32,f32=float32,bf16=bfloat16"`
	// Type in which the base of adapters is held, which does not learn. float32 and bfloat16 are those of the products
	// too, so that auto, dtype's, need not be changed. int8 is for the matrices of the blocks, with one scale for each
	// output channel, and takes half of bfloat16's memory. Products stay in dtype, of the numbers that int8 stands for,
	// alike in trainer and sampler. On the CPU only.
	BaseDType string `toml:"base_dtype" default:"auto" oneof:"auto,float32,bfloat16,int8"`
}

// LoRA trains adapters of low rank on a frozen policy in place of its weights: a matrix W becomes W + scale B A.
type LoRA struct {
	// Rank of the adapters; 0 = none, all weights are trained.
	Rank int `toml:"rank" default:"0" range:"[0,4096]"`
	// The product of the adapters' matrices is multiplied by alpha/rank.
	Alpha float64 `toml:"alpha" default:"32" range:"(0,)"`
	// Multiply by alpha/sqrt(rank) instead (rsLoRA), so that high ranks learn as fast as low ones.
	RSLoRA bool `toml:"rslora" default:"false"`
	// What gets adapters: all (the linear layers of the blocks), attention, mlp, experts (of a mixture), embedding,
	// head, or a list of these and of names such as ["q_proj", "v_proj"]. Where the head is tied to the embedding only
	// its own side changes.
	Targets Targets `toml:"targets" default:"all"`
	// Seed that new adapters follow from; 0 = run.seed.
	Seed uint64 `toml:"seed" default:"0"`
	// Directory of an adapter of PEFT's layout to start from, on the model in model.path; empty = a new one.
	Adapter string `toml:"adapter"`
	// Probability with which each number of an adapter's input is dropped in the passes of an update (PEFT's
	// lora_dropout). The sampler drops nothing.
	Dropout float64 `toml:"dropout" default:"0.0" range:"[0,1)"`
	// What the learning rates of actor, critic and SFT are multiplied by. Adapters learn best at about 10 times full
	// tuning's rates, so that 10 takes a configuration of full tuning as it is.
	LRScale float64 `toml:"lr_scale" default:"1.0" range:"(0,)"`
}

// Env is one training source: groups environments of one tag, each played group_size times per step.
type Env struct {
	// Environment tag; `gyre env list` names them.
	Tag string `toml:"tag"`
	// Groups per step (members of a group start from the same state).
	Groups int `toml:"groups" default:"8" range:"[1,)"`
	// Episodes per group.
	GroupSize int `toml:"group_size" default:"16" range:"[1,)"`
	// Turns (model replies) per episode.
	MaxTurns int `toml:"max_turns" default:"5" range:"[1,)"`
	// Environment actions per episode over all turns; 0 = the tag's own limit.
	MaxActions int `toml:"max_actions" default:"0" range:"[0,)"`
	// Environment actions accepted per turn; further ones are cut off.
	MaxActionsPerTurn int `toml:"max_actions_per_turn" default:"2" range:"[1,)"`
	// New tokens per turn; 0 = rollout.max_tokens.
	MaxTokens int `toml:"max_tokens" default:"0" range:"[0,)"`
	// Ask for a <think> block before the <answer>; when absent rollout.think.
	Think *bool `toml:"think"`
	// Separator between actions of one reply; when empty rollout.action_separator.
	ActionSeparator string `toml:"action_separator"`
	// Environment-specific options; `gyre env info TAG` lists them.
	Options map[string]any `toml:"options"`
}

// Reward weights one named part of the reward. With any [[rewards]], what an episode earns is their weighted sum (and
// the format penalty); without, it is the environment's own sum.
type Reward struct {
	// Name of the part, as environments give it ("correctness", "format").
	Name string `toml:"name"`
	// What the part is multiplied by.
	Weight float64 `toml:"weight" default:"1.0"`
	// Which tokens of a reply carry the component: its last one, all of them in equal shares (mean), or those of a
	// stretch of text that the environment names (spread); environment = as the environment places it. Acts with
	// rollout.turn_rewards.
	Placement string `toml:"placement" default:"environment" oneof:"environment,last,mean,spread"`
	// Options for environments that compute the part on request.
	Options map[string]any `toml:"options"`
}

// Validation is the fixed set of held-out episodes.
type Validation struct {
	// Validation sources, with the keys of [[envs]]; when absent, every training source with 512 groups of one. In a
	// source given here, groups and group_size default to 512 and 1, other keys to those of the training source with
	// the same tag, and the tag to that of the training source at the same place. A data set is played row by row from
	// its first; where groups is absent and it has less than 512 rows, that is their number.
	Envs []Env `toml:"envs" elements:"groups=512,group_size=1"`
	// Seed of the first validation environment; the set never changes.
	Seed int64 `toml:"seed" default:"123"`
	// Share of the first states that only validation begins with, and nothing else: training, demonstrations and
	// analysis pass over them, validation over all others, each to another seed. What is shown of a state decides, so
	// that both sides look alike; 0 = seeds alone divide, and small boards repeat (gyre env overlap counts).
	Holdout float64 `toml:"holdout" default:"0.0" range:"[0,0.9]"`
	// Sampling temperature while validating; 0 = greedy, else 1e-4 or more.
	Temperature float64 `toml:"temperature" default:"0.5" range:"[0,1e4]"`
	// Nucleus probability while validating.
	TopP float64 `toml:"top_p" default:"1.0" range:"(0,1]"`
	// Reward from which on a reply is a success, where [[rewards]] have no component correctness; 0 = the largest that
	// its components can earn. Where that is not known, as with a command, there is no success: runs are judged by
	// their score, and early_stop.low_success_count does not act.
	SuccessAt float64 `toml:"success_at" default:"0.0"`
	// Write every validation reply with the log-probs of its tokens to ppl_tracking_DATA/validation_step_N.json (DATA
	// as in components.data), which `gyre components perplexity` reads.
	Tracking bool `toml:"tracking" default:"false"`
}

// Rollout says how episodes are sampled and how replies are read.
type Rollout struct {
	// Sampling temperature; log-probs of the trained policy are taken at this temperature too.
	Temperature float64 `toml:"temperature" default:"1.0" range:"[1e-4,1e4]"`
	// Nucleus probability of sampling; 1 = off.
	TopP float64 `toml:"top_p" default:"1.0" range:"(0,1]"`
	// Keep only the k most likely tokens when sampling; 0 = off.
	TopK int `toml:"top_k" default:"0" range:"[0,)"`
	// Drop tokens less likely than min_p times the most likely one; 0 = off.
	MinP float64 `toml:"min_p" default:"0.0" range:"[0,1)"`
	// New tokens per turn.
	MaxTokens int `toml:"max_tokens" default:"400" range:"[1,)"`
	// Longest sequence in tokens; an episode that would grow beyond it ends as truncated, or forgets its oldest turns
	// (see context).
	MaxLength int `toml:"max_length" default:"3600" range:"[2,)"`
	// Ask for a <think> block before the <answer>.
	Think bool `toml:"think" default:"true"`
	// Separator between actions of one reply.
	ActionSeparator string `toml:"action_separator" default:"||"`
	// Added to the return once per turn whose reply names no legal action or an unknown one.
	FormatPenalty float64 `toml:"format_penalty" default:"-0.1"`
	// Prompt style: chat has a system message, rules and instructions per turn; compact shows the state only, for small
	// policies.
	Prompt string `toml:"prompt" default:"chat" oneof:"chat,compact"`
	// What the policy sees of the turns before: full, all of them in one conversation; window, the last of them, as a
	// conversation of its own wherever the window moves; single_turn, a summary of them in one message. Training sees
	// what the policy saw.
	Context string `toml:"context" default:"full" oneof:"full,window,single_turn" aliases:"limited_multi_turn=window"`
	// Turns in the window or the summary, the present one included; 0 = as many as fit in max_length.
	Window int `toml:"window" default:"0" range:"[0,)"`
	// What the summary of single_turn tells of a turn beside its state and reward: the whole reply, or the actions
	// only.
	Memory string `toml:"memory" default:"replies" oneof:"replies,actions"`
	// What becomes of a reply once it is read: sampled keeps it as it is, action puts the bare action block in its
	// place, which is fed back and trained on (RAGEN's first no_think_rl); log-probs are then those of the new
	// tokens, computed before the update.
	Replies string `toml:"replies" default:"sampled" oneof:"sampled,action"`
	// Per-turn credit: each turn's reward on its own last token instead of the whole return on the episode's last
	// token.
	TurnRewards bool `toml:"turn_rewards" default:"false"`
	// Whose returns a return is normalised against: its group's (state), its tag's or the batch's.
	NormalizeWithin string `toml:"normalize_within" default:"state" oneof:"state,tag,batch" aliases:"group=state"`
	// How returns are normalised.
	Normalize string `toml:"normalize" default:"identity" oneof:"identity,mean,mean_std,asym_clip"`
	// Seconds one environment call may take before its episode is ended with the reason "timeout".
	EnvTimeout float64 `toml:"env_timeout" default:"30" range:"(0,)"`
	// Length of the zone below max_length in which episodes are punished for their length, prompt included, ever more
	// towards its end (DAPO's overlong shaping, arXiv 2503.14476); 0 = off.
	OverlongTokens int `toml:"overlong_tokens" default:"0" range:"[0,)"`
	// What an episode of max_length tokens loses.
	OverlongPenalty float64 `toml:"overlong_penalty" default:"1.0" range:"[0,)"`
	// Training steps that may pass between the drawing of a token and the training on it; 0 = a step plays its own
	// batch. With more, episodes of later steps are played while environments wait and weights are updated.
	Staleness int `toml:"staleness" default:"0" range:"[0,1000]"`
	// What becomes of replies under way when the weights change: recompute, they go on and their keys and values are
	// computed again; keep, they go on from those of the older weights; finish, they are completed first.
	OnUpdate string `toml:"on_update" default:"recompute" oneof:"keep,recompute,finish"`
	// Share of the training episodes of the last four steps that may be left out because their environments failed,
	// each twice, before the run ends.
	MaxFailed float64 `toml:"max_failed" default:"0.5" range:"[0,1]"`
	// Environments that are stepped at once. Native ones answer in microseconds; raise it for ones that wait for a
	// network.
	EnvWorkers int `toml:"env_workers" default:"32" range:"[1,)"`
}

// Filter keeps the groups worth training on.
type Filter struct {
	// Which groups are kept: top_p those that hold the share value of all scores, top_k the share value of all groups,
	// top_k_abs value groups, min_p those that score at least value times the best, none all of them.
	Strategy string `toml:"strategy" default:"top_p" oneof:"top_p,top_k,top_k_abs,min_p,none"`
	// Threshold of the strategy; top_p with 1.0 and include_zero keeps everything.
	Value float64 `toml:"value" default:"1.0" range:"[0,)"`
	// How top_p turns scores into shares.
	ProbMode string `toml:"prob_mode" default:"linear" oneof:"linear,softmax"`
	// What a group is scored by. The two called variance are standard deviations, as in RAGEN; the entropy metrics
	// cost a forward pass.
	Metric string `toml:"metric" default:"reward_variance" oneof:"reward_variance,reward,reward_sum,entropy,entropy_variance,length" aliases:"reward_std=reward_variance,entropy_std=entropy_variance"`
	// Whether the largest or the smallest scores are preferred.
	Type string `toml:"type" default:"largest" oneof:"largest,smallest"`
	// Keep groups whose score is zero in the running.
	IncludeZero bool `toml:"include_zero" default:"true"`
	// Slack subtracted from the linear top_p threshold.
	SelectionEps float64 `toml:"selection_eps" default:"0.01" range:"[0,)"`
	// Batches that a step may play, one after the other, until as many groups as one of them has are worth training on,
	// their scores not being zero (DAPO's dynamic sampling, arXiv 2503.14476). Surplus groups are left out. 1 = the
	// step trains on what is there.
	MaxBatches int `toml:"max_batches" default:"1" range:"[1,1000]"`
	// Power of the kept ratio that advantages are multiplied by.
	LossScaling string `toml:"loss_scaling" default:"none" oneof:"none,linear,sqrt"`
	// Episodes that updates leave out, though they were played and the filter has seen them: env=TAG, row=NAME or
	// group=G, each at every step or, with @STEP behind it, at one. `gyre what-if` sets it.
	Without []string `toml:"without"`
}

// Algorithm turns rewards into advantages.
type Algorithm struct {
	// Sets keys of [algorithm], [actor] and [filter] to the published recipe of that name; keys that are given win,
	// and the run's log says which were set.
	Preset string `toml:"preset" oneof:",grpo,dr_grpo,dapo,gspo,cispo,sapo,lite_ppo"`
	// Advantage estimator; gae and bi_level_gae train a critic. docs/estimators.md says what is known of each.
	Advantage string `toml:"advantage" default:"gae" oneof:"gae,bi_level_gae,grpo,rloo,reinforce_pp,reinforce_pp_baseline,brpo,gdpo,optimal_token_baseline,reinforce,james_stein,gigpo,mt_grpo,turn_grpo,turn_rloo,optimal_turn_baseline" aliases:"tir_optimal_token_baseline=optimal_token_baseline,otb=optimal_token_baseline,bilevel_gae=bi_level_gae,reinforce_plus_plus=reinforce_pp,reinforce++=reinforce_pp,reinforce_plus_plus_baseline=reinforce_pp_baseline,reinforce++_baseline=reinforce_pp_baseline,gtpo=turn_grpo" hints:"ppo=gae: PPO is the loss, gae its advantages"`
	// Discount per token.
	Gamma float64 `toml:"gamma" default:"1.0" range:"[0,1]"`
	// GAE lambda.
	Lambda float64 `toml:"lambda" default:"1.0" range:"[0,1]"`
	// Discount per turn of bi_level_gae, gigpo, mt_grpo, turn_grpo, turn_rloo and optimal_turn_baseline.
	HighLevelGamma float64 `toml:"high_level_gamma" default:"0.95" range:"[0,1]"`
	// Weight of gigpo's comparison of turns that began in the same state, beside that of whole episodes.
	StepWeight float64 `toml:"step_weight" default:"1.0" range:"[0,)"`
	// Divide what grpo, brpo, gdpo, gigpo, mt_grpo and turn_grpo have centred by its standard deviation; for grpo,
	// false = Dr.GRPO.
	NormByStd bool `toml:"norm_by_std" default:"true"`
	// Coefficient of the KL term; 0 skips the reference pass altogether.
	KLCoef float64 `toml:"kl_coef" default:"0.0" range:"[0,)"`
	// KL estimator; a trailing + keeps the value and takes k2's gradient. RAGEN's and verl's spellings are accepted.
	KLEstimator string `toml:"kl_estimator" default:"k3" oneof:"k1,abs,k2,k3,k1+,abs+,k2+,k3+" aliases:"kl=k1,mse=k2,low_var_kl=k3"`
	// Whether the KL term is part of the loss, subtracted from the token rewards, or subtracted from each token's own
	// advantage, after the estimator: with model.reference = a teacher and kl_estimator = "k1" that is on-policy
	// distillation.
	KLIn string `toml:"kl_in" default:"loss" oneof:"loss,reward,advantage"`
	// Take the KL term of the loss exactly, as a divergence of two distributions over the reference's so many likeliest
	// tokens at each place and one outcome for all others, instead of kl_estimator's from the sampled token alone; the
	// whole vocabulary gives the full KL. 0 = off.
	KLTopK int `toml:"kl_top_k" default:"0" range:"[0,)"`
	// Controller of kl_coef when kl_in is not loss.
	KLControl string `toml:"kl_control" default:"fixed" oneof:"fixed,adaptive"`
	// Target of the adaptive controller.
	KLTarget float64 `toml:"kl_target" default:"0.1" range:"(0,)"`
	// Horizon of the adaptive controller in samples.
	KLHorizon float64 `toml:"kl_horizon" default:"10000" range:"(0,)"`
	// Coefficient of the entropy bonus.
	EntropyCoef float64 `toml:"entropy_coef" default:"0.001"`
	// Coefficient of a loss that balances the load of experts (docs/families.md); pretraining took 0.001 to 0.01.
	RouterAuxLossCoef float64 `toml:"router_aux_loss_coef" default:"0.0" range:"[0,)"`
	// Set the advantages of the task to zero, so that only entropy and KL act: an ablation, or distillation alone.
	ZeroTaskAdvantage bool `toml:"zero_task_advantage" default:"false"`
	// GRPO only: weigh a group by its reward standard deviation relative to the largest.
	SoftReweight bool `toml:"soft_reweight" default:"false"`
	// GRPO only: divide an episode's advantage by its relative length.
	LengthWeight bool `toml:"length_weight" default:"false"`
}

// Actor is the policy's optimizer and loss.
type Actor struct {
	// Learning rate.
	LR float64 `toml:"lr" default:"1e-6" range:"[0,)"`
	// Learning-rate schedule over training steps, those in which the filter kept nothing included: it ends with
	// run.steps.
	Schedule string `toml:"schedule" default:"constant" oneof:"constant,linear,cosine"`
	// Training steps of linear warm-up.
	WarmupSteps int `toml:"warmup_steps" default:"0" range:"[0,)"`
	// Final learning rate as a fraction of lr (linear and cosine).
	MinLRRatio float64 `toml:"min_lr_ratio" default:"0.0" range:"[0,1]"`
	// AdamW's decay rates.
	Betas [2]float64 `toml:"betas" default:"[0.9, 0.999]" range:"[0,1)"`
	// AdamW's epsilon.
	Eps float64 `toml:"eps" default:"1e-8" range:"(0,)"`
	// Decoupled weight decay.
	WeightDecay float64 `toml:"weight_decay" default:"0.01" range:"[0,)"`
	// Global gradient norm limit; 0 = off.
	ClipGrad float64 `toml:"clip_grad" default:"1.0" range:"[0,)"`
	// Policy loss of the sampled tokens (csrc/train/losses; docs/losses.md). Keys below that are constants of another
	// loss have no effect.
	Loss string `toml:"loss" default:"ppo" oneof:"ppo,decoupled_ppo,gspo,cispo,sapo,dppo,clip_cov,kl_cov,importance_sampling,dro" hints:"stable_reinforce=importance_sampling: no formula of stable_reinforce is published,tis=set importance.preset = \"token_tis\",icepop=set importance.preset = \"token_icepop\""`
	// Lower clip of the ratio: 1 - clip_low.
	ClipLow float64 `toml:"clip_low" default:"0.2" range:"[0,1]"`
	// Upper clip of the ratio: 1 + clip_high.
	ClipHigh float64 `toml:"clip_high" default:"0.28" range:"[0,)"`
	// Dual clip constant for negative advantages; 0 = off.
	ClipDual float64 `toml:"clip_dual" default:"3.0" range:"[0,)"`
	// sapo: steepness of the gate for tokens with a positive advantage.
	SapoTauPos float64 `toml:"sapo_tau_pos" default:"1.0" range:"(0,)"`
	// sapo: the same for a negative one.
	SapoTauNeg float64 `toml:"sapo_tau_neg" default:"1.05" range:"(0,)"`
	// dppo: what bounds a token's way from the old policy: total variation or binary KL divergence.
	DppoDivergence string `toml:"dppo_divergence" default:"tv" oneof:"tv,kl"`
	// dppo: bound for tokens with a negative advantage; with kl near 0.05.
	DppoLow float64 `toml:"dppo_low" default:"0.2" range:"[0,)"`
	// dppo: bound for tokens with a positive advantage; with kl near 0.05.
	DppoHigh float64 `toml:"dppo_high" default:"0.2" range:"[0,)"`
	// dppo: largest ratio that weighs a token.
	DppoCap float64 `toml:"dppo_cap" default:"20" range:"(0,)"`
	// clip_cov: share of a mini-batch's tokens that learn nothing, drawn from those with a high covariance.
	ClipCovRatio float64 `toml:"clip_cov_ratio" default:"0.0002" range:"(0,1]"`
	// clip_cov: the least covariance of log-prob and advantage of a token that may be drawn.
	ClipCovLow float64 `toml:"clip_cov_low" default:"1.0"`
	// clip_cov: the largest.
	ClipCovHigh float64 `toml:"clip_cov_high" default:"5.0"`
	// kl_cov: share of a mini-batch's tokens, those of the highest covariance, that are held back.
	KLCovRatio float64 `toml:"kl_cov_ratio" default:"0.0002" range:"(0,1]"`
	// kl_cov: weight of their distance from the old policy.
	KLCovCoef float64 `toml:"kl_cov_coef" default:"1.0" range:"[0,)"`
	// dro: weight of the squared distance from the behaviour policy.
	DroBeta float64 `toml:"dro_beta" default:"0.05" range:"(0,)"`
	// Share of a mini-batch's tokens, those of the highest entropy, that the policy loss learns from
	// (arXiv 2506.01939); 1 = all.
	EntropyTop float64 `toml:"entropy_top" default:"1.0" range:"(0,1]"`
	// Episodes per optimizer step. Where it is absent and the episodes of a training step are no multiple of the
	// default, it is the largest number below that cuts them into equal shares, as nearly as they can be.
	MiniBatch int `toml:"mini_batch" default:"32" range:"[1,)"`
	// Tokens per forward and backward pass, those of a common prefix counted once (memory, not mathematics).
	MicroBatchTokens int `toml:"micro_batch_tokens" default:"1024" range:"[1,)"`
	// Keep only the inputs of the blocks between forward and backward pass and compute the rest again: about a tenth
	// of the activations' memory, a quarter more time. A smaller micro_batch_tokens costs less until episodes are
	// longer than that.
	RecomputeActivations bool `toml:"recompute_activations" default:"false"`
	// Passes over the batch per step.
	Epochs int `toml:"epochs" default:"1" range:"[1,)"`
	// How token losses become the loss of a mini-batch; the last one divides the sum by the number of predicted tokens
	// of the step's longest episode. When absent, gspo and sapo take seq-mean-token-mean.
	LossAggregation string `toml:"loss_aggregation" default:"token-mean" oneof:"token-mean,token-sum,seq-mean-token-sum,seq-mean-token-mean,seq-mean-token-sum-norm"`
	// Recompute log-probs before the update even when the sampler's are proven equal.
	RecomputeLogprobs bool `toml:"recompute_logprobs" default:"false"`
}

// Critic is the value network of gae and bi_level_gae.
type Critic struct {
	// Hugging Face directory of the critic's backbone; the policy's when empty.
	Path string `toml:"path"`
	// Learning rate.
	LR float64 `toml:"lr" default:"1e-5" range:"[0,)"`
	// Learning-rate schedule over training steps.
	Schedule string `toml:"schedule" default:"constant" oneof:"constant,linear,cosine"`
	// Training steps of linear warm-up.
	WarmupSteps int `toml:"warmup_steps" default:"0" range:"[0,)"`
	// Decoupled weight decay.
	WeightDecay float64 `toml:"weight_decay" default:"0.01" range:"[0,)"`
	// Global gradient norm limit; 0 = off.
	ClipGrad float64 `toml:"clip_grad" default:"1.0" range:"[0,)"`
	// Value clip around the old value; 0 = off.
	ClipValue float64 `toml:"clip_value" default:"0.5" range:"[0,)"`
	// Episodes per optimizer step; 0 = actor.mini_batch.
	MiniBatch int `toml:"mini_batch" default:"0" range:"[0,)"`
	// Passes over the batch per step.
	Epochs int `toml:"epochs" default:"1" range:"[1,)"`
	// Steps during which only the critic learns (actor and analysis wait).
	Warmup int `toml:"warmup" default:"0" range:"[0,)"`
}

// SFT is supervised fine-tuning on expert demonstrations.
type SFT struct {
	// Demonstration episodes generated from the training environments' solver.
	Episodes int `toml:"episodes" default:"1000" range:"[1,)"`
	// Held-out demonstrations for the validation loss.
	ValidationEpisodes int `toml:"validation_episodes" default:"100" range:"[0,)"`
	// Passes over the demonstrations.
	Epochs int `toml:"epochs" default:"5" range:"[1,)"`
	// Episodes per optimizer step.
	Batch int `toml:"batch" default:"32" range:"[1,)"`
	// Learning rate.
	LR float64 `toml:"lr" default:"1e-4" range:"(0,)"`
	// Learning-rate schedule over optimizer steps.
	Schedule string `toml:"schedule" default:"cosine" oneof:"constant,linear,cosine"`
	// Final learning rate as a fraction of lr (linear and cosine).
	MinLRRatio float64 `toml:"min_lr_ratio" default:"0.1" range:"[0,1]"`
	// Optimizer steps of linear warm-up.
	WarmupSteps int `toml:"warmup_steps" default:"10" range:"[0,)"`
	// Seed of the first demonstration level.
	EnvSeed int64 `toml:"env_seed" default:"100000"`
	// Probability that a demonstration takes a random legal action instead of the expert's before it continues; 0 =
	// pure expert.
	Noise float64 `toml:"noise" default:"0.0" range:"[0,1)"`
	// Probability of a turn of random actions that is learned like the expert's: an imperfect teacher, whom practice
	// can surpass.
	Mistakes float64 `toml:"mistakes" default:"0.0" range:"[0,1)"`
	// JSONL of episodes to learn from instead of generated ones.
	Data string `toml:"data"`
}

//go:generate go test -run TestReferenceIsUpToDate -args -update
