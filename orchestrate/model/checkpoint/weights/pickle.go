package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// Python values are nil, bool, int64, float64, string, []byte, pyTuple, *pyList, *pyDict, and whatever the host makes
// of globals, calls and persistent ids. Lists and dicts are references and may contain themselves: walk them with a
// bound.
type (
	pyTuple []any
	pyList  struct{ items []any }
	// pyDict is a dict or OrderedDict in insertion order. Keys are strings or integers.
	pyDict struct {
		keys   []any
		values map[any]any
	}
	// pyFunc stands for a callable global: what the host computes instead of calling it.
	pyFunc func(args pyTuple) any
)

// pickleHost gives meaning to what a pickle refers to. Its functions may refuse.
type pickleHost struct {
	// what a pickle may refer to ("collections.OrderedDict"), and the values that stand for it
	globals    map[string]any
	persistent func(id any) any // resolves a persistent id (torch's storages)
}

// Bounds of what a pickle may cost.
const (
	maxPickle       = 64 << 20 // bytes of input
	maxInstructions = 1 << 20  // each allocates at most a few hundred bytes beyond the input it quotes
	maxMarks        = 1000     // open ones
)

// unpickler carries out the instructions of protocols 2 to 5. One that would import or call something is refused unless
// the host, by name, says what value stands for it. References: CPython's Lib/pickletools.py, PEP 307, 3154 and 574.
type unpickler struct {
	pickleHost
	data  []byte
	at    int
	stack []any
	marks []int // stack heights
	memo  map[uint64]any
}

// loadPickle reads one pickle. Errors name the instruction and its byte.
func loadPickle(data []byte, host pickleHost) (value any, err error) {
	if len(data) > maxPickle {
		return nil, fmt.Errorf("pickle: %d bytes, at most %d are read", len(data), maxPickle)
	}
	u := unpickler{pickleHost: host, data: data, memo: map[uint64]any{}}
	start, name := 0, "end of input"
	defer func() {
		if err != nil {
			err = fmt.Errorf("pickle: %s at byte %d: %w", name, start, err)
		}
	}()
	defer refused(&err)
	for range maxInstructions {
		start, name = u.at, "end of input"
		if u.at == len(data) {
			refuse("no STOP instruction: truncated?")
		}
		code := u.take(1)[0]
		op, known := instructions[code]
		if name = op.name; name == "" {
			name = fmt.Sprintf("opcode 0x%02x", code)
		}
		switch {
		case start == 0 && code != 0x80:
			refuse("does not begin with a protocol number: not a pickle of protocol 2 to 5")
		case code == '.':
			if len(u.stack) != 1 || len(u.marks) != 0 {
				refuse("%d values and %d marks on the stack, expected one value", len(u.stack), len(u.marks))
			}
			return u.pop(), nil
		case !known || op.run == nil:
			refuse("refused: this instruction has no place in a checkpoint (nothing was executed)")
		}
		op.run(&u)
	}
	name = "limit"
	return nil, fmt.Errorf("more than %d instructions", maxInstructions)
}

// An instruction without a function is refused by its name.
type instruction struct {
	name string
	run  func(u *unpickler)
}

var instructions = map[byte]instruction{
	0x80: {"PROTO", func(u *unpickler) {
		if v := u.number(1); u.at != 2 || v < 2 || v > 5 {
			refuse("protocol %d at byte %d, expected 2 to 5 at the beginning", v, u.at-2)
		}
	}},
	0x95: {"FRAME", func(u *unpickler) { // only helps readers that buffer
		if n := u.number(8); n > uint64(len(u.data)-u.at) {
			refuse("a frame of %d bytes, %d are left: truncated?", n, len(u.data)-u.at)
		}
	}},
	'.': {"STOP", nil},
	'N': {"NONE", pushes(func(*unpickler) any { return nil })}, 0x88: {"NEWTRUE",
		pushes(func(*unpickler) any { return true })},
	0x89: {"NEWFALSE", pushes(func(*unpickler) any { return false })},
	'K':  {"BININT1", pushes(func(u *unpickler) any { return int64(u.number(1)) })}, 'M': {"BININT2",
		pushes(func(u *unpickler) any { return int64(u.number(2)) })},
	'J':  {"BININT", pushes(func(u *unpickler) any { return int64(int32(u.number(4))) })},
	0x8a: {"LONG1", pushes(func(u *unpickler) any { return u.long(1) })}, 0x8b: {"LONG4",
		pushes(func(u *unpickler) any { return u.long(4) })},
	'G':  {"BINFLOAT", pushes(func(u *unpickler) any { return math.Float64frombits(binary.BigEndian.Uint64(u.take(8))) })},
	0x8c: {"SHORT_BINUNICODE", pushes(func(u *unpickler) any { return u.text(1) })}, 'X': {"BINUNICODE",
		pushes(func(u *unpickler) any { return u.text(4) })},
	0x8d: {"BINUNICODE8", pushes(func(u *unpickler) any { return u.text(8) })},
	'C':  {"SHORT_BINBYTES", pushes(func(u *unpickler) any { return u.take(u.number(1)) })}, 'B': {"BINBYTES",
		pushes(func(u *unpickler) any { return u.take(u.number(4)) })},
	0x8e: {"BINBYTES8", pushes(func(u *unpickler) any { return u.take(u.number(8)) })},
	')':  {"EMPTY_TUPLE", pushes(func(*unpickler) any { return pyTuple{} })}, ']': {"EMPTY_LIST",
		pushes(func(*unpickler) any { return &pyList{} })},
	'}':  {"EMPTY_DICT", pushes(func(*unpickler) any { return &pyDict{} })},
	0x85: {"TUPLE1", pushes(func(u *unpickler) any { return u.popN(1) })}, 0x86: {"TUPLE2",
		pushes(func(u *unpickler) any { return u.popN(2) })},
	0x87: {"TUPLE3", pushes(func(u *unpickler) any { return u.popN(3) })}, 't': {"TUPLE",
		pushes(func(u *unpickler) any { return u.popMark() })},
	'(': {"MARK", func(u *unpickler) {
		if len(u.marks) == maxMarks {
			refuse("nested deeper than %d", maxMarks)
		}
		u.marks = append(u.marks, len(u.stack))
	}},
	'q': {"BINPUT", func(u *unpickler) { u.memoize(u.number(1)) }}, 'r': {"LONG_BINPUT",
		func(u *unpickler) { u.memoize(u.number(4)) }},
	0x94: {"MEMOIZE", func(u *unpickler) { u.memoize(uint64(len(u.memo))) }},
	'h':  {"BINGET", pushes(func(u *unpickler) any { return u.recall(u.number(1)) })}, 'j': {"LONG_BINGET",
		pushes(func(u *unpickler) any { return u.recall(u.number(4)) })},
	'c': {"GLOBAL", pushes(func(u *unpickler) any { module := u.line(); return u.global(module, u.line()) })},
	0x93: {"STACK_GLOBAL", pushes(func(u *unpickler) any {
		pair := u.popN(2)
		module, ok1 := pair[0].(string)
		name, ok2 := pair[1].(string)
		if !ok1 || !ok2 {
			refuse("module and name are %s and %s, expected two strings", typeName(pair[0]), typeName(pair[1]))
		}
		return u.global(module, name)
	})},
	'R': {"REDUCE", pushes((*unpickler).reduce)}, 'Q': {"BINPERSID",
		pushes(func(u *unpickler) any { return u.persistent(u.pop()) })},
	'a': {"APPEND", func(u *unpickler) { u.extend(u.popN(1)) }}, 'e': {"APPENDS",
		func(u *unpickler) { u.extend(u.popMark()) }},
	's': {"SETITEM", func(u *unpickler) { u.setItems(u.popN(2)) }}, 'u': {"SETITEMS",
		func(u *unpickler) { u.setItems(u.popMark()) }},
	'b': {"BUILD", (*unpickler).build},
	// Protocols 0 and 1, and what would import or make objects. Known by name only, for people who look into a refused
	// file.
	'0': {"POP", nil}, '1': {"POP_MARK", nil}, '2': {"DUP", nil}, 'F': {"FLOAT", nil}, 'I': {"INT", nil}, 'L': {"LONG",
		nil}, 'P': {"PERSID", nil},
	'S': {"STRING", nil}, 'T': {"BINSTRING", nil}, 'U': {"SHORT_BINSTRING", nil}, 'V': {"UNICODE", nil}, 'd': {"DICT",
		nil}, 'g': {"GET", nil},
	'i': {"INST", nil}, 'l': {"LIST", nil}, 'o': {"OBJ", nil}, 'p': {"PUT", nil}, 0x81: {"NEWOBJ", nil}, 0x82: {"EXT1",
		nil}, 0x83: {"EXT2", nil},
	0x84: {"EXT4", nil}, 0x8f: {"EMPTY_SET", nil}, 0x90: {"ADDITEMS", nil}, 0x91: {"FROZENSET", nil},
	0x92: {"NEWOBJ_EX", nil},
	0x96: {"BYTEARRAY8", nil}, 0x97: {"NEXT_BUFFER", nil}, 0x98: {"READONLY_BUFFER", nil},
}

func pushes(value func(u *unpickler) any) func(u *unpickler) {
	return func(u *unpickler) { u.stack = append(u.stack, value(u)) }
}

// top is the last value above the last mark: what is below belongs to an outer level.
func (u *unpickler) top() any {
	if len(u.stack) <= u.floor() {
		refuse("the stack is empty")
	}
	return u.stack[len(u.stack)-1]
}

func (u *unpickler) floor() int {
	if n := len(u.marks); n > 0 {
		return u.marks[n-1]
	}
	return 0
}

func (u *unpickler) pop() any { return u.popN(1)[0] }

// popN takes the last n values, in order. The result is a copy.
func (u *unpickler) popN(n int) pyTuple {
	if len(u.stack)-u.floor() < n {
		refuse("the stack is empty")
	}
	items := append(pyTuple{}, u.stack[len(u.stack)-n:]...)
	u.stack = u.stack[:len(u.stack)-n]
	return items
}

// popMark takes all values above the last mark, and the mark.
func (u *unpickler) popMark() pyTuple {
	if len(u.marks) == 0 {
		refuse("no mark is set")
	}
	items := u.popN(len(u.stack) - u.floor())
	u.marks = u.marks[:len(u.marks)-1]
	return items
}

// take consumes n bytes of the input; the result aliases it.
func (u *unpickler) take(n uint64) []byte {
	if n > uint64(len(u.data)-u.at) {
		refuse("needs %d more bytes, %d are left: truncated?", n, len(u.data)-u.at)
	}
	b := u.data[u.at : u.at+int(n)]
	u.at += int(n)
	return b
}

// number reads a little-endian number of 1, 2, 4 or 8 bytes.
func (u *unpickler) number(width uint64) uint64 {
	var padded [8]byte
	copy(padded[:], u.take(width))
	return binary.LittleEndian.Uint64(padded[:])
}

// long reads a two's-complement integer, of at most 8 bytes.
func (u *unpickler) long(width uint64) int64 {
	b := u.take(u.number(width))
	if len(b) > 8 {
		refuse("an integer of %d bytes, at most 8 are read", len(b))
	}
	var padded [8]byte
	copy(padded[8-len(b):], b)
	return int64(binary.LittleEndian.Uint64(padded[:])) >> (8 * (8 - len(b)))
}

func (u *unpickler) text(width uint64) string {
	b := u.take(u.number(width))
	if !utf8.Valid(b) {
		refuse("text is not valid UTF-8")
	}
	return string(b)
}

// line reads up to a newline (the operands of GLOBAL).
func (u *unpickler) line() string {
	rest := u.data[u.at:]
	longest := min(len(rest), 256)
	for i := range longest {
		if rest[i] == '\n' {
			u.at += i + 1
			return string(rest[:i])
		}
	}
	refuse("no newline within %d bytes", longest)
	return ""
}

func (u *unpickler) memoize(i uint64) { u.memo[i] = u.top() }

func (u *unpickler) recall(i uint64) any {
	v, ok := u.memo[i]
	if !ok {
		refuse("memo entry %d is not set", i)
	}
	return v
}

func (u *unpickler) global(module, name string) any {
	v, ok := u.globals[module+"."+name]
	if !ok {
		refuse("refused: refers to %q, which is not on the list of what a checkpoint may contain (nothing was executed)", module+"."+name)
	}
	return v
}

func (u *unpickler) reduce() any {
	pair := u.popN(2)
	call, ok := pair[0].(pyFunc)
	if !ok {
		refuse("refused: calls a %s", typeName(pair[0]))
	}
	args, ok := pair[1].(pyTuple)
	if !ok {
		refuse("the arguments are a %s, expected a tuple", typeName(pair[1]))
	}
	return call(args)
}

func (u *unpickler) extend(items pyTuple) {
	list, ok := u.top().(*pyList)
	if !ok {
		refuse("appends to a %s, expected a list", typeName(u.top()))
	}
	list.items = append(list.items, items...)
}

func (u *unpickler) setItems(items pyTuple) {
	dict, ok := u.top().(*pyDict)
	if !ok {
		refuse("sets items of a %s, expected a dict", typeName(u.top()))
	}
	if len(items)%2 != 0 {
		refuse("%d values are not pairs of key and value", len(items))
	}
	for i := 0; i < len(items); i += 2 {
		switch items[i].(type) {
		case string, int64:
		default: // tensors as keys and the like have no place in a checkpoint
			refuse("a dict key of type %s", typeName(items[i]))
		}
		if dict.values == nil {
			dict.values = map[any]any{}
		}
		if _, ok := dict.values[items[i]]; !ok {
			dict.keys = append(dict.keys, items[i])
		}
		dict.values[items[i]] = items[i+1]
	}
}

// build would set attributes. State dicts carry one (_metadata), which nothing here needs: accepted on dicts and
// dropped.
func (u *unpickler) build() {
	state := u.pop()
	_, isDict := state.(*pyDict)
	if _, onDict := u.top().(*pyDict); !onDict || !isDict {
		refuse("refused: sets the state of a %s from a %s", typeName(u.top()), typeName(state))
	}
}

// typeName is the Python name of a value's type, for messages.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "None"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case []byte:
		return "bytes"
	case pyTuple:
		return "tuple"
	case *pyList:
		return "list"
	case *pyDict:
		return "dict"
	case pyFunc:
		return "callable"
	}
	return fmt.Sprintf("%T", v)
}
