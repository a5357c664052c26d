package weights

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/x448/float16"
)

// Metadata holds values by key: int64 (all integer types), float64, bool, string, or a slice of one of these.
type Metadata map[string]any

// Value types of the format.
const (
	typeFloat32 = 6
	typeBool    = 7
	typeString  = 8
	typeArray   = 9
	typeFloat64 = 12
)

// numberTypes are the numbers and truth values of the format: their width in bytes, and the value that bits stand for.
var numberTypes = map[uint64]struct {
	width uint64
	value func(bits uint64) any
}{
	0:           {1, func(bits uint64) any { return int64(bits) }},
	1:           {1, func(bits uint64) any { return int64(int8(bits)) }},
	2:           {2, func(bits uint64) any { return int64(bits) }},
	3:           {2, func(bits uint64) any { return int64(int16(bits)) }},
	4:           {4, func(bits uint64) any { return int64(bits) }},
	5:           {4, func(bits uint64) any { return int64(int32(bits)) }},
	typeFloat32: {4, func(bits uint64) any { return shortest(math.Float32frombits(uint32(bits))) }},
	typeBool:    {1, func(bits uint64) any { return bits != 0 }},
	10:          {8, func(bits uint64) any { return int64(bits) }},
	11:          {8, func(bits uint64) any { return int64(bits) }},
	typeFloat64: {8, func(bits uint64) any { return math.Float64frombits(bits) }},
}

// shortest reads a float32 as the decimal number that was meant: 1e-05, not 9.999999747378752e-06.
func shortest(f float32) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	return v
}

func readGGUF(source io.ReaderAt, size int64, path string) *File {
	r := &ggufReader{source: bufio.NewReaderSize(io.NewSectionReader(source, 0, size), 1<<16), size: size}
	if magic := r.bytes(4); string(magic) != "GGUF" {
		refuse("not a GGUF file: it begins with %q", magic)
	}
	version := r.number(4)
	if version != 2 && version != 3 {
		refuse("GGUF version %d, expected 2 or 3 (little-endian)", version)
	}
	tensorCount, keyCount := r.number(8), r.number(8)
	f := &File{Layout: fmt.Sprintf("GGUF version %d", version), GGUF: Metadata{}}
	for range keyCount {
		key := r.text()
		r.what = fmt.Sprintf("metadata key %q: ", key)
		f.GGUF[key] = r.value(r.number(4))
		r.what = ""
	}
	var list []place
	for range tensorCount {
		list = append(list, r.tensor(path))
	}
	alignment := int64(32)
	if v, ok := f.GGUF["general.alignment"].(int64); ok {
		alignment = v
	}
	if alignment < 1 || alignment > 1<<20 {
		refuse("general.alignment is %d, expected 1 to 2^20", alignment)
	}
	start := (r.at + alignment - 1) / alignment * alignment
	f.Tensors = placed(source, list, start, size-start)
	return f
}

// tensor reads an entry of the tensor table.
func (r *ggufReader) tensor(path string) place {
	p := place{Tensor: Tensor{Name: r.text(), File: path}}
	r.what = "tensor " + p.Name + ": "
	dims := r.number(4)
	if dims > 4 {
		r.refuse("has %d dimensions, at most 4 are read", dims)
	}
	for range dims {
		p.Shape = append(p.Shape, int64(r.number(8)))
	}
	slices.Reverse(p.Shape) // the file names the fastest dimension first
	n, err := elements(p.Shape)
	if err != nil {
		r.refuse("%w", err)
	}
	number := r.number(4)
	k, ok := kinds[number]
	if !ok {
		r.refuse("tensor type %d is not supported: expected float32, float16, bfloat16, Q4_1 or Q8_0", number)
	}
	if dims > 0 && p.Shape[dims-1]%k.block != 0 {
		r.refuse("rows of %d elements are not whole %s blocks of %d", p.Shape[dims-1], k.name, k.block)
	}
	if p.offset = int64(r.number(8)); p.offset < 0 {
		r.refuse("data offset %d", uint64(p.offset))
	}
	p.DType, p.Kind, p.decode = k.dtype, k.name, k.decode
	p.size = n / k.block * k.size
	r.what = ""
	return p
}

// ggufReader reads the header in order and knows how much of the file is left. It refuses what does not fit.
type ggufReader struct {
	source   *bufio.Reader
	at, size int64
	what     string // is being read, for messages: "metadata key …: "
}

func (r *ggufReader) refuse(format string, args ...any) {
	refuse("%s%w", r.what, fmt.Errorf(format, args...))
}

// bytes reads n bytes into a new slice; n is checked against the rest of the file before anything is allocated.
func (r *ggufReader) bytes(n uint64) []byte {
	if n > uint64(r.size-r.at) {
		r.refuse("byte %d: needs %d bytes, the file has %d left: truncated?", r.at, n, r.size-r.at)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r.source, b); err != nil {
		r.refuse("%w", err)
	}
	r.at += int64(n)
	return b
}

// number reads an unsigned number of 1 to 8 bytes.
func (r *ggufReader) number(width uint64) uint64 {
	var b [8]byte
	copy(b[:], r.bytes(width))
	return binary.LittleEndian.Uint64(b[:])
}

func (r *ggufReader) text() string { return string(r.bytes(r.number(8))) }

// value reads a metadata value.
func (r *ggufReader) value(kind uint64) any {
	switch kind {
	case typeString:
		return r.text()
	case typeArray:
		return r.array()
	}
	t, known := numberTypes[kind]
	if !known {
		r.refuse("unknown value type %d", kind)
	}
	return t.value(r.number(t.width))
}

func (r *ggufReader) array() any {
	kind, n := r.number(4), r.number(8)
	switch kind {
	case typeArray:
		r.refuse("arrays of arrays are not supported")
	case typeString:
		return arrayOf[string](r, kind, n)
	case typeBool:
		return arrayOf[bool](r, kind, n)
	case typeFloat32, typeFloat64:
		return arrayOf[float64](r, kind, n)
	}
	return arrayOf[int64](r, kind, n)
}

// arrayOf reads n values of type T. A wrong n ends at the end of the file.
func arrayOf[T any](r *ggufReader, kind, n uint64) (list []T) {
	for range n {
		list = append(list, r.value(kind).(T))
	}
	return list
}

// Number is a float value, or an integer one as a float.
func (m Metadata) Number(key string) (float64, bool) {
	switch v := m[key].(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// kind is a tensor type of GGUF: blocks of `block` elements in `size` bytes. decode turns whole blocks into float32;
// nil for plain types.
type kind struct {
	name        string
	block, size int64
	dtype       DType
	decode      func(out, blocks []byte)
}

// kinds are the supported types by their number in the file: plain ones, and those of files that a model is trained
// from. The finer quantised types lose too much for that.
var kinds = map[uint64]kind{
	0:  {"float32", 1, 4, F32, nil},
	1:  {"float16", 1, 2, F16, nil},
	30: {"bfloat16", 1, 2, BF16, nil},
	3:  {"Q4_1", 32, 20, F32, decodeQ41},
	8:  {"Q8_0", 32, 34, F32, decodeQ80},
}

func half(b []byte) float32 { return float16.Frombits(binary.LittleEndian.Uint16(b)).Float32() }

func put(out []byte, i int, v float32) { binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(v)) }

// decodeQ41 decodes blocks of a scale, a minimum and 32 nibbles, of which the low ones are the first half of the
// block. The product is rounded to float32 before the sum (the conversion forbids fusing them), as in the reference.
func decodeQ41(out, blocks []byte) {
	for b := range slices.Chunk(blocks, 20) {
		d, m := half(b), half(b[2:])
		for j, q := range b[4:] {
			put(out, j, float32(d*float32(q&15))+m)
			put(out, j+16, float32(d*float32(q>>4))+m)
		}
		out = out[4*32:]
	}
}

// decodeQ80 decodes blocks of a scale and 32 signed bytes.
func decodeQ80(out, blocks []byte) {
	for b := range slices.Chunk(blocks, 34) {
		d := half(b)
		for j, q := range b[2:] {
			put(out, j, d*float32(int8(q)))
		}
		out = out[4*32:]
	}
}
