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

// gonja has no hook for operators, so the parsed template is changed: what can make text from text (operators, filters, methods, output,
// the literal text of a body) passes the sizes of its operands and results through functions that templates cannot spell.
const (
	callLeft   = "a left operand"  // of an operator: remembers the size
	callRight  = "a right operand" // of an operator: refuses a result that is too large
	callMade   = "a result"        // the size of a result; as a function and as a filter
	callBefore = "an input"        // a filter that stands before one that multiplies
	callBody   = "a body"          // a body of so many bytes of literal text is about to be written
)

// multiplying are the filters and methods whose result can be much larger than their input, by name.
var multiplying = map[string]bool{"replace": true, "join": true, "center": true, "indent": true, "format": true, "wordwrap": true,
	"batch": true, "slice": true, "ljust": true, "rjust": true, "zfill": true, "expandtabs": true, "truncate": true, "xmlattr": true}

// boundTemplate changes a parsed template in place.
func boundTemplate(root *nodes.Template) {
	(&rewriter{seen: map[unsafe.Pointer]bool{}}).visit(reflect.ValueOf(root))
	root.Nodes = withBody(root.Nodes)
}

type rewriter struct{ seen map[unsafe.Pointer]bool }

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
		r.visit(v.Elem())
		r.change(v.Interface())
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
		case tokens.Addition, tokens.Multiply, tokens.Tilde:
			operator := &nodes.String{Location: n.Operator.Token, Val: n.Operator.Token.Val}
			n.Left, n.Right = call(callLeft, n.Left), call(callRight, n.Right, operator)
		}
	case *nodes.Output:
		n.Expression = call(callMade, n.Expression)
		if n.Alternative != nil {
			n.Alternative = call(callMade, n.Alternative)
		}
	case *nodes.Call:
		inner := *n
		if method, ok := n.Func.(*nodes.GetAttribute); ok && n.Parent != nil && multiplying[method.Attribute] {
			// x.center(n): the text and what it is multiplied by are looked at first.
			args := []nodes.Expression{&nodes.String{Location: n.Location, Val: method.Attribute}}
			inner.Parent = &nodes.FilteredExpression{Expression: n.Parent, Filters: []*nodes.FilterCall{
				{Token: n.Location, Name: callBefore, Args: append(args, n.Args...), Kwargs: n.Kwargs}}}
		}
		*n = *call(callMade, &inner)
	case *nodes.Wrapper:
		n.Nodes = withBody(n.Nodes)
	}
}

func call(name string, args ...nodes.Expression) *nodes.Call {
	at := args[0].Position()
	return &nodes.Call{Location: at, Func: &nodes.Name{Name: &tokens.Token{Type: tokens.Name, Val: name, Pos: at.Pos, Line: at.Line, Col: at.Col}}, Args: args}
}

// withBody puts the cost of the literal text in front of a body.
func withBody(body []nodes.Node) []nodes.Node {
	if len(body) == 0 {
		return body
	}
	bytes := 0
	for _, node := range body {
		if data, ok := node.(*nodes.Data); ok {
			bytes += len(data.Data.Val)
		}
	}
	at := body[0].Position()
	count := &nodes.Integer{Location: &tokens.Token{Type: tokens.Integer, Val: strconv.Itoa(bytes), Line: at.Line, Col: at.Col}, Val: bytes}
	return append([]nodes.Node{&nodes.Output{Start: at, Expression: call(callBody, count), End: at}}, body...)
}

// boundFilters puts a look at the size before filters that multiply, before the first filter and behind each.
func boundFilters(filters []*nodes.FilterCall) []*nodes.FilterCall {
	if len(filters) == 0 {
		return filters
	}
	all := []*nodes.FilterCall{{Token: filters[0].Token, Name: callMade}} // a nested list costs more as text than as a list
	for _, f := range filters {
		if multiplying[f.Name] {
			args := []nodes.Expression{&nodes.String{Location: f.Token, Val: f.Name}}
			all = append(all, &nodes.FilterCall{Token: f.Token, Name: callBefore, Args: append(args, f.Args...), Kwargs: f.Kwargs})
		}
		all = append(all, f, &nodes.FilterCall{Token: f.Token, Name: callMade})
	}
	return all
}

// make spends bytes that a string takes.
func (b *budget) make(bytes int) error {
	if bytes > maxMade || b.made > maxMade-bytes {
		return fmt.Errorf("the template makes more than %d bytes of text", maxMade)
	}
	b.made += bytes
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

// guards are the functions behind the names above.
var guards = map[string]any{
	callLeft: func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		b := budgetIn(e.Environment.Context)
		b.left = append(b.left, size(args.First()))
		return args.First()
	},
	callRight: func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		b, right := budgetIn(e.Environment.Context), args.First()
		left := 0
		if n := len(b.left); n > 0 {
			left, b.left = b.left[n-1], b.left[:n-1]
		}
		made := left + size(right)
		if args.Args[1].String() == "*" {
			made = product(left, right)
		}
		if err := b.make(made); err != nil {
			return exec.AsValue(err)
		}
		return right
	},
	callMade: func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value { return made(e, args.First()) },
	callBody: func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		if err := budgetIn(e.Environment.Context).make(args.First().Integer()); err != nil {
			return exec.AsValue(err)
		}
		return exec.AsValue("")
	},
}

func made(e *exec.Evaluator, v *exec.Value) *exec.Value {
	if v.IsError() {
		return v
	}
	if err := budgetIn(e.Environment.Context).make(size(v)); err != nil {
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
	if err := budgetIn(e.Environment.Context).make(total); err != nil {
		return exec.AsValue(err)
	}
	return in
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
