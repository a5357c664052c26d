package gguf

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"gyre/orchestrate/checkpoint/tensors"
)

// File is an opened file. Close it when no tensor will be loaded any more.
type File struct {
	Version  uint32
	Metadata Metadata
	Tensors  []*tensors.Tensor // dequantised on loading; shapes are row-major, as PyTorch has them
	Path     string
	file     *os.File
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// Limits beyond any real file.
const (
	maxTensors = 1 << 16
	maxKeys    = 1 << 16
	maxName    = 1 << 10
	maxDims    = 4
)

// Open reads the header of a file.
func Open(path string) (*File, error) {
	file, size, err := tensors.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	f, err := read(file, size, path)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: not a valid GGUF file: %w", path, err)
	}
	f.file = file
	return f, nil
}

// tensorInfo is an entry of the tensor table.
type tensorInfo struct {
	name         string
	kind         kind
	shape        []int64 // row-major
	offset, size int64   // offset within the data section
}

func read(source io.ReaderAt, size int64, path string) (*File, error) {
	r := newReader(source, size)
	f := &File{Path: path}
	if magic := r.bytes(4); r.err == nil && string(magic) != "GGUF" {
		return nil, fmt.Errorf("it begins with %q, expected \"GGUF\"", magic)
	}
	f.Version = r.uint32()
	if r.err == nil && f.Version != 2 && f.Version != 3 {
		if f.Version&0xffff == 0 && f.Version != 0 {
			return nil, errors.New("big-endian files are not supported")
		}
		return nil, fmt.Errorf("version %d, expected 2 or 3", f.Version)
	}
	tensorCount, keyCount := r.count("tensors", maxTensors, 24), r.count("metadata keys", maxKeys, 13)
	f.Metadata = r.metadata(keyCount)
	infos := make([]tensorInfo, 0, tensorCount)
	seen := map[string]bool{}
	for i := range tensorCount {
		t := r.tensorInfo()
		if r.err != nil {
			return nil, fmt.Errorf("tensor %d of %d: %w", i, tensorCount, r.err)
		}
		if seen[t.name] {
			return nil, fmt.Errorf("tensor %s appears twice", t.name)
		}
		seen[t.name] = true
		infos = append(infos, t)
	}
	if r.err != nil {
		return nil, r.err
	}
	alignment := int64(32)
	if v, ok := f.Metadata.Integer("general.alignment"); ok {
		alignment = v
	}
	if alignment < 1 || alignment > 1<<20 || alignment&(alignment-1) != 0 {
		return nil, fmt.Errorf("general.alignment %d: expected a power of two up to 2^20", alignment)
	}
	start := (r.at + alignment - 1) / alignment * alignment
	if err := checkLayout(infos, max(size-start, 0), alignment); err != nil {
		return nil, err
	}
	for _, t := range infos {
		f.Tensors = append(f.Tensors, t.tensor(source, path, start))
	}
	return f, nil
}

func (r *reader) tensorInfo() tensorInfo {
	t := tensorInfo{name: r.text(maxName)}
	dims := r.uint32()
	if r.err == nil && dims > maxDims {
		r.err = fmt.Errorf("%s has %d dimensions, at most %d are read", t.name, dims, maxDims)
	}
	for range dims {
		if r.err != nil {
			return t
		}
		n := r.uint64()
		if n > tensors.MaxElements {
			r.err = fmt.Errorf("%s has a dimension of %d", t.name, n)
		}
		t.shape = append(t.shape, int64(n))
	}
	slices.Reverse(t.shape) // the file names the fastest dimension first
	number := r.uint32()
	offset := r.uint64()
	if r.err != nil {
		return t
	}
	n, err := tensors.Elements(t.shape)
	if err != nil {
		r.err = fmt.Errorf("%s: %w", t.name, err)
		return t
	}
	var ok bool
	if t.kind, ok = kinds[number]; !ok {
		r.err = fmt.Errorf("%s: tensor type %d is not supported: expected one of %s", t.name, number, kindNames())
		return t
	}
	row := int64(1)
	if len(t.shape) > 0 {
		row = t.shape[len(t.shape)-1]
	}
	if row%t.kind.block != 0 {
		r.err = fmt.Errorf("%s: rows of %d elements are not whole %s blocks of %d", t.name, row, t.kind.name, t.kind.block)
		return t
	}
	if offset > tensors.MaxElements*8 {
		r.err = fmt.Errorf("%s: data offset %d", t.name, offset)
	}
	t.offset, t.size = int64(offset), n/t.kind.block*t.kind.size
	return t
}

// checkLayout checks that ranges are aligned, lie within the data section and do not overlap.
func checkLayout(list []tensorInfo, dataSize, alignment int64) error {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b tensorInfo) int { return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.size, b.size)) })
	end := int64(0)
	for _, t := range sorted {
		switch {
		case t.offset%alignment != 0:
			return fmt.Errorf("tensor %s: its data offset %d is not a multiple of the alignment %d", t.name, t.offset, alignment)
		case t.offset < end:
			return fmt.Errorf("tensor %s: its data at %d overlaps the tensor before it, which ends at %d", t.name, t.offset, end)
		case t.offset+t.size > dataSize:
			return fmt.Errorf("tensor %s: its data ends at %d, but the file holds %d bytes of data: truncated?", t.name, t.offset+t.size, dataSize)
		}
		end = t.offset + t.size
	}
	return nil
}

func (t tensorInfo) tensor(source io.ReaderAt, path string, start int64) *tensors.Tensor {
	out := &tensors.Tensor{Name: t.name, File: path, DType: t.kind.dtype, Shape: t.shape}
	raw := tensors.ReadRange(source, path, t.name, start+t.offset, t.size)
	if t.kind.decode == nil {
		out.Load = raw
		return out
	}
	out.Stored = t.kind.name
	out.Load = func(buffer []byte) ([]byte, error) {
		blocks, err := raw(nil)
		if err != nil {
			return nil, err
		}
		buffer = tensors.Resize(buffer, out.Elements()*4)
		t.kind.dequantize(buffer, blocks)
		return buffer, nil
	}
	return out
}
