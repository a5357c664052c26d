package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// Func stands for a callable global: what the host computes instead of calling it.
type Func func(args Tuple) (any, error)

// Host gives meaning to what a pickle refers to.
type Host struct {
	// Globals are the names a pickle may refer to ("collections.OrderedDict"), and the values that stand for them.
	Globals map[string]any
	// Persistent resolves a persistent id (torch's storages); nil refuses them.
	Persistent func(id any) (any, error)
}

// Limits bound what a pickle may cost.
const (
	MaxSize         = 64 << 20 // bytes of input
	MaxInstructions = 1 << 20  // each allocates at most a few hundred bytes beyond the input it quotes
	MaxDepth        = 1000     // open marks
)

// Error is a refusal or a malformed input, with the instruction at which reading stopped.
type Error struct {
	Offset int    // byte of the instruction
	Op     string // its name in pickletools
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("pickle: %s at byte %d: %v", e.Op, e.Offset, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Load reads one pickle.
func Load(data []byte, host Host) (any, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("pickle: %d bytes, at most %d are read", len(data), MaxSize)
	}
	m := machine{data: data, host: host, memo: map[uint64]any{}}
	for range MaxInstructions {
		start := m.at
		op, err := m.bytes(1)
		if err != nil {
			return nil, &Error{start, "end of input", errors.New("no STOP instruction: truncated?")}
		}
		done, err := m.execute(op[0], start)
		if err != nil {
			return nil, &Error{start, opName(op[0]), err}
		}
		if done {
			return m.pop()
		}
	}
	return nil, &Error{m.at, "limit", fmt.Errorf("more than %d instructions", MaxInstructions)}
}

type machine struct {
	data  []byte
	at    int
	stack []any
	marks []int // stack heights
	memo  map[uint64]any
	host  Host
}

var errUnderflow = errors.New("the stack is empty")

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

// floor is the height below which the values belong to an outer mark.
func (m *machine) floor() int {
	if n := len(m.marks); n > 0 {
		return m.marks[n-1]
	}
	return 0
}

func (m *machine) pop() (any, error) {
	if len(m.stack) <= m.floor() {
		return nil, errUnderflow
	}
	v := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return v, nil
}

func (m *machine) top() (any, error) {
	if len(m.stack) <= m.floor() {
		return nil, errUnderflow
	}
	return m.stack[len(m.stack)-1], nil
}

// popN takes the last n values, in order. The result is a copy.
func (m *machine) popN(n int) (Tuple, error) {
	if len(m.stack)-m.floor() < n {
		return nil, errUnderflow
	}
	items := append(Tuple{}, m.stack[len(m.stack)-n:]...)
	m.stack = m.stack[:len(m.stack)-n]
	return items, nil
}

// popMark takes all values above the last mark, and the mark.
func (m *machine) popMark() (Tuple, error) {
	if len(m.marks) == 0 {
		return nil, errors.New("no mark is set")
	}
	items, err := m.popN(len(m.stack) - m.floor())
	m.marks = m.marks[:len(m.marks)-1]
	return items, err
}

// bytes consumes n bytes of the input; the result aliases it.
func (m *machine) bytes(n uint64) ([]byte, error) {
	if n > uint64(len(m.data)-m.at) {
		return nil, fmt.Errorf("needs %d more bytes, %d are left: truncated?", n, len(m.data)-m.at)
	}
	b := m.data[m.at : m.at+int(n)]
	m.at += int(n)
	return b, nil
}

// unsigned reads a little-endian number of 1, 2, 4 or 8 bytes.
func (m *machine) unsigned(width uint64) (uint64, error) {
	b, err := m.bytes(width)
	if err != nil {
		return 0, err
	}
	var padded [8]byte
	copy(padded[:], b)
	return binary.LittleEndian.Uint64(padded[:]), nil
}

// integer reads a number of 1 or 2 bytes, or of 4 bytes with a sign.
func (m *machine) integer(width uint64) (any, error) {
	n, err := m.unsigned(width)
	if width == 4 {
		return int64(int32(n)), err
	}
	return int64(n), err
}

// counted reads a length of the given width and that many bytes.
func (m *machine) counted(width uint64) ([]byte, error) {
	n, err := m.unsigned(width)
	if err != nil {
		return nil, err
	}
	return m.bytes(n)
}

func (m *machine) text(width uint64) (any, error) {
	b, err := m.counted(width)
	if err == nil && !utf8.Valid(b) {
		err = errors.New("text is not valid UTF-8")
	}
	return string(b), err
}

// line reads up to a newline (the operands of GLOBAL).
func (m *machine) line() (string, error) {
	const longest = 256
	rest := m.data[m.at:]
	for i := range min(len(rest), longest) {
		if rest[i] == '\n' {
			m.at += i + 1
			return string(rest[:i]), nil
		}
	}
	return "", fmt.Errorf("no newline within %d bytes", min(len(rest), longest))
}

// long reads a two's-complement integer, of at most 8 bytes.
func (m *machine) long(width uint64) (any, error) {
	b, err := m.counted(width)
	if err != nil {
		return nil, err
	}
	if len(b) > 8 {
		return nil, fmt.Errorf("an integer of %d bytes, at most 8 are read", len(b))
	}
	if len(b) == 0 {
		return int64(0), nil
	}
	var padded [8]byte
	copy(padded[8-len(b):], b)
	return int64(binary.LittleEndian.Uint64(padded[:])) >> (8 * (8 - len(b))), nil
}

func (m *machine) float() (any, error) {
	b, err := m.bytes(8)
	if err != nil {
		return nil, err
	}
	return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
}

func (m *machine) global(module, name string) (any, error) {
	full := module + "." + name
	if v, ok := m.host.Globals[full]; ok {
		return v, nil
	}
	return nil, fmt.Errorf("refused: refers to %q, which is not on the list of what a checkpoint may contain (nothing was executed)", full)
}
