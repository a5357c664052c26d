// Package work says what the benchmark measures: the cases with their shapes, the tokens every program is given, and
// the least time that a machine's arithmetic and memory allow for them.
//
// Everything random comes from fixed seeds, so that all programs and all runs get the same prompts. Repeats differ
// from each other: a cache that outlives a repeat helps nobody.
package work

import (
	"fmt"
	"slices"
)

// The operations that a worker may know.
const (
	OpProbe    = "probe"    // what the machine can do: Gyre's worker alone
	OpGreedy   = "greedy"   // the most likely continuation of one prompt: do all programs hold the same model?
	OpGenerate = "generate" // sample New tokens for every prompt, all together
	OpRewrite  = "rewrite"  // the same, greedily, for prompts that ask for their own words
	OpRollout  = "rollout"  // turn after turn: append an observation to every history, sample a reply
	OpServe    = "serve"    // clients ask over HTTP, Copies at a time
	OpLogprobs = "logprobs" // log-probs of given sequences
	OpUpdate   = "update"   // forward, backward and AdamW of a policy loss
	// norms of the gradients of task, entropy and KL, for each half of the sequences and for all of them
	OpAnalysis    = "analysis"
	OpGRPO        = "grpo"        // a whole step: sample, reward, advantages, update
	OpTrain       = "train"       // the update of `gyre train` on given sequences
	OpWaiting     = "waiting"     // a step of `gyre train` whose environments take their time
	OpEnvironment = "environment" // random episodes of an environment, the text of the state included
)

// What of an environment is counted: episodes begun, or actions played.
const (
	CountResets = "resets"
	CountSteps  = "steps"
)

// Case is one row of the benchmark. Fields that its operation does not use are zero.
type Case struct {
	Op      string           `json:"op"`
	Name    string           `json:"name"`  // "generate/16"
	Title   string           `json:"title"` // for the table
	Session Session          `json:"session"`
	Peers   map[string]Floor `json:"-"` // the programs besides Gyre that know this work, and what is asked beside them
	Long    bool             `json:"-"` // takes minutes: measured once less than the others

	Batch  int `json:"batch,omitempty"`  // prompts or episodes
	Copies int `json:"copies,omitempty"` // sequences for each prompt; clients; episodes that wait
	Prompt int `json:"prompt,omitempty"` // tokens of a prompt
	New    int `json:"new,omitempty"`    // tokens sampled for each sequence, or for each reply
	Turns  int `json:"turns,omitempty"`  // of an episode

	Rows    int `json:"rows,omitempty"` // sequences that are scored or trained on
	Length  int `json:"length,omitempty"`
	Context int `json:"context,omitempty"` // leading tokens that they share, which are not trained on

	// Of adapters beside all linear layers of a frozen model: prompt n is continued by adapter n % Adapters, and the
	// first of them is trained; 0 = none.
	Rank     int `json:"rank,omitempty"`
	Adapters int `json:"adapters,omitempty"`

	Shard   string  `json:"shard,omitempty"`   // fsdp.shard of a training over ranks
	Tag     string  `json:"tag,omitempty"`     // of an environment
	Counts  string  `json:"counts,omitempty"`  // what of it is counted and timed: CountResets or CountSteps
	Seconds float64 `json:"seconds,omitempty"` // how long it is played, or what a call of one that waits takes
}

// Task is what a worker is asked to do: a case's work with the tokens of one repeat.
type Task struct {
	Case
	Seed         uint64      `json:"seed"`
	Prompts      [][]int32   `json:"prompts,omitempty"`
	Observations [][][]int32 `json:"observations,omitempty"` // [episode][turn]
	Sequences    [][]int32   `json:"sequences,omitempty"`
	Texts        [][]string  `json:"texts,omitempty"` // prompts of every GRPO step of the session, the warm-up's first
}

// Tokens counts what the task's speed is quoted in: sampled tokens, or tokens scored or trained on with their context.
// It is 0 for an environment, whose worker counts.
func (t Task) Tokens() int {
	n := 0
	switch t.Op {
	case OpGenerate, OpRewrite:
		return len(t.Prompts) * t.Copies * t.New
	case OpServe:
		return len(t.Prompts) * t.New
	case OpRollout:
		for _, episode := range t.Observations {
			n += len(episode) * t.New
		}
	case OpLogprobs, OpUpdate, OpAnalysis, OpTrain:
		for _, ids := range t.Sequences {
			n += len(ids)
		}
	case OpGRPO:
		return len(t.Texts[0]) * t.Copies * t.New
	}
	return n
}

// Floor is what Gyre must reach beside another program: at least so many times its speed, at most so many times its
// peak memory. 0 asks for nothing. HalfSpeed takes the place of Speed where the processor multiplies numbers of 16
// bits, which nearly doubles the programs that use it. They were set on two cores of a Xeon with AVX-512.
type Floor struct{ Speed, HalfSpeed, Memory float64 }

// Session is a set of cases whose workers live side by side. Memory is compared within a session, so work that would
// leave memory behind has one of its own.
type Session string

// The sessions, in the order in which they run.
const (
	Distinct     Session = "generate"
	Shared       Session = "prefix"   // generation whose prompts share something: prefix caches are on
	Rewriting    Session = "rewrite"  // what speculation is for
	Serving      Session = "serve"    // servers of HTTP, and their clients
	Scoring      Session = "logprobs" // no optimizer state
	Update       Session = "update"
	Group        Session = "group"
	Analysis     Session = "analysis"
	LoRA         Session = "lora"
	GRPO         Session = "grpo"
	Ranks        Session = "ranks"
	Waiting      Session = "waiting"
	Environments Session = "environments"
)

// Sessions lists all.
var Sessions = []Session{Distinct, Shared, Rewriting, Serving, Scoring, Update, Group, Analysis, LoRA, GRPO, Ranks,
	Waiting, Environments}

// HoldsModel reports whether the session's workers load the model to be compared, and not a trainer or nothing.
func (s Session) HoldsModel() bool {
	return !slices.Contains([]Session{Serving, GRPO, Ranks, Waiting, Environments}, s)
}

// OneProcess is the program that training over ranks is compared with: Gyre with all threads in one process.
const OneProcess = "one process"

// Synchronous is Gyre whose steps play their own batches (rollout.staleness = 0).
const Synchronous = "synchronous"

// Plain is Gyre without speculation.
const Plain = "plain decoding"

// environments are timed, beside RAGEN's where that has them too. Those that start processes or ask networks are left
// out.
var (
	environments = []string{"SimpleSokoban", "LargerSokoban", "FrozenLake", "Bandit", "GaussianBandit", "Countdown",
		"MiniSudoku", "SimpleSudoku", "game_2048", "rubikscube"}
	notOfRAGEN = []string{"GaussianBandit", "Countdown", "MiniSudoku"}
)

// Cases are all rows.
func Cases() []Case {
	generate := func(batch int, vllm Floor) Case {
		return Case{Name: fmt.Sprintf("generate/%d", batch), Title: fmt.Sprintf("batch %d", batch), Op: OpGenerate,
			Session: Distinct, Long: batch == 64, Batch: batch, Copies: 1, Prompt: 128, New: 64,
			Peers: map[string]Floor{"transformers": {}, "vllm": vllm, "llama": {Speed: 1}}}
	}
	cases := []Case{
		generate(1, Floor{Speed: 1.6, Memory: 1}),
		generate(4, Floor{Memory: 1}),
		generate(16, Floor{Speed: 1.4, Memory: 1}),
		generate(64, Floor{Speed: 1.4, HalfSpeed: 1.3, Memory: 1}),
		{Name: "generate/shared", Title: "16 of one prompt", Op: OpGenerate, Session: Shared, Batch: 1, Copies: 16,
			Prompt: 128, New: 64, Peers: map[string]Floor{"transformers": {},
				"vllm": {Speed: 2, HalfSpeed: 1.8, Memory: 1}, "llama": {Speed: 1}}},
		{Name: "rollout", Title: "16 episodes × 5 turns", Op: OpRollout, Session: Shared, Long: true, Batch: 16,
			Turns: 5, New: 32, Peers: map[string]Floor{Plain: {}, "transformers": {Speed: 4},
				"vllm": {Speed: 1.5, Memory: 1}, "llama": {Speed: 1}}},
		{Name: "logprobs", Title: "4 × 256", Op: OpLogprobs, Session: Scoring, Rows: 4, Length: 256,
			Peers: map[string]Floor{"transformers": {Speed: 1.25}}},
		{Name: "update/unrelated", Title: "4 × 256 unrelated", Op: OpUpdate, Session: Update, Rows: 4, Length: 256,
			Peers: map[string]Floor{"transformers": {Speed: 1.25, HalfSpeed: 1.4, Memory: 0.6}}},
		{Name: "update/group", Title: "8 replies of 64 to one prompt of 128", Op: OpUpdate, Session: Group, Rows: 8,
			Length: 192, Context: 128, Peers: map[string]Floor{"transformers": {Speed: 1.8, Memory: 0.6}}},
		{Name: "analysis/model", Title: "4 × 256 in 2 buckets", Op: OpAnalysis, Session: Analysis, Long: true,
			Rows: 4, Length: 256, Peers: map[string]Floor{"transformers": {}}},
		{Name: "lora/update", Title: "4 × 256, rank 32", Op: OpUpdate, Session: LoRA, Rows: 4, Length: 256, Rank: 32,
			Adapters: 1, Peers: map[string]Floor{"transformers": {Speed: 1}}},
		{Name: "lora/generate", Title: "batch 16, 16 adapters of rank 8", Op: OpGenerate, Session: LoRA, Batch: 16,
			Copies: 1, Prompt: 128, New: 64, Rank: 8, Adapters: 16,
			Peers: map[string]Floor{"transformers": {Speed: 1}}},
		{Name: "grpo", Title: "4 prompts × 8 samples × 64", Op: OpGRPO, Session: GRPO, Long: true, Batch: 4,
			Copies: 8, Prompt: 128, New: 64, Peers: map[string]Floor{"trl": {Speed: 2.5, HalfSpeed: 3}}},
	}
	for _, batch := range []int{1, 4, 16} {
		cases = append(cases, Case{Name: fmt.Sprintf("rewrite/%d", batch), Title: fmt.Sprintf("batch %d", batch),
			Op: OpRewrite, Session: Rewriting, Batch: batch, Copies: 1, New: 64, Peers: map[string]Floor{Plain: {}}})
	}
	for _, clients := range []int{1, 4, 16, 64} {
		floors := map[int]Floor{16: {Speed: 1.4}}
		cases = append(cases, Case{Name: fmt.Sprintf("serve/%d", clients), Title: fmt.Sprintf("clients: %d", clients),
			Op: OpServe, Session: Serving, Long: true, Copies: clients, Prompt: 128, New: 64,
			Peers: map[string]Floor{"vllm": floors[clients]}})
	}
	for _, shard := range []string{"none", "optimizer", "full"} {
		floors := map[string]Floor{"none": {Speed: 0.85}}
		cases = append(cases, Case{Name: "ranks/" + shard, Title: "fsdp.shard = " + shard, Op: OpTrain, Session: Ranks,
			Rows: 8, Length: 256, Shard: shard, Peers: map[string]Floor{OneProcess: floors[shard]}})
	}
	for _, seconds := range []float64{0, 0.55} { // with a synchronous step's 28 % waiting on two cores of a Zen 4
		floors := map[float64]Floor{0: {Speed: 0.97}, 0.55: {Speed: 1.33}}
		cases = append(cases, Case{Name: fmt.Sprintf("waiting/%.2f", seconds), Title: fmt.Sprintf("calls of %.2f s",
			seconds), Op: OpWaiting, Session: Waiting, Long: true, Copies: 32, Turns: 3, Seconds: seconds,
			Peers: map[string]Floor{Synchronous: floors[seconds]}})
	}
	for _, tag := range environments {
		floors := map[string]Floor{CountResets: {Speed: 50}, CountSteps: {Speed: 20}}
		for _, counts := range []string{CountResets, CountSteps} {
			c := Case{Name: "environments/" + tag + "/" + counts, Title: tag + ": " + counts, Op: OpEnvironment,
				Session: Environments, Tag: tag, Counts: counts, Seconds: 0.5}
			if !slices.Contains(notOfRAGEN, tag) {
				c.Peers = map[string]Floor{"ragen": floors[counts]}
			}
			cases = append(cases, c)
		}
	}
	return cases
}

// Repeats is how often the case is measured in a run of so many repeats.
func (c Case) Repeats(repeats int) int {
	if c.Long {
		return max(repeats-1, 1)
	}
	return repeats
}

// InQuick reports whether the case belongs to the quick set: what shows most of a change in little time.
func (c Case) InQuick() bool {
	return !slices.Contains([]Session{Ranks, Waiting, LoRA, Serving, Rewriting}, c.Session) &&
		!slices.Contains([]string{OpRollout, OpAnalysis, OpGRPO}, c.Op) &&
		c.Name != "generate/4" && c.Name != "generate/64"
}

// InCheck reports whether the case is checked against a baseline: all that have a least time but those that only repeat
// others in a larger size.
func (c Case) InCheck() bool {
	return !slices.Contains([]Session{Ranks, Waiting, Environments, LoRA, Serving, Rewriting}, c.Session) &&
		c.Op != OpGRPO && c.Name != "generate/64"
}
