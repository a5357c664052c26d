package chat

import (
	"errors"
	"fmt"
	"time"

	structures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
)

// budget is what one rendering may still spend. It travels in the rendering's context under a key that templates cannot
// spell.
type budget struct {
	deadline time.Time
	depth    int     // macro calls under way
	raised   *raised // what raise_exception was called with
}

const budgetKey = "\x00budget"

func (b *budget) late() error {
	if time.Now().After(b.deadline) {
		return fmt.Errorf("the template takes longer than %v", maxTime)
	}
	return nil
}

func budgetIn(c *exec.Context) *budget {
	b, _ := c.Get(budgetKey)
	return b.(*budget)
}

// guard is a control structure that looks at the clock before it runs, so that nested loops end.
type guard struct{ exec.ControlStructure }

func (g guard) Execute(r *exec.Renderer, block *nodes.ControlStructureBlock) error {
	b := budgetIn(r.Environment.Context)
	if err := b.late(); err != nil {
		return err
	}
	if err := g.ControlStructure.Execute(r, block); err != nil {
		return err
	}
	if m, ok := g.ControlStructure.(*structures.MacroControlStructure); ok {
		limitMacro(r, m.Name, b)
	}
	return nil
}

// limitMacro bounds the recursion of a macro that was just defined.
func limitMacro(r *exec.Renderer, name string, b *budget) {
	defined, _ := r.Environment.Context.Get(name)
	macro, ok := defined.(exec.Macro)
	if !ok {
		return
	}
	r.Environment.Context.Set(name, exec.Macro(func(args *exec.VarArgs) *exec.Value {
		if b.depth >= maxDepth {
			return exec.AsValue(fmt.Errorf("macro %q calls itself more than %d times", name, maxDepth))
		}
		if err := b.late(); err != nil {
			return exec.AsValue(err)
		}
		b.depth++
		defer func() { b.depth-- }()
		return macro(args)
	}))
}

func guarded(parse parser.ControlStructureParser) parser.ControlStructureParser {
	return func(p, args *parser.Parser) (nodes.ControlStructure, error) {
		parsed, err := parse(p, args)
		if err != nil {
			return nil, err
		}
		if structure, ok := parsed.(exec.ControlStructure); ok {
			return &guard{structure}, nil
		}
		return parsed, nil
	}
}

// rangeList is range() as a list of bounded length; gonja's own feeds a channel, which a break would leave behind.
func rangeList(_ *exec.Evaluator, args *exec.VarArgs) ([]int, error) {
	var bounds []int
	for _, a := range args.Args {
		bounds = append(bounds, a.Integer())
	}
	switch len(bounds) {
	case 1:
		bounds = []int{0, bounds[0], 1}
	case 2:
		bounds = append(bounds, 1)
	case 3:
	default:
		return nil, fmt.Errorf("range: %d arguments, expected one to three integers", len(bounds))
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return nil, errors.New("range: the step is 0")
	}
	list := []int{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(list) == maxRange {
			return nil, fmt.Errorf("range: more than %d numbers", maxRange)
		}
		list = append(list, i)
	}
	return list, nil
}
