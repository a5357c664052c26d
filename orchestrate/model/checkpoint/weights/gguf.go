package weights

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Metadata holds values by key: int64 (all integer types), uint64 (only beyond int64), float64, bool, string, or
// []any of one of these.
type Metadata map[string]any

// Limits beyond any real file.
const (
	maxTensors = 1 << 16
	maxKeys    = 1 << 16
	maxName    = 1 << 10
	maxText    = 16 << 20 // bytes: chat templates are some kilobytes
	maxArray   = 1 << 22  // vocabularies have some hundred thousand entries
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

// tensorInfo is an entry of the tensor table.
type tensorInfo struct {
	name         string
	kind         kind
	shape        []int64 // row-major
	offset, size int64   // offset within the data section
}

func readGGUF(source io.ReaderAt, size int64, path string) (f *File, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("not a valid GGUF file: %w", err)
		}
	}()
	defer refused(&err)
	r := &ggufReader{source: bufio.NewReaderSize(io.NewSectionReader(source, 0, size), 1<<16), size: size}
	if magic := r.bytes(4); string(magic) != "GGUF" {
		refuse("it begins with %q, expected \"GGUF\"", magic)
	}
	version := r.number(4)
	switch {
	case version == 2 || version == 3:
	case version&0xffff == 0 && version != 0:
		refuse("big-endian files are not supported")
	default:
		refuse("version %d, expected 2 or 3", version)
	}
	tensorCount, keyCount := r.count("tensors", maxTensors, 24), r.count("metadata keys", maxKeys, 13)
	f = &File{Layout: fmt.Sprintf("GGUF version %d", version), GGUF: r.metadata(keyCount)}
	infos := make([]tensorInfo, tensorCount)
	seen := map[string]bool{}
	for i := range infos {
		infos[i] = r.tensorInfo(i, tensorCount)
		if seen[infos[i].name] {
			refuse("tensor %s appears twice", infos[i].name)
		}
		seen[infos[i].name] = true
	}
	alignment := int64(32)
	if v, ok := f.GGUF.Integer("general.alignment"); ok {
		alignment = v
	}
	if alignment < 1 || alignment > 1<<20 || alignment&(alignment-1) != 0 {
		refuse("general.alignment %d: expected a power of two up to 2^20", alignment)
	}
	start := (r.at + alignment - 1) / alignment * alignment
	checkPlaces(infos, max(size-start, 0), alignment)
	for _, t := range infos {
		f.Tensors = append(f.Tensors, t.tensor(source, path, start))
	}
	return f, nil
}

func (r *ggufReader) tensorInfo(index, count int) tensorInfo {
	t := tensorInfo{name: r.text(maxName)}
	r.what = fmt.Sprintf("tensor %d of %d, %s: ", index, count, t.name)
	dims := r.number(4)
	if dims > 4 {
		r.refuse("has %d dimensions, at most 4 are read", dims)
	}
	for range dims {
		n := r.number(8)
		if n > MaxElements {
			r.refuse("has a dimension of %d", n)
		}
		t.shape = append(t.shape, int64(n))
	}
	slices.Reverse(t.shape) // the file names the fastest dimension first
	number, offset := r.number(4), r.number(8)
	n, err := elements(t.shape)
	if err != nil {
		r.refuse("%w", err)
	}
	var ok bool
	if t.kind, ok = kinds[uint32(number)]; !ok {
		r.refuse("tensor type %d is not supported: expected one of %s", number, kindNames())
	}
	row := int64(1)
	if len(t.shape) > 0 {
		row = t.shape[len(t.shape)-1]
	}
	if row%t.kind.block != 0 {
		r.refuse("rows of %d elements are not whole %s blocks of %d", row, t.kind.name, t.kind.block)
	}
	if offset > MaxElements*8 {
		r.refuse("data offset %d", offset)
	}
	r.what = ""
	t.offset, t.size = int64(offset), n/t.kind.block*t.kind.size
	return t
}

// checkPlaces checks that ranges are aligned, lie within the data section and do not overlap.
func checkPlaces(list []tensorInfo, dataSize, alignment int64) {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b tensorInfo) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset),
			cmp.Compare(a.size, b.size))
	})
	end := int64(0)
	for _, t := range sorted {
		switch {
		case t.offset%alignment != 0:
			refuse("tensor %s: its data offset %d is not a multiple of the alignment %d", t.name, t.offset, alignment)
		case t.offset < end:
			refuse("tensor %s: its data at %d overlaps the tensor before it, which ends at %d", t.name, t.offset, end)
		case t.offset+t.size > dataSize:
			refuse("tensor %s: its data ends at %d, but the file holds %d bytes of data: truncated?", t.name,
				t.offset+t.size, dataSize)
		}
		end = t.offset + t.size
	}
}

func (t tensorInfo) tensor(source io.ReaderAt, path string, start int64) *Tensor {
	raw := readRange(source, path, t.name, start+t.offset, t.size)
	out := &Tensor{Name: t.name, File: path, DType: t.kind.dtype, Shape: t.shape, Load: raw}
	if t.kind.decode == nil {
		return out
	}
	out.Stored = t.kind.name
	out.Load = func(buffer []byte) ([]byte, error) {
		blocks, err := raw(nil)
		if err != nil {
			return nil, err
		}
		buffer = Resize(buffer, out.Elements()*4)
		t.kind.dequantize(buffer, blocks)
		return buffer, nil
	}
	return out
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

// count reads a number of things of at least minimum bytes each, so it cannot promise more than the file could hold.
func (r *ggufReader) count(things string, limit, minimum uint64) int {
	n := r.number(8)
	if n > limit || n > uint64(r.size-r.at)/minimum {
		r.refuse("%d %s in a file of %d bytes (at most %d are read): truncated?", n, things, r.size, limit)
	}
	return int(n)
}

func (r *ggufReader) text(limit uint64) string {
	n := r.number(8)
	if n > limit {
		r.refuse("byte %d: a text of %d bytes, at most %d are read", r.at, n, limit)
	}
	b := r.bytes(n)
	if !utf8.Valid(b) {
		r.refuse("byte %d: text is not valid UTF-8", r.at-int64(n))
	}
	return string(b)
}

func (r *ggufReader) metadata(n int) Metadata {
	m := Metadata{}
	for range n {
		key := r.text(maxName)
		if _, twice := m[key]; twice {
			refuse("metadata key %q appears twice", key)
		}
		r.what = fmt.Sprintf("metadata key %q: ", key)
		if kind := r.number(4); kind == typeArray {
			m[key] = r.array()
		} else {
			m[key] = r.scalar(kind)
		}
		r.what = ""
	}
	return m
}

func (r *ggufReader) array() []any {
	kind := r.number(4)
	if kind == typeArray || kind >= uint64(len(smallest)) {
		r.refuse("an array of type %d is not supported", kind)
	}
	out := make([]any, r.count("array elements", maxArray, smallest[kind]))
	for i := range out {
		out[i] = r.scalar(kind)
	}
	return out
}

func (r *ggufReader) scalar(kind uint64) any {
	switch kind {
	case typeUint8, typeUint16, typeUint32:
		return int64(r.number(smallest[kind]))
	case typeInt8:
		return int64(int8(r.number(1)))
	case typeInt16:
		return int64(int16(r.number(2)))
	case typeInt32:
		return int64(int32(r.number(4)))
	case typeInt64:
		return int64(r.number(8))
	case typeUint64:
		if v := r.number(8); v > math.MaxInt64 {
			return v
		} else {
			return int64(v)
		}
	case typeFloat32:
		return shortest(math.Float32frombits(uint32(r.number(4))))
	case typeFloat64:
		return math.Float64frombits(r.number(8))
	case typeBool:
		return r.number(1) != 0
	case typeString:
		return r.text(maxText)
	}
	r.refuse("unknown value type %d", kind)
	return nil
}

// shortest reads a float32 as the decimal number that was meant: 1e-05, not 9.999999747378752e-06.
func shortest(f float32) float64 {
	v, err := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	if err != nil {
		return float64(f)
	}
	return v
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
func (m Metadata) Texts(key string) ([]string, bool) { return listOf[string](m[key]) }

// Integers is an array of integers; false when any element is not one.
func (m Metadata) Integers(key string) ([]int64, bool) { return listOf[int64](m[key]) }

func listOf[T any](value any) ([]T, bool) {
	list, ok := value.([]any)
	out := make([]T, len(list))
	for i, v := range list {
		x, isT := v.(T)
		out[i], ok = x, ok && isT
	}
	return out, ok
}
