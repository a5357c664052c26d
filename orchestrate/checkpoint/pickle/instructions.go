package pickle

import (
	"errors"
	"fmt"
)

// names of the instructions that are read or that a reader of an error message may want to know.
var names = map[byte]string{
	'(': "MARK", '.': "STOP", '0': "POP", '1': "POP_MARK", '2': "DUP", 'F': "FLOAT", 'I': "INT", 'J': "BININT", 'K': "BININT1",
	'L': "LONG", 'M': "BININT2", 'N': "NONE", 'P': "PERSID", 'Q': "BINPERSID", 'R': "REDUCE", 'S': "STRING", 'T': "BINSTRING",
	'U': "SHORT_BINSTRING", 'V': "UNICODE", 'X': "BINUNICODE", 'a': "APPEND", 'b': "BUILD", 'c': "GLOBAL", 'd': "DICT",
	'}': "EMPTY_DICT", 'e': "APPENDS", 'g': "GET", 'h': "BINGET", 'i': "INST", 'j': "LONG_BINGET", 'l': "LIST", ']': "EMPTY_LIST",
	'o': "OBJ", 'p': "PUT", 'q': "BINPUT", 'r': "LONG_BINPUT", 's': "SETITEM", 't': "TUPLE", ')': "EMPTY_TUPLE", 'u': "SETITEMS",
	'G': "BINFLOAT", 'B': "BINBYTES", 'C': "SHORT_BINBYTES", 0x80: "PROTO", 0x81: "NEWOBJ", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4",
	0x85: "TUPLE1", 0x86: "TUPLE2", 0x87: "TUPLE3", 0x88: "NEWTRUE", 0x89: "NEWFALSE", 0x8a: "LONG1", 0x8b: "LONG4",
	0x8c: "SHORT_BINUNICODE", 0x8d: "BINUNICODE8", 0x8e: "BINBYTES8", 0x8f: "EMPTY_SET", 0x90: "ADDITEMS", 0x91: "FROZENSET",
	0x92: "NEWOBJ_EX", 0x93: "STACK_GLOBAL", 0x94: "MEMOIZE", 0x95: "FRAME", 0x96: "BYTEARRAY8", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}

func opName(op byte) string {
	if name, ok := names[op]; ok {
		return name
	}
	return fmt.Sprintf("opcode 0x%02x", op)
}

// execute carries out one instruction and reports whether it was STOP.
func (m *machine) execute(op byte, start int) (done bool, err error) {
	if start == 0 && op != 0x80 {
		return false, errors.New("does not begin with a protocol number: not a pickle of protocol 2 to 5")
	}
	var v any
	switch op {
	case 0x80:
		return false, m.protocol(start)
	case '.':
		if len(m.stack) != 1 || len(m.marks) != 0 {
			return false, fmt.Errorf("%d values and %d marks on the stack, expected one value", len(m.stack), len(m.marks))
		}
		return true, nil
	case 'N':
		v = nil
	case 0x88:
		v = true
	case 0x89:
		v = false
	case 'K':
		v, err = m.integer(1)
	case 'M':
		v, err = m.integer(2)
	case 'J':
		v, err = m.integer(4)
	case 0x8a:
		v, err = m.long(1)
	case 0x8b:
		v, err = m.long(4)
	case 'G':
		v, err = m.float()
	case 0x8c:
		v, err = m.text(1)
	case 'X':
		v, err = m.text(4)
	case 0x8d:
		v, err = m.text(8)
	case 'C':
		v, err = m.counted(1)
	case 'B':
		v, err = m.counted(4)
	case 0x8e:
		v, err = m.counted(8)
	case ')':
		v = Tuple{}
	case ']':
		v = &List{}
	case '}':
		v = NewDict()
	case 0x85, 0x86, 0x87:
		v, err = m.popN(int(op-0x85) + 1)
	case 't':
		v, err = m.popMark()
	case 'c':
		v, err = m.readGlobal()
	case 0x93:
		v, err = m.stackGlobal()
	case 'R':
		v, err = m.reduce()
	case 'Q':
		v, err = m.persistent()
	case 'h':
		v, err = m.recall(1)
	case 'j':
		v, err = m.recall(4)
	default:
		return false, m.modify(op)
	}
	if err == nil {
		m.push(v)
	}
	return false, err
}

// modify carries out the instructions that push nothing.
func (m *machine) modify(op byte) error {
	switch op {
	case '(':
		if len(m.marks) == MaxDepth {
			return fmt.Errorf("nested deeper than %d", MaxDepth)
		}
		m.marks = append(m.marks, len(m.stack))
		return nil
	case 'q':
		return m.memoize(1)
	case 'r':
		return m.memoize(4)
	case 0x94:
		return m.memoize(0)
	case 0x95: // a frame only helps readers that buffer
		n, err := m.unsigned(8)
		if err == nil && n > uint64(len(m.data)-m.at) {
			err = fmt.Errorf("a frame of %d bytes, %d are left: truncated?", n, len(m.data)-m.at)
		}
		return err
	case 'a', 'e':
		return m.extend(op == 'e')
	case 's', 'u':
		return m.setItems(op == 'u')
	case 'b':
		return m.build()
	default:
		return errors.New("refused: this instruction has no place in a checkpoint (nothing was executed)")
	}
}

func (m *machine) protocol(start int) error {
	version, err := m.unsigned(1)
	if err != nil {
		return err
	}
	if start != 0 || version < 2 || version > 5 {
		return fmt.Errorf("protocol %d at byte %d, expected 2 to 5 at the beginning", version, start)
	}
	return nil
}

func (m *machine) readGlobal() (any, error) {
	module, err := m.line()
	if err != nil {
		return nil, err
	}
	name, err := m.line()
	if err != nil {
		return nil, err
	}
	return m.global(module, name)
}

func (m *machine) stackGlobal() (any, error) {
	operands, err := m.popN(2)
	if err != nil {
		return nil, err
	}
	module, ok1 := operands[0].(string)
	name, ok2 := operands[1].(string)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("module and name are %s and %s, expected two strings", TypeName(operands[0]), TypeName(operands[1]))
	}
	return m.global(module, name)
}

func (m *machine) reduce() (any, error) {
	operands, err := m.popN(2)
	if err != nil {
		return nil, err
	}
	call, ok := operands[0].(Func)
	if !ok {
		return nil, fmt.Errorf("refused: calls a %s", TypeName(operands[0]))
	}
	args, ok := operands[1].(Tuple)
	if !ok {
		return nil, fmt.Errorf("the arguments are a %s, expected a tuple", TypeName(operands[1]))
	}
	return call(args)
}

func (m *machine) persistent() (any, error) {
	id, err := m.pop()
	if err != nil {
		return nil, err
	}
	if m.host.Persistent == nil {
		return nil, errors.New("refused: persistent ids have no meaning here")
	}
	return m.host.Persistent(id)
}

func (m *machine) recall(width uint64) (any, error) {
	i, err := m.unsigned(width)
	if err != nil {
		return nil, err
	}
	v, ok := m.memo[i]
	if !ok {
		return nil, fmt.Errorf("memo entry %d is not set", i)
	}
	return v, nil
}

// memoize keeps the top value under the number that follows (MEMOIZE: under the next free one).
func (m *machine) memoize(width uint64) error {
	i := uint64(len(m.memo))
	if width > 0 {
		var err error
		if i, err = m.unsigned(width); err != nil {
			return err
		}
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	m.memo[i] = v
	return nil
}

// operands are the values of the many-form (after a mark) or the n of the single form of an instruction.
func (m *machine) operands(many bool, n int) (Tuple, error) {
	if many {
		return m.popMark()
	}
	return m.popN(n)
}

func (m *machine) extend(many bool) error {
	items, err := m.operands(many, 1)
	if err != nil {
		return err
	}
	target, err := m.top()
	if err != nil {
		return err
	}
	list, ok := target.(*List)
	if !ok {
		return fmt.Errorf("appends to a %s, expected a list", TypeName(target))
	}
	list.Items = append(list.Items, items...)
	return nil
}

func (m *machine) setItems(many bool) error {
	items, err := m.operands(many, 2)
	if err != nil {
		return err
	}
	target, err := m.top()
	if err != nil {
		return err
	}
	dict, ok := target.(*Dict)
	if !ok {
		return fmt.Errorf("sets items of a %s, expected a dict", TypeName(target))
	}
	if len(items)%2 != 0 {
		return fmt.Errorf("%d values are not pairs of key and value", len(items))
	}
	for i := 0; i < len(items); i += 2 {
		if err := dict.set(items[i], items[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// build would set attributes. State dicts carry one (_metadata), which nothing here needs: accepted on dicts and dropped.
func (m *machine) build() error {
	state, err := m.pop()
	if err != nil {
		return err
	}
	target, err := m.top()
	if err != nil {
		return err
	}
	_, onDict := target.(*Dict)
	_, isDict := state.(*Dict)
	if !onDict || !isDict {
		return fmt.Errorf("refused: sets the state of a %s from a %s", TypeName(target), TypeName(state))
	}
	return nil
}
