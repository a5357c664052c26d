package chat

import (
	"errors"
	"strings"
	"unicode"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// list is a list whose negative indices are Python's (gonja 2.9's leave out the first element).
type list []any

// GetItem is gonja's hook for list[key].
func (l list) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if !ok {
		return exec.AsValue(nil), false
	}
	if i < 0 {
		i += len(l)
	}
	if i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.AsValue(l[i]), true
}

// isPythonSpace is what Python's str.strip and str.split take for white space.
func isPythonSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// methods are gonja's methods of values, with those of strings that split and strip as Python's do.
func methods() exec.Methods {
	all := builtins.Methods
	table := map[string]exec.Method[string]{}
	for _, name := range strings.Fields("capitalize casefold center encode endswith expandtabs find format isalnum " +
		"isalpha isascii isdecimal isdigit islower isnumeric isspace istitle isupper join ljust lower partition " +
		"removeprefix removesuffix rfind rjust rpartition splitlines startswith swapcase title upper zfill") {
		if m, ok := all.Str.Get(name); ok {
			table[name] = m
		}
	}
	table["strip"] = strip(true, true)
	table["lstrip"] = strip(true, false)
	table["rstrip"] = strip(false, true)
	table["split"] = split(func(s, sep string, n int) []string { return strings.SplitN(s, sep, n) })
	table["rsplit"] = split(splitRight)
	table["replace"] = replaceText
	all.Str = exec.NewMethodSet(table)
	return all
}

func strip(left, right bool) exec.Method[string] {
	return func(s string, _ *exec.Value, args *exec.VarArgs) (any, error) {
		cut := isPythonSpace
		if len(args.Args) > 0 && !args.Args[0].IsNil() {
			set := args.Args[0].String()
			cut = func(r rune) bool { return strings.ContainsRune(set, r) }
		}
		if left {
			s = strings.TrimLeftFunc(s, cut)
		}
		if right {
			s = strings.TrimRightFunc(s, cut)
		}
		return s, nil
	}
}

// split is str.split or str.rsplit; cut splits into at most n parts, all of them if n is negative.
func split(cut func(s, sep string, n int) []string) exec.Method[string] {
	return func(s string, _ *exec.Value, args *exec.VarArgs) (any, error) {
		sep, most := args.GetKeywordArgument("sep", nil), args.GetKeywordArgument("maxsplit", -1)
		if len(args.Args) > 0 {
			sep = args.Args[0]
		}
		if len(args.Args) > 1 {
			most = args.Args[1]
		}
		n := -1
		if most.IsInteger() && most.Integer() >= 0 {
			n = most.Integer() + 1
		}
		var parts []string
		switch {
		case !sep.IsNil() && sep.String() == "":
			return nil, exec.ErrInvalidCall(errors.New("empty separator"))
		case !sep.IsNil():
			parts = cut(s, sep.String(), n)
		case n < 0:
			parts = strings.FieldsFunc(s, isPythonSpace)
		default:
			return nil, exec.ErrInvalidCall(errors.New("maxsplit without a separator is not supported"))
		}
		values := make(list, len(parts))
		for i, p := range parts {
			values[i] = p
		}
		return values, nil
	}
}

// replaceText is str.replace; gonja's wants a count.
func replaceText(s string, _ *exec.Value, args *exec.VarArgs) (any, error) {
	if n := len(args.Args); n < 2 || n > 3 || !args.Args[0].IsString() || !args.Args[1].IsString() || n == 3 &&
		!args.Args[2].IsInteger() {
		return nil, exec.ErrInvalidCall(errors.New("expected the text to replace, what replaces it, and at most a count"))
	}
	count := -1
	if len(args.Args) == 3 {
		count = args.Args[2].Integer()
	}
	return strings.Replace(s, args.Args[0].String(), args.Args[1].String(), count), nil
}

func splitRight(s, sep string, n int) []string {
	parts := strings.Split(s, sep)
	if n < 0 || len(parts) <= n {
		return parts
	}
	first := len(parts) - n + 1
	return append([]string{strings.Join(parts[:first], sep)}, parts[first:]...)
}

// trim is the filter of that name: str.strip.
func trim(_ *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	s, err := strip(true, true)(in.String(), in, args)
	if err != nil {
		return exec.AsValue(err)
	}
	return exec.AsValue(s)
}
