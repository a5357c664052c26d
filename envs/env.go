package envs

import "errors"

// Env is one environment instance. It is used by one goroutine at a time. Before Reset only Close may be called.
type Env interface {
	// Reset starts the episode of a seed. Equal seeds (and options) give equal episodes.
	Reset(seed int64) error
	// Render describes the current state in text, without a trailing newline.
	Render() string
	// Step executes one action. An unknown action changes nothing and has Valid = false. A step before Reset or after
	// the end of the episode is ErrNotRunning.
	Step(action string) (StepResult, error)
	// Actions names the legal actions; nil means that any text is an action. Names match whatever their case. They may
	// depend on the seed (a bandit's arms do).
	Actions() []string
	// Instruction states the rules, including what the symbols of Render mean. It says nothing of how a reply is
	// written, which actions there are or how many are left: the caller does.
	Instruction() string
	// Close frees what the environment holds. It may be called twice.
	Close() error
}

// StepResult is what one action did.
type StepResult struct {
	Reward    float64
	Done      bool // the episode has ended
	Success   bool // the state now is a success
	Valid     bool // the action was a legal one
	Effective bool // the action changed the state
	// Info holds further numbers to average into metrics; may be nil.
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
