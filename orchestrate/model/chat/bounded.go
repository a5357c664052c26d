package chat

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unsafe"

	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// Bounds on the strings that one rendering makes, whether it writes them or not.
const (
	maxMade   = 256 << 20 // bytes in all
	maxWidth  = 1 << 16   // of center, indent, ljust, …
	maxValues = 1 << 20   // elements of a nested list that is written as text
)

// gonja has no hook for operators, so the parsed template is changed: what goes into an operator, a filter or a method that can make text
// from text, and what is written, passes through filters with names that templates cannot spell. They charge its size to the rendering.
const (
	filterSize   = "a value"         // charges the value's length as text
	filterTimes  = "a left operand"  // of *: remembers the length
	filterFactor = "a right operand" // of *: refuses a product that is too long
	filterBefore = "an input"        // of a filter or a method that multiplies: looks at its arguments too
	filterBody   = "a body"          // charges so many bytes of literal text
)

// What filters do to the size of their input, by name. Those that are not listed are charged before and after.
var (
	multiplying = names("replace join center indent format wordwrap batch slice ljust rjust zfill expandtabs truncate xmlattr")
	free        = names("length count default d first last items attr int float abs round") // make no text of what they are given
	shrinking   = names("trim lower upper capitalize title striptags safe list select selectattr reject rejectattr unique sort reverse")
)

// buffering are the control structures whose bodies are not written but kept.
var buffering = names("SetControlStructure MacroControlStructure FilterControlStructure CallControlStructure BlockControlStructure " +
	"TransControlStructure Macro")

func names(list string) map[string]bool {
	set := map[string]bool{}
	for _, name := range strings.Fields(list) {
		set[name] = true
	}
	return set
}

// boundTemplate changes a parsed template in place.
func boundTemplate(root *nodes.Template) {
	(&rewriter{seen: map[unsafe.Pointer]bool{}}).visit(reflect.ValueOf(root))
}

type rewriter struct {
	seen     map[unsafe.Pointer]bool
	buffered int // structures around that keep what their bodies write
}

// visit walks everything below v that belongs to the parsed template, in gonja's unexported fields too.
func (r *rewriter) visit(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface:
		r.visit(v.Elem())
	case reflect.Pointer:
		if v.IsNil() || !ofTemplate(v.Type().Elem()) || r.seen[v.UnsafePointer()] {
			return
		}
		r.seen[v.UnsafePointer()] = true
		keeps := buffering[v.Type().Elem().Name()]
		if keeps {
			r.buffered++
		}
		r.visit(v.Elem())
		r.change(v.Interface())
		if keeps {
			r.buffered--
		}
	case reflect.Struct:
		if !ofTemplate(v.Type()) || !v.CanAddr() {
			return
		}
		for i := range v.NumField() {
			field := v.Field(i)
			// The field as if it were exported: it is read, and slices of filters are replaced.
			field = reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
			r.visit(field)
			if filters, ok := field.Addr().Interface().(*[]*nodes.FilterCall); ok {
				*filters = boundFilters(*filters)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			r.visit(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			r.visit(v.MapIndex(key))
		}
	}
}

// ofTemplate says whether a type is one of a parsed template's nodes.
func ofTemplate(t reflect.Type) bool {
	return strings.Contains(t.PkgPath(), "gonja/v2/nodes") || strings.Contains(t.PkgPath(), "gonja/v2/builtins/control_structures") ||
		t == reflect.TypeFor[guard]() || t == reflect.TypeFor[generation]()
}

func (r *rewriter) change(node any) {
	switch n := node.(type) {
	case *nodes.BinaryExpression:
		switch n.Operator.Token.Type {
		case tokens.Addition, tokens.Tilde:
			n.Left, n.Right = charged(n.Left), charged(n.Right)
		case tokens.Multiply:
			n.Left, n.Right = filtered(n.Left, filterTimes), filtered(n.Right, filterFactor)
		}
	case *nodes.Output:
		n.Expression = charged(n.Expression)
		if n.Alternative != nil {
			n.Alternative = charged(n.Alternative)
		}
	case *nodes.Call:
		// x.center(n): the text and what it is multiplied by are looked at first.
		if method, ok := n.Func.(*nodes.GetAttribute); ok && n.Parent != nil && multiplying[method.Attribute] {
			n.Parent = &nodes.FilteredExpression{Expression: n.Parent, Filters: []*nodes.FilterCall{
				look(method.Attribute, &nodes.FilterCall{Token: n.Location, Args: n.Args, Kwargs: n.Kwargs})}}
		}
	case *nodes.Wrapper:
		if r.buffered > 0 {
			n.Nodes = withBody(n.Nodes)
		}
	}
}

// charged charges an operand, unless it is a literal or an operation whose own operands are charged.
func charged(e nodes.Expression) nodes.Expression {
	switch n := e.(type) {
	case *nodes.String, *nodes.Integer, *nodes.Float, *nodes.Bool, *nodes.None:
		return e
	case *nodes.BinaryExpression:
		if t := n.Operator.Token.Type; t == tokens.Addition || t == tokens.Tilde || t == tokens.Multiply {
			return e
		}
	}
	return filtered(e, filterSize)
}

func filtered(e nodes.Expression, name string) nodes.Expression {
	return &nodes.FilteredExpression{Expression: e, Filters: []*nodes.FilterCall{{Token: e.Position(), Name: name}}}
}

// withBody puts the cost of the literal text in front of a body.
func withBody(body []nodes.Node) []nodes.Node {
	bytes := 0
	for _, node := range body {
		if data, ok := node.(*nodes.Data); ok {
			bytes += len(data.Data.Val)
		}
	}
	if bytes == 0 {
		return body
	}
	at := body[0].Position()
	count := &nodes.Integer{Location: &tokens.Token{Type: tokens.Integer, Val: strconv.Itoa(bytes), Line: at.Line, Col: at.Col}, Val: bytes}
	return append([]nodes.Node{&nodes.Output{Start: at, Expression: filtered(count, filterBody), End: at}}, body...)
}

// boundFilters puts a look at the size before and behind filters, where they need one.
func boundFilters(filters []*nodes.FilterCall) []*nodes.FilterCall {
	var all []*nodes.FilterCall
	for _, f := range filters {
		size := &nodes.FilterCall{Token: f.Token, Name: filterSize}
		switch {
		case free[f.Name]:
			all = append(all, f)
		case multiplying[f.Name]:
			all = append(all, look(f.Name, f), f)
		case shrinking[f.Name]:
			all = append(all, size, f)
		default:
			all = append(all, size, f, size)
		}
	}
	return all
}

// look is the filter that stands before a filter or a method of that name and sees its arguments.
func look(name string, f *nodes.FilterCall) *nodes.FilterCall {
	args := []nodes.Expression{&nodes.String{Location: f.Token, Val: name}}
	return &nodes.FilterCall{Token: f.Token, Name: filterBefore, Args: append(args, f.Args...), Kwargs: f.Kwargs}
}

// make spends bytes that a string takes.
func (b *budget) make(bytes int) error {
	if bytes > b.left {
		return fmt.Errorf("the template makes more than %d bytes of text", b.most)
	}
	b.left -= bytes
	return b.spend()
}

// size is the length of a value as text, about; above maxMade it need not be known.
func size(v *exec.Value) int {
	elements := maxValues
	return sizeOf(v, &elements)
}

func sizeOf(v *exec.Value, elements *int) int {
	if *elements--; *elements < 0 {
		return maxMade + 1
	}
	total := 0
	switch {
	case v == nil || v.IsNil() || v.IsError():
	case v.IsString():
		return len(v.String())
	case v.IsList():
		for i := 0; i < v.Len() && total <= maxMade; i++ {
			total += 8 + sizeOf(v.Index(i), elements)
		}
	case v.IsDict():
		for _, m := range dictMembers(v) {
			if total += len(m.name) + 8 + sizeOf(m.value, elements); total > maxMade {
				break
			}
		}
	default:
		return 16
	}
	return total
}

// guards are the filters behind the names above.
var guards = map[string]exec.FilterFunction{
	filterSize: func(e *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value { return charge(e, in, size(in)) },
	filterTimes: func(e *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
		b := budgetIn(e.Environment.Context)
		length := 0
		if in.IsString() { // numbers are only multiplied
			length = len(in.String())
		}
		b.operands = append(b.operands, length)
		return in
	},
	filterFactor: func(e *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
		b, left := budgetIn(e.Environment.Context), 0
		if n := len(b.operands); n > 0 {
			left, b.operands = b.operands[n-1], b.operands[:n-1]
		}
		return charge(e, in, product(left, in))
	},
	filterBefore: before,
	filterBody: func(e *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
		return charge(e, exec.AsValue(""), in.Integer())
	},
}

// charge passes a value on if the rendering may still make so many bytes.
func charge(e *exec.Evaluator, v *exec.Value, bytes int) *exec.Value {
	if v.IsError() {
		return v
	}
	if err := budgetIn(e.Environment.Context).make(bytes); err != nil {
		return exec.AsValue(err)
	}
	return v
}

// product is the length of a string of so many bytes repeated, without overflow.
func product(bytes int, times *exec.Value) int {
	if !times.IsInteger() || times.Integer() <= 0 || bytes == 0 {
		return 0
	}
	if times.Integer() > maxMade/bytes {
		return maxMade + 1
	}
	return bytes * times.Integer()
}

// before is the filter that looks at the input and the arguments of one that multiplies.
func before(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	name := args.First().String()
	bytes, largest := size(in), 0
	all := append([]*exec.Value{in}, args.Args[1:]...)
	for _, v := range args.KwArgs {
		all = append(all, v)
	}
	for _, v := range all[1:] {
		if v.IsInteger() && v.Integer() > maxWidth {
			return exec.AsValue(fmt.Errorf("%s: %d is more than %d", name, v.Integer(), maxWidth))
		}
		largest = max(largest, size(v))
		if v.IsInteger() {
			largest = max(largest, v.Integer())
		}
	}
	total := bytes
	switch {
	case name == "format" && widths(in.String()) > maxWidth:
		return exec.AsValue(fmt.Errorf("format: a width is more than %d", maxWidth))
	case name == "join" && in.IsList(): // list|join(separator)
		total += in.Len() * largest
	case name == "join": // separator.join(list)
		for _, v := range all[1:] {
			if v.IsList() {
				total = size(v) + v.Len()*bytes
			}
		}
	case largest > 1: // at most every byte of the input becomes what is largest
		total += bytes * min(largest, maxMade/max(bytes, 1)+1)
		if name == "center" || name == "ljust" || name == "rjust" || name == "zfill" || name == "truncate" {
			total = bytes + 4*largest
		}
	}
	return charge(e, in, total)
}

// widths is the largest number in a format string.
func widths(format string) int {
	largest := 0
	for _, digits := range strings.FieldsFunc(format, func(r rune) bool { return r < '0' || r > '9' }) {
		n, err := strconv.Atoi(digits)
		if err != nil {
			n = maxWidth + 1
		}
		largest = max(largest, n)
	}
	return largest
}
