// Package envs defines what an environment is and keeps the registry of tags.
//
// An environment is a small game that a policy plays by text: Observe shows the state, Step takes one action, Reset
// starts the episode of a seed. Each lives in its own folder and registers its tags when it is imported; importing
// gyre/envs/builtin for effect registers all that ship with Gyre.
//
//	spec, err := envs.Lookup("sokoban")
//	env, err := spec.Make(map[string]any{"boxes": 2, "size": []any{8, 8}})
//	start, err := env.Reset(ctx, 10000, 0)
//	fmt.Println(start.Instruction)
//	fmt.Println(env.Observe())
//	result, err := env.Step(ctx, "Up")
//
// All randomness of an episode comes from its seed, so that the members of a group, reset with one seed, start from the
// same state and see the same luck. How replies become actions, how many actions an episode has and what happens when
// an environment fails is the business of gyre/orchestrate/loop/rollout.
//
// The games, their rewards and their calibration follow RAGEN (arXiv 2504.20073 and 2604.06268), Sokoban levels are
// generated in the manner of gym-sokoban, FrozenLake follows Gymnasium. Image observations (RAGEN's
// VisualSimpleSokoban) are not supported: Gyre trains text policies.
package envs

import (
	"context"
	"errors"
	"strings"

	"gyre/internal/dataset"
)

// Env is one environment instance. It is used by one goroutine at a time and is reused: every Reset starts another
// episode, whatever state the one before ended in. Before the first Reset only Close may be called.
//
// A call that returns an error has failed: its episode is thrown away and played again. What a policy does wrong is
// no error, but a Result that is not Valid.
type Env interface {
	// Reset starts the episode of a seed. Equal seeds (and options) give equal episodes, in whatever order they are
	// played. member is the index of the episode in its group: the members of a group start from the same state, but
	// may meet different luck (a bandit's draws of rewards).
	Reset(ctx context.Context, seed int64, member int) (Start, error)
	// Observe says what the policy is shown now. It may be asked more than once and after the episode's end.
	Observe() Observation
	// Step executes one action. An unknown action changes nothing and has Valid = false. A step before Reset or after
	// the end of the episode is ErrNotRunning.
	Step(ctx context.Context, action string) (Result, error)
	// Close frees what the environment holds. It may be called twice.
	Close() error
}

// Solver is implemented by environments that know an expert.
type Solver interface {
	// Solve returns a shortest list of actions from the current state to success, or false if there is none or it is
	// too far away to be found. Where moves are uncertain (slippery ice) it is the shortest path that could succeed,
	// to be asked again after every step.
	Solve() ([]string, bool)
}

// Finisher is implemented by environments that judge what an episode has come to at its end, however it ends.
type Finisher interface {
	// Finish is called where the policy may say no more (turns, actions, length) and the environment has not ended the
	// episode. The result, which is Done, belongs to the last reply.
	Finish(ctx context.Context) (Result, error)
}

// DataSet is implemented by environments that play the rows of a file: consecutive seeds from the option first_seed on
// play each of them once.
type DataSet interface {
	// Set has the rows that are played; nil where there is no file. Nobody may change it.
	Set() *dataset.Set
}

// Recurrent is implemented by environments that meet the same tasks again, under other seeds.
type Recurrent interface {
	// Task names the task of a seed, "" where it does not come back. Equal names are equal tasks.
	Task(seed int64) string
}

// Pictured is implemented by environments whose observations are written for a policy and not for people: a board as
// codes, as coordinates.
type Pictured interface {
	// Board draws the state as people see it, without a trailing newline.
	Board() string
}

// Board is an environment's state for people: its drawing, or what it shows the policy.
func Board(e Env) string {
	if p, ok := e.(Pictured); ok {
		return p.Board()
	}
	return e.Observe().String()
}

// Start says what holds for a whole episode. An environment fills the fields that it needs.
type Start struct {
	// Instruction states the rules, including what the symbols of an observation mean. It says nothing of how a reply
	// is written, which actions there are or how many are left: the caller does.
	Instruction string
	// Actions names the legal actions; nil means that any text is an action. Names match whatever their case. Nobody
	// may change them.
	Actions []string
	// Tools are offered to the policy by chat templates that know tools.
	Tools []Tool
	// StopStrings end the sampling of a reply ("</answer>"). The string that ended it is part of the reply.
	StopStrings []string
	// Name is what the environment calls the episode (the problem of a data set), Answer the right answer where it is
	// known.
	Name, Answer string

	// ReadReply, if not nil, takes the place of the run's reply format: it gives the actions of a whole reply (a tool
	// call, a program), at most limit of them. None means that the reply holds nothing to execute. Where there are
	// Tools, calls come in Hermes's form (<tool_call> and JSON) in whatever form the model wrote them, and thinking is
	// left out.
	ReadReply func(reply string, limit int) []string
	// WriteReply is a reply that ReadReply reads as these actions, for experts; nil = they stand in an answer block.
	WriteReply func(actions []string) string
	// OnReply, if not nil, is called with each reply before its actions are executed. It returns at once.
	OnReply func(Reply)
}

// Tool describes one function that a policy may call.
type Tool struct {
	Name        string
	Description string
	Parameters  map[string]any // JSON Schema of the arguments; nil = none
}

// Reply is what an environment may want to know of a reply beside its text.
type Reply struct {
	Tokens    int  // sampled, the end of the reply included
	Truncated bool // it ended because it was as long as replies may be
}

// Observation is text, or messages with roles.
type Observation struct {
	Text     string    // the state in text, without a trailing newline
	Messages []Message // when not empty, shown instead of Text
}

// Message is one message of an observation.
type Message struct {
	Role    string // "user", "system" or "tool"; in what was said before an episode "assistant", too
	Name    string // of the tool that speaks; may be empty
	CallID  string `json:"call_id"` // of the call that a tool answers; may be empty
	Content string
}

// String is the observation for people: its text, or its messages one after the other, those that are not the user's
// with their role.
func (o Observation) String() string {
	if len(o.Messages) == 0 {
		return o.Text
	}
	parts := make([]string, len(o.Messages))
	for i, m := range o.Messages {
		if parts[i] = m.Content; m.Role != "user" {
			parts[i] = strings.TrimSpace(m.Role+" "+m.Name) + ": " + m.Content
		}
	}
	return strings.Join(parts, "\n")
}

// The placements of a Component.
const (
	PlaceLast   = "last"   // the reply's last token; "" means the same
	PlaceMean   = "mean"   // averaged over the reply's tokens
	PlaceSpread = "spread" // over the tokens of a segment of the reply's text
)

// Component is one named, unweighted component of a reward ("correctness", "format").
type Component struct {
	Name      string // see CheckName
	Value     float64
	Placement string // PlaceLast, PlaceMean or PlaceSpread
	From, To  int    // with PlaceSpread: the bytes [From, To) of the reply's text
}

// Result is what one action did.
type Result struct {
	Reward     float64     // what training uses, unless the experiment weights the components ([[rewards]])
	Components []Component // named components beside it; they need not add up to Reward; may be nil
	Done       bool        // the episode has ended
	Success    bool        // the state now is a success
	Unjudged   bool        // Success says nothing: what a success is follows from the reward, if from anything
	Valid      bool        // the action was a legal one
	Effective  bool        // the action changed the state
	// Info holds further numbers for metrics: means over an episode's turns, or its last value under a name that begins
	// with final_. May be nil.
	Info map[string]float64
}

// ErrUnreliable is an error that ends a run, where others end an episode.
var ErrUnreliable = errors.New("scores may be those of other replies")

// ErrNotRunning is returned by Step before Reset and after the episode's end.
var ErrNotRunning = errors.New("the episode is not running: call Reset first")
