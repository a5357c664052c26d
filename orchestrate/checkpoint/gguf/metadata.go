package gguf

import (
	"fmt"
	"math"
)

// Metadata holds values by key: int64 (all integer types), uint64 (only beyond int64), float64, bool, string, or
// []any of one of these.
type Metadata map[string]any

// Bounds of single values: chat templates are some kilobytes, vocabularies some hundred thousand entries.
const (
	maxText  = 16 << 20
	maxArray = 1 << 22
	maxTotal = 1 << 23 // elements of all arrays: each costs more memory than it takes in the file
)

// Value types of the format.
const (
	typeUint8 = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// smallest is the least number of bytes of a value of each type.
var smallest = [...]uint64{1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8}

func (r *reader) metadata(n int) Metadata {
	m := Metadata{}
	for range n {
		key := r.text(maxName)
		kind := r.uint32()
		if r.err != nil {
			return nil
		}
		if _, twice := m[key]; twice {
			r.err = fmt.Errorf("metadata key %q appears twice", key)
			return nil
		}
		var v any
		if kind == typeArray {
			v = r.array()
		} else {
			v = r.scalar(kind)
		}
		if r.err != nil {
			r.err = fmt.Errorf("metadata key %q: %w", key, r.err)
			return nil
		}
		m[key] = v
	}
	return m
}

func (r *reader) array() []any {
	kind := r.uint32()
	if r.err == nil && (kind == typeArray || int(kind) >= len(smallest)) {
		r.err = fmt.Errorf("an array of type %d is not supported", kind)
	}
	if r.err != nil {
		return nil
	}
	n := r.count("array elements", maxArray, smallest[kind])
	if r.elements += n; r.elements > maxTotal {
		r.err = fmt.Errorf("more than %d array elements in all", maxTotal)
	}
	if r.err != nil {
		return nil
	}
	out := make([]any, 0, n)
	for range n {
		if r.err != nil {
			return nil
		}
		out = append(out, r.scalar(kind))
	}
	return out
}

func (r *reader) scalar(kind uint32) any {
	switch kind {
	case typeUint8:
		return int64(r.fixed(1))
	case typeInt8:
		return int64(int8(r.fixed(1)))
	case typeUint16:
		return int64(r.fixed(2))
	case typeInt16:
		return int64(int16(r.fixed(2)))
	case typeUint32:
		return int64(r.fixed(4))
	case typeInt32:
		return int64(int32(r.fixed(4)))
	case typeFloat32:
		return shortest(math.Float32frombits(uint32(r.fixed(4))))
	case typeBool:
		return r.fixed(1) != 0
	case typeString:
		return r.text(maxText)
	case typeUint64:
		v := r.fixed(8)
		if v > math.MaxInt64 {
			return v
		}
		return int64(v)
	case typeInt64:
		return int64(r.fixed(8))
	case typeFloat64:
		return math.Float64frombits(r.fixed(8))
	default:
		r.err = fmt.Errorf("unknown value type %d", kind)
		return nil
	}
}

// Integer is an integer value.
func (m Metadata) Integer(key string) (int64, bool) {
	v, ok := m[key].(int64)
	return v, ok
}

// Number is a float value, or an integer one as a float.
func (m Metadata) Number(key string) (float64, bool) {
	if i, ok := m.Integer(key); ok {
		return float64(i), true
	}
	v, ok := m[key].(float64)
	return v, ok
}

// Text is a string value.
func (m Metadata) Text(key string) (string, bool) {
	v, ok := m[key].(string)
	return v, ok
}

// Texts is an array of strings; false when any element is not one.
func (m Metadata) Texts(key string) ([]string, bool) {
	list, ok := m[key].([]any)
	out := make([]string, len(list))
	for i, v := range list {
		s, isText := v.(string)
		out[i], ok = s, ok && isText
	}
	return out, ok
}

// Integers is an array of integers; false when any element is not one.
func (m Metadata) Integers(key string) ([]int64, bool) {
	list, ok := m[key].([]any)
	out := make([]int64, len(list))
	for i, v := range list {
		n, isInt := v.(int64)
		out[i], ok = n, ok && isInt
	}
	return out, ok
}
