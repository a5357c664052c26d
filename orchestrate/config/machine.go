package config

// Checkpoint says what is kept.
type Checkpoint struct {
	// Newest checkpoints kept; 0 = all.
	Keep int `toml:"keep" default:"1" range:"[0,)"`
	// Save a checkpoint after every step whose gradients are analysed too, and keep those whatever keep says.
	Analysed bool `toml:"analysed" default:"false"`
	// Save optimizer state (needed for an exact resume).
	Optimizer bool `toml:"optimizer" default:"true"`
}

// Engine bounds the sampler's memory.
type Engine struct {
	// KV cache budget in MiB; 0 = as much as the batch needs.
	KVMiB int `toml:"kv_mib" default:"0" range:"[0,16777216]"`
	// Sequences that decode together.
	MaxSequences int `toml:"max_sequences" default:"128" range:"[1,)"`
	// Rows of one forward pass; longer prompts are prefilled in chunks.
	MaxBatchTokens int `toml:"max_batch_tokens" default:"1024" range:"[1,)"`
	// Propose next tokens that followed the same ones before: a pass tries them beside a sequence's last token, and
	// those that are drawn are taken. auto = as many as pay, by the time that passes take and by how many come true.
	// Changes no result. On a GPU, and on model.device = "aten", nothing is proposed.
	Speculation string `toml:"speculation" default:"off" oneof:"auto,off"`
	// On a GPU steps that only decode are recorded once per shape and repeated with one launch; on model.device =
	// "aten" they only have these shapes. Costs memory for what lies between, and some of the device's time for rows
	// and pages that a shape has too many.
	CUDAGraphs bool `toml:"cuda_graphs" default:"true"`
	// Ranks that sample together, each with some heads, columns and rows of the vocabulary of the weights: for
	// policies whose copy for sampling does not fit one. It divides the number of ranks; one process samples alone.
	TensorParallel int `toml:"tensor_parallel" default:"1" range:"[1,1024]"`
}

// FSDP says how a run is spread over the ranks that it was started with (`--ranks N`, torchrun, mpirun, srun). One
// process ignores it, but for deterministic and lanes.
type FSDP struct {
	// What the ranks share out among them: full = weights, gradients and optimizer state; optimizer = the optimizer's
	// state; none = every rank holds all of it; auto = the first of none, optimizer and full with which the memory
	// plan fits a rank's device.
	Shard string `toml:"shard" default:"auto" oneof:"auto,none,optimizer,full"`
	// Copies of what is shared out: each set of ranks/replicas ranks holds one.
	Replicas int `toml:"replicas" default:"1" range:"[1,)"`
	// Blocks whose weights are fetched ahead of their use (shard = "full"). With 0 nothing is sent beside computing,
	// gradients neither.
	Prefetch int `toml:"prefetch" default:"1" range:"[0,)"`
	// Type that weights and gradients travel in; bfloat16 halves the traffic and rounds.
	WireDType string `toml:"wire_dtype" default:"float32" oneof:"float32,bfloat16"`
	// Add gradients in an order that does not depend on the number of ranks: 1, 2 and 4 ranks give the same bits.
	// Holds a few whole gradient buffers on each rank.
	Deterministic bool `toml:"deterministic" default:"false"`
	// Lanes that a step's groups are dealt to when deterministic; the number of ranks must divide it.
	Lanes int `toml:"lanes" default:"4" range:"[1,1024]"`
	// The last so many ranks only sample, while the others train (`gyre train` with rollout.staleness > 0); 0 = every
	// rank does both.
	Samplers int `toml:"samplers" default:"0" range:"[0,)"`
	// Address or network interface over which ranks talk; empty = loopback, for ranks on one machine.
	Bind string `toml:"bind"`
	// Seconds that a rank waits for another in one exchange before the run is given up.
	Timeout float64 `toml:"timeout" default:"1800" range:"(0,)"`
}
