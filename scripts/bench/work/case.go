// Package work says what the benchmark measures: the cases with their shapes, the tokens every program is given, and
// the least time that a machine's arithmetic and memory allow for them.
//
// Everything random comes from fixed seeds, so that all programs and all runs get the same prompts. Repeats differ
// from each other: a cache that outlives a repeat helps nobody.
package work

import "slices"

// The operations that a worker may know.
const (
	OpProbe       = "probe"       // what the machine can do: Gyre's worker alone
	OpGreedy      = "greedy"      // the most likely continuation of one prompt: do all programs hold the same model?
	OpGenerate    = "generate"    // sample New tokens for every prompt, all together
	OpRewrite     = "rewrite"     // the same, greedily, for prompts that ask for their own words
	OpRollout     = "rollout"     // turn after turn: append an observation to every history, sample a reply
	OpServe       = "serve"       // clients ask over HTTP, Copies at a time
	OpLogprobs    = "logprobs"    // log-probs of given sequences
	OpUpdate      = "update"      // forward, backward and AdamW of a policy loss
	OpGRPO        = "grpo"        // a whole step: sample, reward, advantages, update
	OpTrain       = "train"       // the update of `gyre train` on given sequences
	OpPass        = "pass"        // the same of a model of so many layers, all tokens in one pass
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

	Layers  int `json:"layers,omitempty"` // of a model of its own
	Rows    int `json:"rows,omitempty"`   // sequences that are scored or trained on
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
	case OpLogprobs, OpUpdate, OpTrain, OpPass:
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
	LoRA         Session = "lora"
	GRPO         Session = "grpo"
	Ranks        Session = "ranks"
	Passes       Session = "passes" // of growing models and batches: only where it is named
	Waiting      Session = "waiting"
	Environments Session = "environments"
)

// Sessions lists all.
var Sessions = []Session{Distinct, Shared, Rewriting, Serving, Scoring, Update, Group, LoRA, GRPO, Ranks,
	Passes, Waiting, Environments}

// HoldsModel reports whether the session's workers load the model to be compared, and not a trainer or nothing.
func (s Session) HoldsModel() bool {
	return !slices.Contains([]Session{Serving, GRPO, Ranks, Passes, Waiting, Environments}, s)
}

// OneProcess is the program that training over ranks is compared with: Gyre with all threads in one process.
const OneProcess = "one process"

// Synchronous is Gyre whose steps play their own batches (rollout.staleness = 0).
const Synchronous = "synchronous"

// Plain is Gyre without speculation.
const Plain = "plain decoding"

// Repeats is how often the case is measured in a run of so many repeats.
func (c Case) Repeats(repeats int) int {
	if c.Long {
		return max(repeats-1, 1)
	}
	return repeats
}

// InQuick reports whether the case belongs to the quick set: what shows most of a change in little time.
func (c Case) InQuick() bool {
	return !slices.Contains([]Session{Ranks, Passes, Waiting, LoRA, Serving, Rewriting}, c.Session) &&
		!slices.Contains([]string{OpRollout, OpGRPO}, c.Op) &&
		c.Name != "generate/4" && c.Name != "generate/64"
}

// InCheck reports whether the case is checked against a baseline: all that have a least time but those that only repeat
// others in a larger size.
func (c Case) InCheck() bool {
	return !slices.Contains([]Session{Ranks, Passes, Waiting, Environments, LoRA, Serving, Rewriting}, c.Session) &&
		c.Op != OpGRPO && c.Name != "generate/64"
}
