package envs

import (
	"context"
	"errors"
	"strings"
)

// Env is one environment instance. It is used by one goroutine at a time and is reused: every Reset starts another episode,
// whatever state the one before ended in. Before the first Reset only Close may be called.
type Env interface {
	// Reset starts the episode of a seed. Equal seeds (and options) give equal episodes, in whatever order they are played.
	Reset(ctx context.Context, seed int64) error
	// Observe says what the policy is shown now. It may be asked more than once and after the episode's end.
	Observe() Observation
	// Step executes one action. An unknown action changes nothing and has Valid = false. A step before Reset or after
	// the end of the episode is ErrNotRunning.
	Step(ctx context.Context, action string) (Result, error)
	// Actions names the legal actions; nil means that any text is an action. Names match whatever their case. They may
	// depend on the seed (a bandit's arms do).
	Actions() []string
	// Instruction states the rules, including what the symbols of an observation mean. It says nothing of how a reply is
	// written, which actions there are or how many are left: the caller does.
	Instruction() string
	// Close frees what the environment holds. It may be called twice.
	Close() error
}

// Observation is text, or messages with roles, and may carry the state as data.
type Observation struct {
	Text     string    // the state in text, without a trailing newline
	Messages []Message // when not empty, shown instead of Text
	Data     any       // the state as a JSON value for programs; may be nil
}

// Message is one message of an observation.
type Message struct {
	Role    string // "user", "system" or "tool": an environment cannot speak as the assistant
	Name    string // of the tool that speaks; may be empty
	CallID  string // of the call that a tool answers; may be empty
	Content string
}

// String is the observation for people: its text, or its messages one after the other, those that are not the user's with
// their role.
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

// The placements of a Part.
const (
	PlaceLast   = "last"   // the reply's last token; "" means the same
	PlaceMean   = "mean"   // averaged over the reply's tokens
	PlaceSpread = "spread" // over the tokens of a stretch of the reply's text
)

// Part is one named, unweighted part of a reward ("correctness", "format").
type Part struct {
	Name      string
	Value     float64
	Placement string // PlaceLast, PlaceMean or PlaceSpread
	From, To  int    // with PlaceSpread: the bytes [From, To) of the reply's text
}

// Result is what one action did.
type Result struct {
	Reward    float64 // what training uses, unless the experiment weights the parts ([[rewards]])
	Parts     []Part  // named parts beside it; they need not add up to Reward; may be nil
	Done      bool    // the episode has ended
	Success   bool    // the state now is a success
	Valid     bool    // the action was a legal one
	Effective bool    // the action changed the state
	// Info holds further numbers for metrics: means over an episode's turns, or its last value under a name that begins
	// with final_. May be nil.
	Info map[string]float64
}

// ErrNotRunning is returned by Step before Reset and after the episode's end.
var ErrNotRunning = errors.New("the episode is not running: call Reset first")

// Solver is implemented by environments that know an expert.
type Solver interface {
	// Solve returns a shortest list of actions from the current state to success, or false if there is none or it is too
	// far away to be found. Where moves are uncertain (slippery ice) it is the shortest path that could succeed, to be
	// asked again after every step.
	Solve() ([]string, bool)
}

// MemberSetter is implemented by environments whose luck differs between the members of a group although their states
// do not (a bandit's reward draw). SetMember is called before Reset with the member's index in its group.
type MemberSetter interface {
	SetMember(index int)
}

// ReplyReader is implemented by environments that read whole replies themselves (a tool call, a program) instead of the
// run's reply format. ReadReply gives at most limit actions; none means that the reply holds nothing to execute.
type ReplyReader interface {
	ReadReply(reply string, limit int) []string
}

// ReplyWriter is implemented by ReplyReaders that have an expert: WriteReply is a reply that ReadReply reads as these actions. Without it
// they stand in an answer block.
type ReplyWriter interface {
	WriteReply(actions []string) string
}

// Reply is what an environment may want to know of a reply beside its text.
type Reply struct {
	Tokens    int  // sampled, the end of the reply included
	Truncated bool // it ended because it was as long as replies may be
}

// ReplyTaker is implemented by environments that want to know more of a reply than its text. TakeReply is called before the
// reply's actions are executed and returns at once.
type ReplyTaker interface {
	TakeReply(r Reply)
}

// Labeler is implemented by environments whose episodes have names (the problem of a data set) and may have a known answer.
// Label is asked after Reset.
type Labeler interface {
	Label() (name, answer string)
}

// Stopper is implemented by environments at whose strings the sampling of a reply stops ("</answer>"). The string that
// stopped it is part of the reply.
type Stopper interface {
	StopStrings() []string
}

// RewardTaker is implemented by environments that compute named parts of the reward on request. It is given the experiment's
// [[rewards]] once, before the first Reset, and refuses names and options that it does not know.
type RewardTaker interface {
	TakeRewards(wanted []Wanted) error
}

// Wanted is a part of the reward that an experiment asks for.
type Wanted struct {
	Name    string
	Options map[string]any
}

// Tooled is implemented by environments that offer tools, which chat templates that know tools show to the policy.
type Tooled interface {
	Tools() []Tool
}

// Tool describes one function that a policy may call.
type Tool struct {
	Name        string
	Description string
	Parameters  map[string]any // JSON Schema of the arguments; nil = none
}
