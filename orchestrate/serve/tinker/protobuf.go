package tinker

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// value is one field of a message on the wire.
type value struct {
	number uint64 // of a varint, or the bits of a fixed number
	kind   protowire.Type
	bytes  []byte
}

func (v value) float() float64 {
	if v.kind == protowire.Fixed32Type {
		return float64(math.Float32frombits(uint32(v.number)))
	}
	return math.Float64frombits(v.number)
}

// fields calls visit with the fields of a message in their order. Errors of visit end it.
func fields(message []byte, visit func(number protowire.Number, v value) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("not a protobuf message: %w", protowire.ParseError(n))
		}
		message = message[n:]
		v := value{kind: kind}
		switch kind {
		case protowire.VarintType:
			v.number, n = protowire.ConsumeVarint(message)
		case protowire.Fixed32Type:
			var bits uint32
			bits, n = protowire.ConsumeFixed32(message)
			v.number = uint64(bits)
		case protowire.Fixed64Type:
			v.number, n = protowire.ConsumeFixed64(message)
		case protowire.BytesType:
			v.bytes, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return fmt.Errorf("field %d: %w", number, protowire.ParseError(n))
		}
		message = message[n:]
		if err := visit(number, v); err != nil {
			return err
		}
	}
	return nil
}

// entry splits an entry of a map into its key and the message that is its value.
func entry(message []byte) (key string, of value, err error) {
	err = fields(message, func(number protowire.Number, v value) error {
		switch number {
		case 1:
			key = string(v.bytes)
		case 2:
			of = v
		}
		return nil
	})
	return key, of, err
}

// varints appends a repeated integer field, packed or not.
func varints(list []int64, v value) ([]int64, error) {
	if v.kind == protowire.VarintType {
		return append(list, int64(v.number)), nil
	}
	for rest := v.bytes; len(rest) > 0; {
		x, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		list, rest = append(list, int64(x)), rest[n:]
	}
	return list, nil
}

func appendMessage(to []byte, number protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), message)
}

func appendNumber(to []byte, number protowire.Number, x int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(to, number, protowire.VarintType), uint64(x))
}

// appendEntry appends an entry of a map from strings to messages.
func appendEntry(to []byte, number protowire.Number, key string, message []byte) []byte {
	return appendMessage(to, number, appendMessage(appendMessage(nil, 1, []byte(key)), 2, message))
}

// appendList appends numbers as bytes, each little-endian.
func appendList[T int32 | float32](to []byte, number protowire.Number, values []T) []byte {
	raw, _ := binary.Append(nil, binary.LittleEndian, values) // numbers of a fixed size always have bytes
	return appendMessage(to, number, raw)
}
