package pickle

import (
	"errors"
	"fmt"
)

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

// build would set attributes. State dicts carry one (_metadata), which nothing here needs: accepted on dicts and
// dropped.
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
