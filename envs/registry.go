package envs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gyre/internal/dataset"
	"gyre/internal/nearest"
	"gyre/internal/settings"
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
	// Graded says that the components of [[rewards]] are those of package reward, which judge its replies.
	Graded bool
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
		return func() (Env, error) {
			o := s.NewOptions()
			problems := Decode(o, options)
			env, err := s.New(o)
			if err == nil && problems != nil {
				err = env.Close()
			}
			if err := s.failure(problems, err); err != nil {
				return nil, err
			}
			return env, nil
		}, nil
	}
	o := s.NewOptions()
	problems := Decode(o, options)
	factory, err := s.NewFactory(Request{o, components, s.CountTokens})
	return func() (Env, error) {
		env, err := factory()
		return env, s.failure(err)
	}, s.failure(problems, err)
}

// Native gives the specs of the tags of one type. A tag has the defaults as set changes them (nil: as they are).
func Native[Options any, E Env](kind string, defaults Options, build func(*Options) (E, error)) func(tag, doc string,
	actions, words int, set func(*Options)) Spec {
	return func(tag, doc string, actions, words int, set func(*Options)) Spec {
		return Spec{Tag: tag, Type: kind, Doc: doc, MaxActions: actions, MaxReplyWords: words,
			NewOptions: func() any {
				o := defaults
				if set != nil {
					set(&o)
				}
				return &o
			},
			New: func(o any) (Env, error) { return build(o.(*Options)) },
		}
	}
}

// failure is an error that names the tag, nil where nothing is wrong.
func (s Spec) failure(problems ...error) error {
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("environment %s: %w", s.Tag, err)
	}
	return nil
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

// registry holds the tags by fold(Tag). It is written while packages are initialised.
var registry = map[string]Spec{}

// Register adds tags; init functions call it. It panics if a tag is incomplete or taken: both are programming errors.
func Register(specs ...Spec) {
	for _, s := range specs {
		if s.Tag == "" || s.Type == "" || s.MaxActions <= 0 || s.NewOptions == nil ||
			(s.New == nil) == (s.NewFactory == nil) {
			panic(fmt.Sprintf("envs: the spec of tag %q is incomplete", s.Tag))
		}
		if old, taken := registry[fold(s.Tag)]; taken {
			panic(fmt.Sprintf("envs: tag %q is already registered by type %s", s.Tag, old.Type))
		}
		registry[fold(s.Tag)] = s
	}
}

// Lookup finds a tag; case, '-' and '_' do not matter.
func Lookup(tag string) (Spec, error) {
	if s, ok := registry[fold(tag)]; ok {
		return s, nil
	}
	var tags []string
	for _, s := range registry {
		tags = append(tags, s.Tag)
	}
	if tags == nil {
		return Spec{}, fmt.Errorf("unknown environment tag %q: none is registered (import gyre/envs/builtin)", tag)
	}
	slices.Sort(tags)
	return Spec{}, fmt.Errorf("unknown environment tag %q%s; `gyre env list` names all: %s",
		tag, nearest.Hint(tag, tags), strings.Join(tags, ", "))
}

// List returns all tags, ordered by type and then by tag.
func List() []Spec {
	return slices.SortedFunc(maps.Values(registry), func(a, b Spec) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(fold(a.Tag), fold(b.Tag)))
	})
}

var unmarked = strings.NewReplacer("-", "", "_", "")

func fold(tag string) string { return unmarked.Replace(strings.ToLower(tag)) }

// Option describes one field of an options struct.
type Option struct {
	Name    string
	Aliases []string
	Doc     string
	Default any
}

// Options lists the fields of an options struct, and of structs that it embeds, in order. A field is an option if it
// has an `option:"name,alias…"` tag; its `doc:"…"` tag is the help text, to which the values of a `oneof:"a,b"` tag are
// added, and its value the default. Kinds: bool, int, float64, string, []string, [2]int.
func Options(options any) []Option {
	v := reflect.Indirect(reflect.ValueOf(options))
	var list []Option
	for _, f := range reflect.VisibleFields(v.Type()) {
		if tag, ok := f.Tag.Lookup("option"); ok {
			names, doc := strings.Split(tag, ","), f.Tag.Get("doc")
			if values := f.Tag.Get("oneof"); values != "" {
				doc += " (" + strings.ReplaceAll(values, ",", ", ") + ")"
			}
			list = append(list, Option{names[0], names[1:], doc, v.FieldByIndex(f.Index).Interface()})
		}
	}
	return list
}

// Decode sets the fields of the struct that options points to. Values are as a TOML or JSON decoder delivers them, or
// strings as typed on a command line. All problems are reported together.
func Decode(options any, values map[string]any) error {
	var problems []error
	settings.DecodeOptions(options, values, func(key, format string, args ...any) {
		problems = append(problems, fmt.Errorf("option %s: "+format, append([]any{key}, args...)...))
	})
	return errors.Join(problems...)
}
