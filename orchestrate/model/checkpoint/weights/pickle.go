package weights

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// Python values are nil, bool, int64, float64, string, []byte, pyTuple, *pyList, *pyDict, and whatever the host makes of
// globals, calls and persistent ids. Lists and dicts are references and may contain themselves.
type (
	pyTuple []any
	pyList  struct{ items []any }
	// pyDict is a dict or OrderedDict in insertion order, without the items whose key is no string.
	pyDict struct {
		keys   []string
		values map[string]any
	}
	// pyFunc stands for a callable global: what the host computes instead of calling it.
	pyFunc func(args pyTuple) any
	// mark is put on the stack by MARK; the values above it belong together.
	mark struct{}
)

// pickleHost gives meaning to what a pickle refers to. Its functions may refuse.
type pickleHost struct {
	// what a pickle may refer to ("collections.OrderedDict"), and the values that stand for it
	globals    map[string]any
	persistent func(id any) any // resolves a persistent id (torch's storages)
}

// unpickler carries out the instructions of protocols 2 to 5. One that would import or call something is refused unless
// the host, by name, says what value stands for it. References: CPython's Lib/pickletools.py, PEP 307, 3154 and 574.
type unpickler struct {
	pickleHost
	data  []byte
	at    int
	stack []any
	memo  map[uint64]any
}

// loadPickle reads one pickle. It refuses with the instruction and its byte.
func loadPickle(data []byte, host pickleHost) any {
	u := unpickler{pickleHost: host, data: data, memo: map[uint64]any{}}
	if len(data) < 2 || data[0] != 0x80 || data[1] < 2 || data[1] > 5 {
		refuse("not a pickle of protocol 2 to 5")
	}
	for {
		start := u.at
		if done, err := u.step(); err != nil {
			refuse("pickle: instruction 0x%02x at byte %d: %w", data[min(start, len(data)-1)], start, err)
		} else if done {
			return u.popN(1)[0]
		}
	}
}

// widths are the bytes of the number that follows an instruction.
var widths = map[byte]uint64{'K': 1, 'M': 2, 'J': 4, 0x8a: 1, 0x8c: 1, 'X': 4, 0x8d: 8, 'C': 1, 'B': 4, 0x8e: 8,
	'q': 1, 'r': 4, 'h': 1, 'j': 4}

// step carries out one instruction; done says that it was STOP.
func (u *unpickler) step() (done bool, err error) {
	defer refused(&err)
	code := u.take(1)[0]
	number := u.number(widths[code])
	switch code {
	case 0x80: // PROTO
		u.take(1)
	case 0x95: // FRAME: only helps readers that buffer
		u.take(8)
	case '.': // STOP
		return true, nil
	case 'N': // NONE
		u.push(nil)
	case 0x88, 0x89: // NEWTRUE, NEWFALSE
		u.push(code == 0x88)
	case 'K', 'M': // BININT1, BININT2
		u.push(int64(number))
	case 'J': // BININT
		u.push(int64(int32(number)))
	case 0x8a: // LONG1
		u.push(integer(u.take(number)))
	case 'G': // BINFLOAT
		u.push(math.Float64frombits(binary.BigEndian.Uint64(u.take(8))))
	case 0x8c, 'X', 0x8d: // SHORT_BINUNICODE, BINUNICODE, BINUNICODE8
		u.push(string(u.take(number)))
	case 'C', 'B', 0x8e: // SHORT_BINBYTES, BINBYTES, BINBYTES8
		u.push(u.take(number))
	case ']': // EMPTY_LIST
		u.push(&pyList{})
	case '}': // EMPTY_DICT
		u.push(&pyDict{})
	case '(': // MARK
		u.push(mark{})
	case ')', 0x85, 0x86, 0x87: // EMPTY_TUPLE, TUPLE1, TUPLE2, TUPLE3
		u.push(u.popN(map[byte]int{0x85: 1, 0x86: 2, 0x87: 3}[code]))
	case 't': // TUPLE
		u.push(u.popMark())
	case 'q', 'r', 0x94: // BINPUT, LONG_BINPUT, MEMOIZE
		if code == 0x94 {
			number = uint64(len(u.memo))
		}
		u.memo[number] = u.top()
	case 'h', 'j': // BINGET, LONG_BINGET
		v, ok := u.memo[number]
		if !ok {
			refuse("memo entry %d is not set", number)
		}
		u.push(v)
	default:
		u.build(code)
	}
	return false, nil
}

// build carries out the instructions that refer to the host, or change a list or dict.
func (u *unpickler) build(code byte) {
	switch code {
	case 'c': // GLOBAL
		module := u.line()
		u.push(u.global(module, u.line()))
	case 0x93: // STACK_GLOBAL
		pair := u.popN(2)
		u.push(u.global(argument[string](pair, 0), argument[string](pair, 1)))
	case 'R': // REDUCE
		pair := u.popN(2)
		u.push(argument[pyFunc](pair, 0)(argument[pyTuple](pair, 1)))
	case 'Q': // BINPERSID
		u.push(u.persistent(u.popN(1)[0]))
	case 'a': // APPEND
		u.extend(u.popN(1))
	case 'e': // APPENDS
		u.extend(u.popMark())
	case 's': // SETITEM
		u.setItems(u.popN(2))
	case 'u': // SETITEMS
		u.setItems(u.popMark())
	case 'b': // BUILD sets attributes; state dicts carry one (_metadata), which nothing here needs
		u.push(argument[*pyDict](u.popN(2), 0))
	default:
		refuse("it has no place in a checkpoint (nothing was executed)")
	}
}

func (u *unpickler) push(v any) { u.stack = append(u.stack, v) }

func (u *unpickler) top() any {
	if len(u.stack) == 0 {
		refuse("the stack is empty")
	}
	return u.stack[len(u.stack)-1]
}

// popN takes the last n values, in order. The result is a copy.
func (u *unpickler) popN(n int) pyTuple {
	rest := len(u.stack) - n
	if rest < 0 {
		refuse("the stack is empty")
	}
	items := append(pyTuple{}, u.stack[rest:]...)
	u.stack = u.stack[:rest]
	return items
}

// popMark takes all values above the last mark, and the mark.
func (u *unpickler) popMark() pyTuple {
	for i := len(u.stack) - 1; i >= 0; i-- {
		if u.stack[i] == any(mark{}) {
			return u.popN(len(u.stack) - i)[1:]
		}
	}
	refuse("no mark is set")
	return nil
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

// number reads a little-endian number of at most 8 bytes.
func (u *unpickler) number(width uint64) uint64 {
	var padded [8]byte
	copy(padded[:], u.take(width))
	return binary.LittleEndian.Uint64(padded[:])
}

// integer decodes a two's-complement integer of at most 8 bytes.
func integer(b []byte) int64 {
	if len(b) > 8 {
		refuse("an integer of %d bytes, at most 8 are read", len(b))
	}
	var padded [8]byte
	copy(padded[8-len(b):], b)
	return int64(binary.LittleEndian.Uint64(padded[:])) >> (8 * (8 - len(b)))
}

// line reads up to a newline (the operands of GLOBAL).
func (u *unpickler) line() string {
	n := bytes.IndexByte(u.data[u.at:], '\n')
	if n < 0 {
		refuse("no newline: truncated?")
	}
	return string(u.take(uint64(n + 1))[:n])
}

func (u *unpickler) global(module, name string) any {
	v, ok := u.globals[module+"."+name]
	if !ok {
		refuse("refers to %q, which is not on the list of what a checkpoint may contain (nothing was executed)",
			module+"."+name)
	}
	return v
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
	if !ok || len(items)%2 != 0 {
		refuse("sets %d keys and values of a %s, expected pairs and a dict", len(items), typeName(u.top()))
	}
	for i := 0; i < len(items); i += 2 {
		key, ok := items[i].(string)
		if !ok {
			continue
		}
		if dict.values == nil {
			dict.values = map[string]any{}
		}
		if _, ok := dict.values[key]; !ok {
			dict.keys = append(dict.keys, key)
		}
		dict.values[key] = items[i+1]
	}
}

// typeName is the name of a value's type, for messages: "pyDict".
func typeName(v any) string {
	return strings.TrimPrefix(strings.TrimPrefix(fmt.Sprintf("%T", v), "*"), "weights.")
}
