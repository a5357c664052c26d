package tensors

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
)

// Tensor is one tensor of a file. Loading it is the only access to its data, so a set of tensors costs no memory.
type Tensor struct {
	Name    string
	File    string // where it lies, for messages
	DType   DType  // of the loaded data
	Stored  string // element type as the file names it, where it differs from DType (GGUF's "Q4_1"); "" otherwise
	Shape   []int64
	Strides []int64 // in elements; nil = dense row-major
	// Load reads the data into buffer if it is large enough, else into a new one, and returns what it used. With
	// strides, the data runs from the first to the last element addressed.
	Load func(buffer []byte) ([]byte, error)
}

// MaxElements bounds a tensor's size (2^40): whatever a header says, sizes below it cannot overflow in bytes.
const MaxElements = 1 << 40

// Elements multiplies the sizes of a shape, refusing negative sizes and products beyond MaxElements.
func Elements(shape []int64) (int64, error) {
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

// Span is the number of elements between the first and the last one addressed, both included: what the data of a
// strided tensor must hold. It refuses negative strides and overflow.
func Span(shape, strides []int64) (int64, error) {
	n, err := Elements(shape)
	if err != nil || strides == nil || n == 0 {
		return n, err
	}
	if len(strides) != len(shape) {
		return 0, fmt.Errorf("%d strides for %d dimensions", len(strides), len(shape))
	}
	last := int64(0)
	for i, size := range shape {
		if strides[i] < 0 {
			return 0, fmt.Errorf("strides %v: a negative stride", strides)
		}
		high, low := bits.Mul64(uint64(size-1), uint64(strides[i]))
		if high != 0 || low > MaxElements || last+int64(low) >= MaxElements {
			return 0, fmt.Errorf("shape %v with strides %v reaches beyond %d elements", shape, strides, int64(MaxElements))
		}
		last += int64(low)
	}
	return last + 1, nil
}

// Contiguous reports whether strides are those of a dense row-major tensor.
func Contiguous(shape, strides []int64) bool {
	if strides == nil {
		return true
	}
	want := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 && strides[i] != want {
			return false
		}
		want *= shape[i]
	}
	return true
}

// Elements is the number of elements of the tensor's (already checked) shape.
func (t *Tensor) Elements() int64 {
	n := int64(1)
	for _, size := range t.Shape {
		n *= size
	}
	return n
}

// Kind is the element type for people: as stored, or PyTorch's name.
func (t *Tensor) Kind() string {
	if t.Stored != "" {
		return t.Stored
	}
	return t.DType.String()
}

// ReadRange is the Load of data that lies as it is at [offset, offset+size) of a file.
func ReadRange(r io.ReaderAt, file, name string, offset, size int64) func([]byte) ([]byte, error) {
	return func(buffer []byte) ([]byte, error) {
		buffer = Resize(buffer, size)
		if size == 0 { // reading nothing at the end of a file is an error to some readers
			return buffer, nil
		}
		if _, err := r.ReadAt(buffer, offset); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("%s: tensor %s: reading %d bytes at byte %d: %w (has the file shrunk since it was opened?)",
				file, name, size, offset, err)
		}
		return buffer, nil
	}
}

// Resize returns a slice of the given length, in buffer's memory if that is large enough.
func Resize(buffer []byte, size int64) []byte {
	if size > math.MaxInt {
		panic("tensors: size beyond the address space") // sizes are checked against the file before
	}
	if int64(cap(buffer)) >= size {
		return buffer[:size]
	}
	return make([]byte, size)
}
