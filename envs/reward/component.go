package reward

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"gyre/envs"
	"gyre/internal/nearest"
)

// Reply is what a component judges.
type Reply struct {
	Prompt    string // all that the policy was shown
	Question  string // the problem alone
	Text      string
	Gold      string // "" when the problem has no answer
	Source    string // data_source
	ID        string
	Columns   map[string]any // of the data set's row; may be nil
	Tokens    int            // of the reply; 0 when not known
	Truncated bool           // it ended because it was as long as replies may be
}

// Score is a component's unweighted value for one reply. Where To > From, the bytes [From, To) of the reply's text
// are what earned it (the answer): placement "spread" puts the reward there.
type Score struct {
	Value    float64
	From, To int
}

// Component judges replies one at a time. It may be used by one goroutine at a time.
type Component interface {
	Score(ctx context.Context, r Reply) (Score, error)
	// Close frees what the component holds. It may be called twice.
	Close() error
}

// Kind describes one kind of component.
type Kind struct {
	Name       string
	Doc        string
	NewOptions func() any // a pointer to a struct with defaults, see envs.Decode
	New        func(options any) (Component, error)
}

var kinds = struct {
	sync.RWMutex
	byName map[string]Kind
}{byName: map[string]Kind{}}

// Register adds kinds. It panics if one is incomplete or its name taken: both are programming errors found at start-up.
func Register(list ...Kind) {
	kinds.Lock()
	defer kinds.Unlock()
	for _, k := range list {
		if _, taken := kinds.byName[k.Name]; taken || k.Name == "" || k.NewOptions == nil || k.New == nil {
			panic(fmt.Sprintf("reward: the component %q is incomplete or registered twice", k.Name))
		}
		kinds.byName[k.Name] = k
	}
}

// New makes the component that an experiment calls name. Its kind is the option "component", or the name itself. Every
// unknown option and wrong value is reported in one error.
func New(name string, options map[string]any) (Component, error) {
	kindName := name
	if own, given := options["component"]; given {
		text, ok := own.(string)
		if !ok {
			return nil, fmt.Errorf("reward %s: option component: expected a name, got %#v", name, own)
		}
		kindName = text
		options = maps.Clone(options)
		delete(options, "component")
	}
	kinds.RLock()
	kind, known := kinds.byName[kindName]
	names := slices.Sorted(maps.Keys(kinds.byName))
	kinds.RUnlock()
	if !known {
		return nil, fmt.Errorf("reward %s: no component %q%s; there are %s (a reward with a name of its own says "+
			"which with the option component)",
			name, kindName, nearest.Hint(kindName, names), strings.Join(names, ", "))
	}
	o := kind.NewOptions()
	problems := envs.Decode(o, options)
	c, err := kind.New(o)
	if problems = errors.Join(problems, err); problems != nil {
		if err == nil {
			problems = errors.Join(problems, c.Close())
		}
		return nil, fmt.Errorf("reward %s: %w", name, problems)
	}
	return c, nil
}

// function is a component without state.
type function func(Reply) (Score, error)

func (f function) Score(_ context.Context, r Reply) (Score, error) { return f(r) }
func (function) Close() error                                      { return nil }
