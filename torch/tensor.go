package torch

/*
#include "gyre.h"
*/
import "C"

import "unsafe"

// Tensor is a handle to an at::Tensor, dense or a view of a model's storage.
type Tensor struct {
	handle[C.gyre_tensor]
}

// FromHandle takes ownership of a pointer to a heap-allocated at::Tensor, as gotorch's Tensor holds one: Close deletes
// it. A nil pointer gives a closed tensor.
func FromHandle(p unsafe.Pointer) *Tensor {
	return &Tensor{handle[C.gyre_tensor]{c: C.gyre_tensor(p), free: func(h C.gyre_tensor) { C.gyre_tensor_free(h) }}}
}

// Handle is the at::Tensor pointer, valid until Close; nil afterwards. The tensor keeps its ownership.
func (t *Tensor) Handle() unsafe.Pointer {
	var p unsafe.Pointer
	execute(func() { p = unsafe.Pointer(t.c) })
	return p
}

func (t *Tensor) info() (C.gyre_tensor_info_t, error) {
	var info C.gyre_tensor_info_t
	err := t.with(func(h C.gyre_tensor) code { return C.gyre_tensor_info(h, &info) })
	return info, err
}

// Shape gives the sizes of the dimensions.
func (t *Tensor) Shape() ([]int64, error) {
	info, err := t.info()
	if err != nil {
		return nil, err
	}
	shape := make([]int64, info.ndim)
	for i := range shape {
		shape[i] = int64(info.shape[i])
	}
	return shape, nil
}

// CopyIn converts dense row-major data of the given type into the tensor, whose shape must be equal.
func (t *Tensor) CopyIn(dtype DType, shape []int64, data []byte) error {
	return t.with(func(h C.gyre_tensor) code {
		return C.gyre_tensor_copy_in(h, C.gyre_dtype(dtype), C.int32_t(len(shape)), view[C.int64_t](shape),
			unsafe.Pointer(unsafe.SliceData(data)), C.size_t(len(data)))
	})
}

// CopyOut converts the tensor to the given type, dense row-major. len(dst) must be exact.
func (t *Tensor) CopyOut(dtype DType, dst []byte) error {
	return t.with(func(h C.gyre_tensor) code {
		return C.gyre_tensor_copy_out(h, C.gyre_dtype(dtype), unsafe.Pointer(unsafe.SliceData(dst)), C.size_t(len(dst)))
	})
}

// SetFloat32s fills the tensor from dense row-major values, one per element.
func (t *Tensor) SetFloat32s(values []float32) error {
	shape, err := t.Shape()
	if err != nil {
		return err
	}
	return t.CopyIn(F32, shape, bytesOf(values))
}

// Float32s copies all elements out, dense row-major.
func (t *Tensor) Float32s() ([]float32, error) {
	info, err := t.info()
	if err != nil {
		return nil, err
	}
	out := make([]float32, info.numel)
	return out, t.CopyOut(F32, bytesOf(out))
}

func bytesOf(values []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
}
