package config

// Config is a whole experiment: one struct per TOML table. A field's comment is its help text and its entry in
// docs/configuration.md; `default` tags are applied before the file is read.
type Config struct {
	Run        Run        `toml:"run"`
	Model      Model      `toml:"model"`
	Envs       []Env      `toml:"envs"`
	Validation Validation `toml:"validation"`
	Rollout    Rollout    `toml:"rollout"`
	Filter     Filter     `toml:"filter"`
	Algorithm  Algorithm  `toml:"algorithm"`
	Actor      Actor      `toml:"actor"`
	Critic     Critic     `toml:"critic"`
	Analysis   Analysis   `toml:"analysis"`
	EarlyStop  EarlyStop  `toml:"early_stop"`
	Checkpoint Checkpoint `toml:"checkpoint"`
	Engine     Engine     `toml:"engine"`
	SFT        SFT        `toml:"sft"`
}

// Run names the experiment and says how long it lasts.
type Run struct {
	// Name of the run; its directory is output/name.
	Name string `toml:"name" default:"gyre-run"`
	// Number of training steps in total (a resumed run counts from where it stopped).
	Steps int `toml:"steps" default:"200"`
	// Master seed of every random draw that is not an environment's.
	Seed uint64 `toml:"seed" default:"1"`
	// Seed of the first training environment; groups and steps count up from it.
	EnvSeed int64 `toml:"env_seed" default:"10000"`
	// Validate after every N-th step; 0 = never.
	ValidateEvery int `toml:"validate_every" default:"10"`
	// Validate once before the first step.
	ValidateFirst bool `toml:"validate_first" default:"true"`
	// Save a checkpoint after every N-th step and after the last; 0 = only after the last, -1 = never.
	SaveEvery int `toml:"save_every" default:"100"`
	// Folder that holds run directories. Relative to the working directory.
	Output string `toml:"output" default:"runs"`
	// CPU threads of the numerical kernels; 0 = as many as there are cores.
	Threads int `toml:"threads" default:"0"`
	// Write every step's episodes to rollouts/step_N.jsonl: all | validation | none.
	SaveRollouts string `toml:"save_rollouts" default:"all"`
}

// Model says which policy is trained.
type Model struct {
	// Hugging Face directory of the policy.
	Path string `toml:"path"`
	// Hugging Face directory of the KL reference; the initial policy when empty.
	Reference string `toml:"reference"`
	// Jinja chat template that replaces the model's own (a file).
	ChatTemplate string `toml:"chat_template"`
}

// Env is one training source: groups environments of one tag, each played group_size times per step.
type Env struct {
	// Environment tag; `gyre env list` names them.
	Tag string `toml:"tag"`
	// Groups per step (members of a group start from the same state).
	Groups int `toml:"groups" default:"8"`
	// Episodes per group.
	GroupSize int `toml:"group_size" default:"16"`
	// Turns (model replies) per episode.
	MaxTurns int `toml:"max_turns" default:"5"`
	// Environment actions per episode over all turns; 0 = the tag's own limit.
	MaxActions int `toml:"max_actions" default:"0"`
	// Environment actions accepted per turn; further ones are cut off.
	MaxActionsPerTurn int `toml:"max_actions_per_turn" default:"2"`
	// Environment-specific options; `gyre env info TAG` lists them.
	Options map[string]any `toml:"options"`
}

// Validation is the fixed set of held-out episodes.
type Validation struct {
	// Validation sources; the training sources with 512 groups of one when empty. Same keys as [[envs]].
	Envs []Env `toml:"envs"`
	// Seed of the first validation environment; the set never changes.
	Seed int64 `toml:"seed" default:"123"`
	// Sampling temperature while validating; 0 = greedy.
	Temperature float64 `toml:"temperature" default:"0.5"`
	// Nucleus probability while validating.
	TopP float64 `toml:"top_p" default:"1.0"`
}

// Rollout says how episodes are sampled and how replies are read.
type Rollout struct {
	// Sampling temperature; log-probs of the trained policy are taken at this temperature too.
	Temperature float64 `toml:"temperature" default:"1.0"`
	// Nucleus probability of sampling; 1 = off.
	TopP float64 `toml:"top_p" default:"1.0"`
	// Keep only the k most likely tokens when sampling; 0 = off.
	TopK int `toml:"top_k" default:"0"`
	// Drop tokens less likely than min_p times the most likely one; 0 = off.
	MinP float64 `toml:"min_p" default:"0.0"`
	// New tokens per turn.
	MaxTokens int `toml:"max_tokens" default:"400"`
	// Longest episode in tokens; an episode that would grow beyond it ends as truncated.
	MaxLength int `toml:"max_length" default:"3600"`
	// Ask for a <think> block before the <answer>.
	Think bool `toml:"think" default:"true"`
	// Separator between actions of one reply.
	ActionSeparator string `toml:"action_separator" default:"||"`
	// Added to the return once per turn whose reply names no legal action or an unknown one.
	FormatPenalty float64 `toml:"format_penalty" default:"-0.1"`
	// Prompt style: chat (system message, rules, per-turn instructions) | compact (state only; for small policies).
	Prompt string `toml:"prompt" default:"chat"`
	// Per-turn credit: each turn's reward on its own last token instead of the whole return on the episode's last token.
	TurnRewards bool `toml:"turn_rewards" default:"false"`
	// Normalise returns within: state (group) | tag | batch.
	NormalizeWithin string `toml:"normalize_within" default:"state"`
	// How returns are normalised: identity | mean | mean_std | asym_clip.
	Normalize string `toml:"normalize" default:"identity"`
	// Seconds one environment call may take before its episode is ended with the reason "timeout".
	EnvTimeout float64 `toml:"env_timeout" default:"30"`
}

// Filter keeps the groups worth training on.
type Filter struct {
	// top_p | top_k | top_k_abs | min_p | none.
	Strategy string `toml:"strategy" default:"top_p"`
	// Threshold of the strategy; top_p with 1.0 and include_zero keeps everything.
	Value float64 `toml:"value" default:"1.0"`
	// How top_p turns scores into probabilities: linear | softmax.
	ProbMode string `toml:"prob_mode" default:"linear"`
	// What a group is scored by: reward_variance (a standard deviation, as in RAGEN) | reward | reward_sum | entropy | entropy_variance | length.
	Metric string `toml:"metric" default:"reward_variance"`
	// Prefer the largest or the smallest scores.
	Type string `toml:"type" default:"largest"`
	// Keep groups whose score is zero in the running.
	IncludeZero bool `toml:"include_zero" default:"true"`
	// Slack subtracted from the linear top_p threshold.
	SelectionEps float64 `toml:"selection_eps" default:"0.01"`
	// Multiply advantages by a power of the kept ratio: none | linear | sqrt.
	LossScaling string `toml:"loss_scaling" default:"none"`
}

// Algorithm turns rewards into advantages.
type Algorithm struct {
	// gae | bi_level_gae | grpo | rloo | reinforce_pp | reinforce_pp_baseline | brpo.
	Advantage string `toml:"advantage" default:"gae"`
	// Discount per token.
	Gamma float64 `toml:"gamma" default:"1.0"`
	// GAE lambda.
	Lambda float64 `toml:"lambda" default:"1.0"`
	// Discount per turn of bi_level_gae.
	HighLevelGamma float64 `toml:"high_level_gamma" default:"0.95"`
	// Divide GRPO's centred returns by the group's standard deviation; false = Dr.GRPO.
	NormByStd bool `toml:"norm_by_std" default:"true"`
	// Coefficient of the KL term; 0 skips the reference pass altogether.
	KLCoef float64 `toml:"kl_coef" default:"0.0"`
	// k1 | abs | k2 | k3, each also with a trailing "+" (k2's gradient); RAGEN's and verl's spellings are accepted.
	KLEstimator string `toml:"kl_estimator" default:"k3"`
	// Put the KL term in the loss, or subtract it from the token rewards: loss | reward.
	KLIn string `toml:"kl_in" default:"loss"`
	// Controller of kl_coef when kl_in = "reward": fixed | adaptive.
	KLControl string `toml:"kl_control" default:"fixed"`
	// Target of the adaptive controller.
	KLTarget float64 `toml:"kl_target" default:"0.1"`
	// Horizon of the adaptive controller in samples.
	KLHorizon float64 `toml:"kl_horizon" default:"10000"`
	// Coefficient of the entropy bonus.
	EntropyCoef float64 `toml:"entropy_coef" default:"0.001"`
	// Ablation: set every advantage to zero, so that only entropy and KL act.
	ZeroTaskAdvantage bool `toml:"zero_task_advantage" default:"false"`
	// GRPO only: weigh a group by its spread relative to the largest.
	SoftReweight bool `toml:"soft_reweight" default:"false"`
	// GRPO only: divide an episode's advantage by its relative length.
	LengthWeight bool `toml:"length_weight" default:"false"`
}

// Actor is the policy's optimizer and loss.
type Actor struct {
	// Learning rate.
	LR float64 `toml:"lr" default:"1e-6"`
	// Learning-rate schedule: constant | linear | cosine.
	Schedule string `toml:"schedule" default:"constant"`
	// Optimizer steps of linear warm-up.
	WarmupSteps int `toml:"warmup_steps" default:"0"`
	// Final learning rate as a fraction of lr (linear and cosine).
	MinLRRatio float64 `toml:"min_lr_ratio" default:"0.0"`
	// AdamW's decay rates.
	Betas [2]float64 `toml:"betas" default:"[0.9, 0.999]"`
	// AdamW's epsilon.
	Eps float64 `toml:"eps" default:"1e-8"`
	// Decoupled weight decay.
	WeightDecay float64 `toml:"weight_decay" default:"0.01"`
	// Global gradient norm limit; 0 = off.
	ClipGrad float64 `toml:"clip_grad" default:"1.0"`
	// Lower clip of the ratio: 1 - clip_low.
	ClipLow float64 `toml:"clip_low" default:"0.2"`
	// Upper clip of the ratio: 1 + clip_high.
	ClipHigh float64 `toml:"clip_high" default:"0.28"`
	// Dual clip constant for negative advantages; 0 = off.
	ClipDual float64 `toml:"clip_dual" default:"3.0"`
	// Episodes per optimizer step.
	MiniBatch int `toml:"mini_batch" default:"32"`
	// Tokens per forward and backward pass (memory, not mathematics).
	MicroBatchTokens int `toml:"micro_batch_tokens" default:"4096"`
	// Passes over the batch per step.
	Epochs int `toml:"epochs" default:"1"`
	// token-mean | token-sum | seq-mean-token-sum | seq-mean-token-mean | seq-mean-token-sum-norm.
	LossAggregation string `toml:"loss_aggregation" default:"token-mean"`
	// Recompute log-probs before the update even when the sampler's are proven equal.
	RecomputeLogprobs bool `toml:"recompute_logprobs" default:"false"`
}

// Critic is the value network of gae and bi_level_gae.
type Critic struct {
	// Hugging Face directory of the critic's backbone; the policy's when empty.
	Path string `toml:"path"`
	// Learning rate.
	LR float64 `toml:"lr" default:"1e-5"`
	// Learning-rate schedule: constant | linear | cosine.
	Schedule string `toml:"schedule" default:"constant"`
	// Optimizer steps of linear warm-up.
	WarmupSteps int `toml:"warmup_steps" default:"0"`
	// Decoupled weight decay.
	WeightDecay float64 `toml:"weight_decay" default:"0.01"`
	// Global gradient norm limit; 0 = off.
	ClipGrad float64 `toml:"clip_grad" default:"1.0"`
	// Value clip around the old value; 0 = off.
	ClipValue float64 `toml:"clip_value" default:"0.5"`
	// Episodes per optimizer step.
	MiniBatch int `toml:"mini_batch" default:"32"`
	// Passes over the batch per step.
	Epochs int `toml:"epochs" default:"1"`
	// Steps during which only the critic learns (actor and analysis wait).
	Warmup int `toml:"warmup" default:"0"`
}

// Analysis is the gradient analysis by reward-spread bucket.
type Analysis struct {
	// Analyse gradients at all.
	Enabled bool `toml:"enabled" default:"true"`
	// Analyse at steps where (step - 1) mod every = 0.
	Every int `toml:"every" default:"50"`
	// Groups of the separate analysis batch; 0 = analyse the training batch.
	Groups int `toml:"groups" default:"0"`
	// Group size of the separate analysis batch; 0 = the training group size.
	GroupSize int `toml:"group_size" default:"0"`
	// quantile | fixed_rv.
	Buckets string `toml:"buckets" default:"quantile"`
	// Number of quantile buckets.
	NumBuckets int `toml:"num_buckets" default:"6"`
	// exact (the bucket's gradient under the global normaliser) | paper (RAGEN's accumulation).
	Profile string `toml:"profile" default:"exact"`
	// Analyse the separate batch before filtering too.
	LogPrefilter bool `toml:"log_prefilter" default:"false"`
	// End the run after the first analysis (before the actor update).
	ExitAfter bool `toml:"exit_after" default:"false"`
	// Skip critic and actor updates: analysis only.
	Only bool `toml:"only" default:"false"`
}

// EarlyStop ends runs that have collapsed (exit code 5).
type EarlyStop struct {
	// Stop when ten consecutive steps have a reward spread below this fraction of the first ten; 0 = off.
	SpreadFraction float64 `toml:"spread_fraction" default:"0.1"`
	// Steps in the baseline and in the window.
	SpreadWindow int `toml:"spread_window" default:"10"`
	// Stop after this many consecutive validations with success below low_success; 0 = off.
	LowSuccessCount int `toml:"low_success_count" default:"5"`
	// Success rate that counts as failed.
	LowSuccess float64 `toml:"low_success" default:"0.01"`
	// Stop after this many consecutive empty selections; 0 = off.
	EmptySteps int `toml:"empty_steps" default:"5"`
}

// Checkpoint says what is kept.
type Checkpoint struct {
	// Newest checkpoints kept; 0 = all.
	Keep int `toml:"keep" default:"1"`
	// Save optimizer state (needed for an exact resume).
	Optimizer bool `toml:"optimizer" default:"true"`
	// Element type of saved actor and critic weights: float32 | bfloat16 (an exact resume needs float32).
	DType string `toml:"dtype" default:"float32"`
}

// Engine bounds the sampler's memory.
type Engine struct {
	// KV cache budget in MiB; 0 = as much as the batch needs.
	KVMiB int `toml:"kv_mib" default:"0"`
	// Sequences that decode together.
	MaxSequences int `toml:"max_sequences" default:"128"`
	// Rows of one forward pass; longer prompts are prefilled in chunks.
	MaxBatchTokens int `toml:"max_batch_tokens" default:"2048"`
}

// SFT is supervised fine-tuning on expert demonstrations.
type SFT struct {
	// Demonstration episodes generated from the training environments' solver.
	Episodes int `toml:"episodes" default:"1000"`
	// Held-out demonstrations for the validation loss.
	ValidationEpisodes int `toml:"validation_episodes" default:"100"`
	// Passes over the demonstrations.
	Epochs int `toml:"epochs" default:"5"`
	// Episodes per optimizer step.
	Batch int `toml:"batch" default:"32"`
	// Learning rate.
	LR float64 `toml:"lr" default:"1e-4"`
	// Learning-rate schedule: constant | linear | cosine.
	Schedule string `toml:"schedule" default:"cosine"`
	// Optimizer steps of linear warm-up.
	WarmupSteps int `toml:"warmup_steps" default:"10"`
	// Seed of the first demonstration level.
	EnvSeed int64 `toml:"env_seed" default:"100000"`
	// Probability that a demonstration takes a random legal action instead of the expert's before it continues (0 = pure expert).
	Noise float64 `toml:"noise" default:"0.0"`
	// JSONL of episodes to learn from instead of generated ones.
	Data string `toml:"data"`
}
