// Package work says what the benchmark measures: the cases with their shapes, the tokens every program is given, and
// the least time that a machine's arithmetic and memory allow for them.
//
// Everything random comes from fixed seeds, so that all programs and all runs get the same prompts. Repeats differ
// from each other: a cache that outlives a repeat helps nobody.
package work

import "fmt"

// The operations that a worker may know.
const (
	OpGreedy   = "greedy"   // the most likely continuation of one prompt: do all programs hold the same model?
	OpGenerate = "generate" // sample New tokens for every prompt, all together
	OpRollout  = "rollout"  // turn after turn: append an observation to every history, sample a reply
	OpLogprobs = "logprobs" // log-probs of given sequences
	OpUpdate   = "update"   // forward, backward and AdamW of a policy loss
	// norms of the gradients of task, entropy and KL, for each half of the sequences and for all of them
	OpAnalysis = "analysis"
	OpGRPO     = "grpo" // a whole step: sample, reward, advantages, update
)

// Task is what a worker is asked to do, tokens included. Fields that an operation does not use are left out.
type Task struct {
	Op           string      `json:"op"`
	Seed         uint64      `json:"seed"`
	Prompts      [][]int32   `json:"prompts,omitempty"`
	Copies       int         `json:"copies,omitempty"` // sequences sampled for each prompt
	New          int         `json:"new,omitempty"`    // tokens sampled for each sequence, or for each reply
	Observations [][][]int32 `json:"observations,omitempty"`
	Sequences    [][]int32   `json:"sequences,omitempty"`
	Context      int         `json:"context,omitempty"` // leading tokens of every sequence that are not trained on
	// prompts of every GRPO step of the session, the warm-up's first
	Texts [][]string `json:"texts,omitempty"`
}

// Tokens counts what the task's speed is quoted in: sampled tokens, or tokens scored or trained on with their context.
func (t Task) Tokens() int {
	n := 0
	switch t.Op {
	case OpGenerate:
		return len(t.Prompts) * t.Copies * t.New
	case OpRollout:
		for _, episode := range t.Observations {
			n += len(episode) * t.New
		}
	case OpLogprobs, OpUpdate, OpAnalysis:
		for _, ids := range t.Sequences {
			n += len(ids)
		}
	case OpGRPO:
		return len(t.Texts[0]) * t.Copies * t.New
	}
	return n
}

// Case is one row of the benchmark.
type Case struct {
	Name    string // "generate/16"
	Title   string // for the table
	Op      string
	Session Session
	Long    bool // takes minutes: measured once less than the others

	Batch, Copies, Prompt, New int // generation and GRPO: prompts, sequences for each, tokens of each prompt and reply
	Turns                      int // rollouts: Batch episodes of so many turns
	Rows, Length, Context      int // log-probs and updates: sequences, their tokens, those of them that all share
}

// Session is a set of cases whose workers live side by side. Memory is compared within a session, so work that would
// leave memory behind has one of its own.
type Session string

// The sessions, in the order in which they run.
const (
	Distinct Session = "generate"
	Shared   Session = "prefix"   // generation whose prompts share something: prefix caches are on
	Scoring  Session = "logprobs" // no optimizer state
	Update   Session = "update"
	Group    Session = "group"
	Analysis Session = "analysis"
	GRPO     Session = "grpo"
)

// Sessions lists all.
var Sessions = []Session{Distinct, Shared, Scoring, Update, Group, Analysis, GRPO}

// Cases are all rows.
func Cases() []Case {
	var cases []Case
	for _, batch := range []int{1, 4, 16, 64} {
		cases = append(cases, Case{Name: fmt.Sprintf("generate/%d", batch), Title: fmt.Sprintf("batch %d", batch),
			Op:      OpGenerate,
			Session: Distinct, Long: batch == 64, Batch: batch, Copies: 1, Prompt: 128, New: 64})
	}
	return append(cases,
		Case{Name: "generate/shared", Title: "16 of one prompt", Op: OpGenerate, Session: Shared, Batch: 1, Copies: 16,
			Prompt: 128, New: 64},
		Case{Name: "rollout", Title: "16 episodes × 5 turns", Op: OpRollout, Session: Shared, Long: true, Batch: 16,
			Turns: 5, New: 32},
		Case{Name: "logprobs", Title: "4 × 256", Op: OpLogprobs, Session: Scoring, Rows: 4, Length: 256},
		Case{Name: "update/unrelated", Title: "4 × 256 unrelated", Op: OpUpdate, Session: Update, Rows: 4, Length: 256},
		Case{Name: "update/group", Title: "8 replies of 64 to one prompt of 128", Op: OpUpdate, Session: Group, Rows: 8,
			Length: 192, Context: 128},
		Case{Name: "analysis/model", Title: "4 × 256 in 2 buckets", Op: OpAnalysis, Session: Analysis, Long: true,
			Rows: 4, Length: 256},
		Case{Name: "grpo", Title: "4 prompts × 8 samples × 64", Op: OpGRPO, Session: GRPO, Long: true, Batch: 4,
			Copies: 8, Prompt: 128, New: 64},
	)
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
	switch c.Name {
	case "generate/4", "generate/64", "rollout", "analysis/model", "grpo":
		return false
	}
	return true
}

// InCheck reports whether the case is checked against a baseline: all but those that only repeat others in a larger
// size.
func (c Case) InCheck() bool { return c.Name != "generate/64" && c.Name != "grpo" }
