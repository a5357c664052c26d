package chat

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/ncruces/go-strftime"
	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
)

// Bounds on what a template may do.
const (
	maxRendered = 64 << 20         // bytes of output
	maxTime     = 20 * time.Second // of one rendering
	maxRange    = 1 << 16          // numbers of range()
	maxDepth    = 64               // macro calls inside each other
)

const sourceName = "/chat template"

// template is a chat template. gonja does not promise that a compiled one can be executed concurrently, so there are as
// many as are ever executed at once.
type template struct {
	path     string
	compiled sync.Pool // of *exec.Template
}

// dialect is the Jinja environment that transformers gives to chat templates: blocks trimmed, loop controls, tojson
// that keeps order, raise_exception, strftime_now, and the tag "generation". No template can read a file.
var dialect = sync.OnceValue(func() *exec.Environment {
	filters := exec.NewFilterSet(map[string]exec.FilterFunction{}).Update(builtins.Filters)
	for name, filter := range map[string]exec.FilterFunction{"tojson": toJSON, "trim": trim} {
		if err := filters.Replace(name, filter); err != nil {
			panic(err) // filters of these names come with gonja
		}
	}
	structures := exec.NewControlStructureSet(map[string]parser.ControlStructureParser{
		"generation": parseGeneration,
	}).Update(builtins.ControlStructures)
	for _, name := range []string{"for", "if", "set", "macro"} {
		if parse, ok := structures.Get(name); ok {
			if err := structures.Replace(name, guarded(parse)); err != nil {
				panic(err)
			}
		}
	}
	globals := exec.EmptyContext().Update(builtins.GlobalFunctions).Update(exec.NewContext(map[string]any{
		"range": rangeList,
		"raise_exception": func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
			b := budgetIn(e.Environment.Context)
			b.raised = &raised{args.First().String()}
			return exec.AsValue(b.raised)
		},
	}))
	return &exec.Environment{Context: globals, Filters: filters, Tests: builtins.Tests, ControlStructures: structures,
		Methods: methods()}
})

// raised is an error that the template itself raised.
type raised struct{ message string }

func (r *raised) Error() string { return "the template refuses the messages: " + r.message }

// compile checks a template's source; path names it in messages.
func compile(path, source string) (*template, error) {
	first, err := parse(source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t := &template{path: path}
	t.compiled.New = func() any {
		again, _ := parse(source) // as it did before
		return again
	}
	t.compiled.Put(first)
	return t, nil
}

func parse(source string) (t *exec.Template, err error) {
	defer recoverTemplate(&err)
	c := config.New()
	c.TrimBlocks, c.LeftStripBlocks, c.KeepTrailingNewline = true, true, false
	onlySource, err := loaders.NewMemoryLoader(map[string]string{sourceName: source}) // nothing can be included
	if err != nil {
		return nil, err
	}
	compiled, err := exec.NewTemplate(sourceName, c, onlySource, dialect())
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // the outer one repeats the whole template
		}
		return nil, fmt.Errorf("not a chat template: %w (a conditional expression inside parentheses is not "+
			"supported: use {%% set %%} or {%% if %%})", err)
	}
	return compiled, nil
}

// execute renders the template. It fails after maxTime or maxRendered bytes.
func (t *template) execute(variables map[string]any, now time.Time) (text string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", t.path, err)
		}
	}()
	compiled := t.compiled.Get().(*exec.Template)
	defer t.compiled.Put(compiled)
	defer recoverTemplate(&err)
	data := maps.Clone(variables)
	data["strftime_now"] = func(_ *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		return exec.AsValue(strftime.Format(args.First().String(), now))
	}
	b := &budget{deadline: time.Now().Add(maxTime)}
	data[budgetKey] = b
	out := &boundedOutput{}
	if err := compiled.Execute(out, exec.NewContext(data)); err != nil {
		if b.raised != nil { // without gonja's trace, which is about the template and not about the messages
			return "", b.raised
		}
		return "", err
	}
	return out.String(), nil
}

func recoverTemplate(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("the template cannot be executed: %v", r)
	}
}

type boundedOutput struct{ strings.Builder }

func (b *boundedOutput) Write(p []byte) (int, error) { return b.WriteString(string(p)) }

func (b *boundedOutput) WriteString(s string) (int, error) {
	if b.Len()+len(s) > maxRendered {
		return 0, fmt.Errorf("the template writes more than %d bytes", maxRendered)
	}
	return b.Builder.WriteString(s)
}

// generation is the block {% generation %}…{% endgeneration %}, by which transformers marks the assistant's tokens; it
// renders its body.
type generation struct {
	body *nodes.Wrapper
	nodes.ControlStructure
}

func (g *generation) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.ExecuteIfWrapper(g.body)
}

func parseGeneration(p, args *parser.Parser) (nodes.ControlStructure, error) {
	if !args.End() {
		return nil, args.Error("generation takes no arguments", nil)
	}
	body, _, err := p.WrapUntil("endgeneration")
	if err != nil {
		return nil, err
	}
	return &generation{body: body}, nil
}
