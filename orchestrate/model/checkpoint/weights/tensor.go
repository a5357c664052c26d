package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/x448/float16"
)

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

type dtypeNames struct {
	torch, safetensors string
	size               int64
}

var dtypes = [...]dtypeNames{
	F32: {"float32", "F32", 4}, F16: {"float16", "F16", 2}, BF16: {"bfloat16", "BF16", 2}, F64: {"float64", "F64", 8},
	I64: {"int64", "I64", 8}, I32: {"int32", "I32", 4}, I16: {"int16", "I16", 2}, I8: {"int8", "I8", 1},
	U64: {"uint64", "U64", 8}, U32: {"uint32", "U32", 4}, U16: {"uint16", "U16", 2}, U8: {"uint8", "U8", 1},
	Bool: {"bool", "BOOL", 1}, F8E4M3: {"float8_e4m3fn", "F8_E4M3", 1}, F8E5M2: {"float8_e5m2", "F8_E5M2", 1},
}

// Size is the number of bytes of one element.
func (d DType) Size() int64 { return dtypes[d].size }

// Float reports whether weights may have this type.
func (d DType) Float() bool { return d <= F64 }

// String is PyTorch's name: "bfloat16".
func (d DType) String() string { return dtypes[d].torch }

// ParseDType reads PyTorch's name of a weight type, with or without "torch.".
func ParseDType(name string) (DType, error) {
	for d := F32; d.Float(); d++ {
		if name == d.String() || name == "torch."+d.String() {
			return d, nil
		}
	}
	return 0, fmt.Errorf("unknown weight type %q: expected float32, bfloat16, float16 or float64", name)
}

// Tensor is one tensor of a file. Loading it is the only access to its data, so a set of tensors costs no memory.
type Tensor struct {
	Name  string
	File  string // where it lies, for messages
	DType DType  // of the loaded data
	Kind  string // element type for people: as the file stores it ("Q4_1"), or PyTorch's name
	Shape []int64
	// Load reads the data, dense row-major, into buffer if it is large enough, else into a new one, and returns it.
	Load func(buffer []byte) ([]byte, error)
	// Part reads some of these bytes; nil: only all can be read.
	Part func(buffer []byte, first, count int64) ([]byte, error)
}

// Slice is the tensor of the elements from first on, in a shape of its own.
func (t *Tensor) Slice(name string, first int64, shape ...int64) *Tensor {
	s := *t
	s.Name, s.Shape, s.Part = name, shape, nil
	size := t.DType.Size()
	first, count := first*size, s.Elements()*size
	s.Load = func(buffer []byte) ([]byte, error) {
		if t.Part != nil {
			return t.Part(buffer, first, count)
		}
		whole, err := t.Load(nil)
		if err != nil {
			return nil, err
		}
		return append(buffer[:0], whole[first:][:count]...), nil
	}
	return &s
}

// MaxElements bounds a tensor's size (2^40): whatever a header says, sizes below it cannot overflow in bytes.
const MaxElements = 1 << 40

// elements multiplies the sizes of a shape, refusing negative sizes and products beyond MaxElements.
func elements(shape []int64) (int64, error) {
	n := uint64(1)
	for _, size := range shape {
		if size < 0 {
			return 0, fmt.Errorf("shape %v has a negative size", shape)
		}
		high, low := bits.Mul64(n, uint64(size))
		if high != 0 || low > MaxElements {
			// A later size of 0 does not excuse it: no writer makes such a shape.
			return 0, fmt.Errorf("shape %v has more than %d elements", shape, int64(MaxElements))
		}
		n = low
	}
	return int64(n), nil
}

// Elements is the number of elements of the tensor's (already checked) shape.
func (t *Tensor) Elements() int64 {
	n, _ := elements(t.Shape)
	return n
}

// Resize returns a slice of the given length, in buffer's memory if that is large enough.
func Resize(buffer []byte, size int64) []byte {
	if int64(cap(buffer)) >= size {
		return buffer[:size]
	}
	return make([]byte, size)
}

// Dense loads a tensor as dense row-major data of the given type. The scratch buffers are reused when large enough;
// both come back, perhaps grown, the first holding the result.
func (t *Tensor) Dense(to DType, out, scratch []byte) (result, used []byte, err error) {
	if !t.DType.Float() || !to.Float() {
		return nil, scratch, fmt.Errorf("%s: tensor %s: cannot convert %v to %v: weights are float32, bfloat16, "+
			"float16 or float64", t.File, t.Name, t.DType, to)
	}
	data, err := t.Load(scratch)
	if err != nil {
		return nil, scratch, err
	}
	out = Resize(out, t.Elements()*to.Size())
	convert(out, to, data, t.DType)
	return out, data, nil
}

// Float64s loads a tensor's elements, row by row.
func (t *Tensor) Float64s() ([]float64, error) {
	data, _, err := t.Dense(F64, nil, nil)
	out := make([]float64, len(data)/8)
	_, _ = binary.Decode(data, binary.LittleEndian, out) // there are enough bytes
	return out, err
}

// convert writes the elements of src as elements of another float type into dst. Rounding is to nearest, ties to even,
// by way of float32, as PyTorch's. Equal types are copied bit for bit.
func convert(dst []byte, to DType, src []byte, from DType) {
	if from == to {
		copy(dst, src)
		return
	}
	le := binary.LittleEndian
	for i := range int64(len(src)) / from.Size() {
		var x float64
		switch from {
		case F64:
			x = math.Float64frombits(le.Uint64(src[8*i:]))
		case F32:
			x = float64(math.Float32frombits(le.Uint32(src[4*i:])))
		case BF16:
			x = float64(math.Float32frombits(uint32(le.Uint16(src[2*i:])) << 16))
		case F16:
			x = float64(float16.Frombits(le.Uint16(src[2*i:])).Float32())
		}
		switch to {
		case F64:
			le.PutUint64(dst[8*i:], math.Float64bits(x))
		case F32:
			le.PutUint32(dst[4*i:], math.Float32bits(float32(x)))
		case BF16:
			le.PutUint16(dst[2*i:], floatToBFloat(float32(x)))
		case F16:
			le.PutUint16(dst[2*i:], float16.Fromfloat32(float32(x)).Bits())
		}
	}
}

func floatToBFloat(f float32) uint16 {
	b := math.Float32bits(f)
	if b&^(1<<31) > 0xff<<23 { // NaN must not round to infinity
		return uint16(b>>16)&0x8000 | 0x7fc0
	}
	return uint16((b + 0x7fff + (b >> 16 & 1)) >> 16)
}
