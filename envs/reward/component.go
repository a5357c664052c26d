// Package reward grades replies: the registry of named reward components, the grading of mathematical answers, and the
// functions of the rldynamic project under their own names (with their own values).
//
// A component is one unweighted number per reply ("correctness", "format", "length"); weights and the tokens that carry
// it belong to the experiment.
package reward

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gyre/envs"
	"gyre/internal/nearest"
)

// Reply is what a component judges.
type Reply struct {
	Prompt    string // all that the policy was shown
	Question  string // the problem alone
	Text      string
	Gold      string // "" when the problem has no answer
	Unit      string // of Gold, where a word stood behind it
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

// function is a component without state.
type function func(Reply) Score

func (f function) Score(_ context.Context, r Reply) (Score, error) { return f(r), nil }
func (function) Close() error                                      { return nil }

// kind is what components of a name are: docs/reward-options.md is made of it.
type kind struct {
	doc      string
	defaults any // its options
	// unbounded says that a value may be any number; it lies between 0 and 1 elsewhere.
	unbounded bool
	// make reports all that is wrong with options.
	make func(options map[string]any) (Component, error)
}

// kindOf is the kind of components that a function makes of options with these defaults (see envs.Decode).
func kindOf[Options any](doc string, defaults Options, build func(Options) (Component, error)) kind {
	return kind{doc: doc, defaults: defaults, make: func(values map[string]any) (Component, error) {
		o := defaults
		problems := envs.Decode(&o, values)
		c, err := build(o)
		if problems = errors.Join(problems, err); problems != nil && err == nil {
			problems = errors.Join(problems, c.Close())
		}
		return c, problems
	}}
}

// KindOf is the kind of the component that an experiment calls name: the option "component", or the name itself.
func KindOf(name string, options map[string]any) string {
	if own, ok := options["component"].(string); ok {
		return own
	}
	return name
}

// Range is what the values of a component that an experiment calls name lie between; false where that is not known,
// as of a program's.
func Range(name string, options map[string]any) (low, high float64, known bool) {
	of, exists := kinds[KindOf(name, options)]
	return 0, 1, exists && !of.unbounded
}

// Check makes the component that an experiment calls name, and sees that a program which it asks can start.
func Check(ctx context.Context, name string, options map[string]any) error {
	c, err := New(name, options)
	if err != nil {
		return err
	}
	if program, is := c.(*command); is {
		if err = program.check(ctx); err != nil {
			err = fmt.Errorf("reward %s: %w", name, err)
		}
	}
	return errors.Join(err, c.Close())
}

// New makes the component that an experiment calls name (see KindOf). Every unknown option and wrong value is reported
// in one error.
func New(name string, options map[string]any) (Component, error) {
	kindName := KindOf(name, options)
	if own, given := options["component"]; given {
		if _, ok := own.(string); !ok {
			return nil, fmt.Errorf("reward %s: option component: expected a name, got %#v", name, own)
		}
		options = maps.Clone(options)
		delete(options, "component")
	}
	found, known := kinds[kindName]
	if !known {
		names := slices.Sorted(maps.Keys(kinds))
		return nil, fmt.Errorf("reward %s: no component %q%s; there are %s (a reward with a name of its own says "+
			"which with the option component)", name, kindName, nearest.Hint(kindName, names),
			strings.Join(names, ", "))
	}
	c, err := found.make(options)
	if err != nil {
		return nil, fmt.Errorf("reward %s: %w", name, err)
	}
	return c, nil
}
