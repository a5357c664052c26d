package pickle

import "fmt"

// Python values are nil, bool, int64, float64, string, []byte, Tuple, *List, *Dict, and whatever the host makes of
// globals, calls and persistent ids. Lists and dicts are references and may contain themselves: walk them with a
// bound.

// Tuple is a Python tuple.
type Tuple []any

// List is a Python list.
type List struct{ Items []any }

// Dict is a Python dict or OrderedDict in insertion order. Keys are strings or integers.
type Dict struct {
	Keys   []any
	values map[any]any
}

// NewDict makes an empty dict.
func NewDict() *Dict { return &Dict{} }

// Get finds the value of a key.
func (d *Dict) Get(key any) (any, bool) {
	v, ok := d.values[key]
	return v, ok
}

// Len is the number of entries.
func (d *Dict) Len() int { return len(d.Keys) }

func (d *Dict) set(key, value any) error {
	switch key.(type) {
	case string, int64:
	default: // tensors as keys and the like have no place in a checkpoint
		return fmt.Errorf("a dict key of type %s", TypeName(key))
	}
	if d.values == nil {
		d.values = map[any]any{}
	}
	if _, ok := d.values[key]; !ok {
		d.Keys = append(d.Keys, key)
	}
	d.values[key] = value
	return nil
}

// TypeName is the Python name of a value's type, for messages.
func TypeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case []byte:
		return "bytes"
	case Tuple:
		return "tuple"
	case *List:
		return "list"
	case *Dict:
		return "dict"
	case Func:
		return "callable"
	default:
		return fmt.Sprintf("%T", v)
	}
}
