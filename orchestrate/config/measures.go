package config

// Analysis is the gradient analysis by bucket of reward standard deviation.
type Analysis struct {
	// Analyse gradients at all.
	Enabled bool `toml:"enabled" default:"true"`
	// Analyse at steps where (step - 1) mod every = 0.
	Every int `toml:"every" default:"50" range:"[1,)"`
	// Groups of the separate analysis batch; 0 = as many as training plays. The training batch is analysed unless
	// groups or group_size differ from its own.
	Groups int `toml:"groups" default:"0" range:"[0,)"`
	// Group size of the separate analysis batch; 0 = the training group size.
	GroupSize int `toml:"group_size" default:"0" range:"[0,)"`
	// Buckets of groups by reward standard deviation: quantile (equal counts) or fixed_rv (edges 1, 2, 3, 4, 5).
	Buckets string `toml:"buckets" default:"quantile" oneof:"quantile,fixed_rv"`
	// Number of quantile buckets.
	NumBuckets int `toml:"num_buckets" default:"6" range:"[1,)"`
	// exact: the bucket's gradient under the normaliser of the whole batch. paper: RAGEN's accumulation, for
	// comparison with published plots: the mean norm of mini-batches of actor.mini_batch episodes, whose size leaks
	// into it.
	Profile string `toml:"profile" default:"exact" oneof:"exact,paper"`
	// MiB that may hold the gradients of all groups; where they do not fit, inner products between groups come from
	// random projections (error about 0.4 % of the product of the norms).
	MemoryMiB int `toml:"memory_mib" default:"256" range:"[0,)"`
	// Measure one component after the other: a third of the gradient buffers (3 in place of 9 models with three
	// components), and one forward pass more per component (about 1.3 times the time).
	LowMemory bool `toml:"low_memory" default:"false"`
	// Paper profile: episodes per micro-batch of a rank, each a mean of its own.
	PaperMicroBatch int `toml:"paper_micro_batch" default:"4" range:"[1,)"`
	// Paper profile: ranks that the rows are dealt to; buckets are trimmed to a multiple of them.
	PaperRanks int `toml:"paper_ranks" default:"1" range:"[1,)"`
	// Analyse the separate batch before filtering too.
	LogPrefilter bool `toml:"log_prefilter" default:"false"`
	// End the run after the first analysis (before the actor update).
	ExitAfter bool `toml:"exit_after" default:"false"`
	// Skip critic and actor updates: analysis only.
	Only bool `toml:"only" default:"false"`
}

// AtOnce is how many of the loss terms are measured at once.
func (a Analysis) AtOnce(terms int) int {
	if a.LowMemory {
		return 1
	}
	return terms
}

// Passes is how often the batch goes forward for so many loss terms.
func (a Analysis) Passes(terms int) int {
	passes := terms / a.AtOnce(terms)
	if a.Profile == "paper" {
		passes *= 2 // the buckets, and all of them again
	}
	return passes
}

// Components measures the gradients of the components of the reward, and how they agree. Episodes carry the components.
type Components struct {
	// Measure them. false leaves tracking alone.
	Enabled bool `toml:"enabled" default:"false"`
	// Measure at steps where (step - 1) mod every = 0.
	Every int `toml:"every" default:"1" range:"[1,)"`
	// independent: every component has the advantages that it would have alone (with grpo, standardised by its own
	// deviation). exact: its share of the total's advantages, weight x (component - mean) / (deviation of the total +
	// 1e-6), so that the components add up to the total.
	Mode string `toml:"mode" default:"independent" oneof:"independent,exact"`
	// Components to measure, in the order of reports; when absent those of weights, or else all that occur. One that
	// no episode of a step has is not measured at that step.
	Names []string `toml:"names"`
	// What the components are multiplied by in the total; when absent the weights of [[rewards]], or else 1.
	Weights map[string]float64 `toml:"weights"`
	// Times that rewards are permuted within their groups, for the band in which the cosine of unrelated components
	// would lie; 0 = no band.
	Permutations int `toml:"permutations" default:"400" range:"[0,100000]"`
	// Gradients written to gradient_analysis_DATA/gradients_step_N.npz: none, full, or a random projection of every
	// parameter.
	Save string `toml:"save" default:"none" oneof:"none,full,projection"`
	// Record every episode's components in reward_tracking_DATA/.
	Tracking bool `toml:"tracking" default:"false"`
	// What the folders' names say of the data; when empty the first environment's tag.
	Data string `toml:"data"`
	// Folder that gets a link to each of the run's folders gradient_analysis_DATA, reward_tracking_DATA and
	// ppl_tracking_DATA, so that scripts find those of the last run at a fixed place; when empty there are no links.
	Link string `toml:"link"`
}

// Collapse measures whether thoughts still depend on their prompts (entropy and mutual information). It changes nothing
// in training. Thoughts are scored under each other's prompts: up to samples × samples of them.
type Collapse struct {
	// Measure at step 1 and at every multiple of this; 0 = never. RAGEN's is 5.
	Every int `toml:"every" default:"0" range:"[0,)"`
	// Thoughts per measurement.
	Samples int `toml:"samples" default:"64" range:"[2,4096]"`
	// Measure first turns, whose prompts the members of a group share.
	FirstTurn bool `toml:"first_turn" default:"true"`
	// Measure turns of any number.
	MultiTurn bool `toml:"multi_turn" default:"true"`
	// Added to standard deviations before dividing by them.
	StdEps float64 `toml:"std_eps" default:"0.001" range:"(0,)"`
	// Weight of the past in moving averages of standard deviations.
	EMADecay float64 `toml:"ema_decay" default:"0.9" range:"[0,1)"`
}

// EarlyStop ends runs that have collapsed (exit code 5).
type EarlyStop struct {
	// Stop when spread_window consecutive steps have a reward standard deviation below this fraction of the mean of the
	// first spread_window steps; 0 = off.
	SpreadFraction float64 `toml:"spread_fraction" default:"0.1" range:"[0,1)"`
	// Steps in the baseline and in the window.
	SpreadWindow int `toml:"spread_window" default:"10" range:"[1,)"`
	// Stop after this many consecutive validations with success below low_success; 0 = off.
	LowSuccessCount int `toml:"low_success_count" default:"5" range:"[0,)"`
	// Success rate that counts as failed.
	LowSuccess float64 `toml:"low_success" default:"0.01" range:"[0,1]"`
	// Stop after this many consecutive empty selections; 0 = off.
	EmptySteps int `toml:"empty_steps" default:"5" range:"[0,)"`
}
