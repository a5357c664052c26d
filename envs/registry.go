package envs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"gyre/internal/dataset"
	"gyre/internal/nearest"
)

// Spec describes one tag: an environment type with the options and limits that the tag stands for.
type Spec struct {
	Tag  string // unique, whatever the case
	Type string // environment type, the name of its folder
	Doc  string // one line
	// MaxActions is the number of environment actions per episode unless the experiment sets another.
	MaxActions int
	// MaxReplyWords is the reply length that prompts ask for; it limits nothing.
	MaxReplyWords int
	// PlainReplies makes the whole text of a reply its one action: no answer block is asked for. Where Actions is nil
	// only.
	PlainReplies bool
	// NewOptions returns a pointer to a fresh options struct that holds the tag's defaults (see Decode).
	NewOptions func() any
	// New makes an environment from such a struct. Every instance is given a struct of its own.
	New func(options any) (Env, error)
	// NewFactory is set instead of New where the instances of one set of options share something (a server's
	// connection), or need more than their options. It refuses components that it does not know.
	NewFactory func(Request) (Factory, error)
	// CountTokens is set by the program that plays the environment, where it knows tokenizers: it opens that of a model
	// directory and gives a function that counts the tokens of a prompt.
	CountTokens func(dir string) (func([]dataset.Message) (int, error), error)
}

// Request is what a Factory is made from.
type Request struct {
	Options     any // a pointer to the tag's struct, with the experiment's values
	Components  []ComponentSpec
	CountTokens func(dir string) (func([]dataset.Message) (int, error), error) // nil = the program knows no tokenizers
}

// Factory makes environments of one tag and one set of options. It is safe for concurrent use.
type Factory func() (Env, error)

// ComponentSpec is a reward component that an experiment asks for in [[rewards]].
type ComponentSpec struct {
	Name    string
	Options map[string]any
}

// Factory prepares to make environments with the given options over the tag's defaults.
func (s Spec) Factory(options map[string]any, components ...ComponentSpec) (Factory, error) {
	if s.NewFactory == nil {
		return func() (Env, error) { return s.make(options) }, nil
	}
	o := s.NewOptions()
	problems := Decode(o, options)
	factory, err := s.NewFactory(Request{o, components, s.CountTokens})
	if problems = errors.Join(problems, err); problems != nil {
		return nil, fmt.Errorf("environment %s: %w", s.Tag, problems)
	}
	return func() (Env, error) {
		env, err := factory()
		if err != nil {
			return nil, fmt.Errorf("environment %s: %w", s.Tag, err)
		}
		return env, nil
	}, nil
}

// Make builds one environment with the given options over the tag's defaults. Every unknown key and wrong value is
// reported in one error.
func (s Spec) Make(options map[string]any, components ...ComponentSpec) (Env, error) {
	factory, err := s.Factory(options, components...)
	if err != nil {
		return nil, err
	}
	return factory()
}

func (s Spec) make(options map[string]any) (Env, error) {
	o := s.NewOptions()
	problems := Decode(o, options)
	env, err := s.New(o)
	if problems = errors.Join(problems, err); problems != nil {
		if err == nil {
			env.Close()
		}
		return nil, fmt.Errorf("environment %s: %w", s.Tag, problems)
	}
	return env, nil
}

var registry = struct {
	sync.RWMutex
	specs map[string]Spec // by fold(Tag)
}{specs: map[string]Spec{}}

// Register adds tags. It panics if a tag is incomplete or taken: both are programming errors found at start-up.
func Register(specs ...Spec) {
	registry.Lock()
	defer registry.Unlock()
	for _, s := range specs {
		if s.Tag == "" || s.Type == "" || s.MaxActions <= 0 || s.NewOptions == nil ||
			(s.New == nil) == (s.NewFactory == nil) {
			panic(fmt.Sprintf("envs: the spec of tag %q is incomplete", s.Tag))
		}
		if old, taken := registry.specs[fold(s.Tag)]; taken {
			panic(fmt.Sprintf("envs: tag %q is already registered by type %s", s.Tag, old.Type))
		}
		registry.specs[fold(s.Tag)] = s
	}
}

// Lookup finds a tag; case, '-' and '_' do not matter.
func Lookup(tag string) (Spec, error) {
	registry.RLock()
	defer registry.RUnlock()
	if s, ok := registry.specs[fold(tag)]; ok {
		return s, nil
	}
	if len(registry.specs) == 0 {
		return Spec{}, fmt.Errorf("unknown environment tag %q: none is registered (import gyre/envs/builtin)", tag)
	}
	tags := make([]string, 0, len(registry.specs))
	for _, s := range registry.specs {
		tags = append(tags, s.Tag)
	}
	slices.Sort(tags)
	return Spec{}, fmt.Errorf("unknown environment tag %q%s; `gyre env list` names all: %s",
		tag, nearest.Hint(tag, tags), strings.Join(tags, ", "))
}

// List returns all tags, ordered by type and then by tag.
func List() []Spec {
	registry.RLock()
	defer registry.RUnlock()
	specs := make([]Spec, 0, len(registry.specs))
	for _, s := range registry.specs {
		specs = append(specs, s)
	}
	slices.SortFunc(specs, func(a, b Spec) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(fold(a.Tag), fold(b.Tag)))
	})
	return specs
}

func fold(tag string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(tag))
}
