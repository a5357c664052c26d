package pickle

import (
	"errors"
	"fmt"
)

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
