package tensors

import "fmt"

// DType is the element type of a tensor in a file. Elements are little-endian.
type DType uint8

// The element types that the supported formats know. Weights are F64, F32, F16 or BF16 ([DType.Float]).
const (
	F32 DType = iota
	F16
	BF16
	F64
	I64
	I32
	I16
	I8
	U64
	U32
	U16
	U8
	Bool
	F8E4M3
	F8E5M2
)

var dtypes = [...]struct {
	torch, safetensors string
	size               int64
}{
	F32: {"float32", "F32", 4}, F16: {"float16", "F16", 2}, BF16: {"bfloat16", "BF16", 2}, F64: {"float64", "F64", 8},
	I64: {"int64", "I64", 8}, I32: {"int32", "I32", 4}, I16: {"int16", "I16", 2}, I8: {"int8", "I8", 1},
	U64: {"uint64", "U64", 8}, U32: {"uint32", "U32", 4}, U16: {"uint16", "U16", 2}, U8: {"uint8", "U8", 1},
	Bool: {"bool", "BOOL", 1}, F8E4M3: {"float8_e4m3fn", "F8_E4M3", 1}, F8E5M2: {"float8_e5m2", "F8_E5M2", 1},
}

// Size is the number of bytes of one element.
func (d DType) Size() int64 { return dtypes[d].size }

// Float reports whether weights may have this type.
func (d DType) Float() bool { return d == F32 || d == F16 || d == BF16 || d == F64 }

// String is PyTorch's name: "bfloat16".
func (d DType) String() string {
	if int(d) >= len(dtypes) {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].torch
}

// Safetensors is the name in a safetensors header: "BF16".
func (d DType) Safetensors() string { return dtypes[d].safetensors }

// FromSafetensors finds the type of a safetensors header's name.
func FromSafetensors(name string) (DType, bool) {
	for d, t := range dtypes {
		if t.safetensors == name {
			return DType(d), true
		}
	}
	return 0, false
}

// ParseDType reads PyTorch's name of a weight type, with or without "torch.".
func ParseDType(name string) (DType, error) {
	for _, d := range []DType{F32, BF16, F16, F64} {
		if name == d.String() || name == "torch."+d.String() {
			return d, nil
		}
	}
	return 0, fmt.Errorf("unknown weight type %q: expected float32, bfloat16, float16 or float64", name)
}
