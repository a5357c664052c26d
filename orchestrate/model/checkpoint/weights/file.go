// Package weights reads files of tensors: safetensors, torch.save's archives and GGUF; and writes safetensors.
//
//	file.go         opening a file of any format; where its tensors lie
//	tensor.go       a tensor in a file: name, type, layout, how to get at its bytes; conversion between float types
//	safetensors.go  huggingface/safetensors: a JSON header, then the data
//	torchfile.go    torch.save's zip archives: their storages and tensors
//	pickle.go       which instructions and names a pickle of theirs may hold
//	gguf.go         llama.cpp's format and its quantised types
//
// Files need not be well-formed: sizes are checked against the file before anything is allocated, products without
// overflow, and nothing of a pickle is executed. GGUF has a reader of Gyre's own: 4 million nested arrays overflow
// gguf-parser-go's stack, which Go cannot recover from.
package weights

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"gyre/internal/regular"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// File is an opened file. Close it when no tensor will be loaded any more.
type File struct {
	Layout   string            // "safetensors", "torch.save", "GGUF version 3"
	Tensors  []*Tensor         // in the order of their data, or of the state dict; GGUF's are dequantised on loading
	Metadata map[string]string // of safetensors
	GGUF     Metadata          // of GGUF
	file     *os.File
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// reader reads what a file of the given size says of its tensors. It may refuse.
type reader func(r io.ReaderAt, size int64, path string) *File

var readers = map[string]reader{
	".safetensors": readSafetensors, ".gguf": readGGUF, ".bin": readTorch, ".pt": readTorch, ".pth": readTorch,
}

// Open reads what a file says of its tensors; the ending tells the format.
func Open(path string) (*File, error) {
	read, known := readers[filepath.Ext(path)]
	if !known {
		return nil, fmt.Errorf("%s: expected a file that ends in .safetensors, .bin, .pt, .pth or .gguf", path)
	}
	file, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(read, file, size, path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	f.file = file
	return f, nil
}

func parse(read reader, r io.ReaderAt, size int64, path string) (f *File, err error) {
	defer refused(&err)
	if bytes.HasPrefix(bytesAt(r, 0, min(size, 64)), []byte("version https://git-lfs")) {
		refuse("a Git LFS pointer, not the file itself: run `git lfs pull` where it came from")
	}
	return read(r, size, path), nil
}

// bytesAt reads a part of a file that is known to lie within it.
func bytesAt(r io.ReaderAt, offset, size int64) []byte {
	data := make([]byte, size)
	if n, err := r.ReadAt(data, offset); int64(n) < size {
		refuse("reading %d bytes at byte %d: %w", size, offset, err)
	}
	return data
}

// refusal carries an error from deep within a malformed file to where its reading began.
type refusal struct{ error }

// refuse gives up on a file; see refused.
func refuse(format string, args ...any) { panic(refusal{fmt.Errorf(format, args...)}) }

// refused, deferred, turns refuse into the error of its function.
func refused(err *error) {
	switch r := recover().(type) {
	case nil:
	case refusal:
		*err = r.error
	default:
		panic(r)
	}
}

// place is a tensor as a file's header describes it: size bytes at an offset within the data, and how to make
// elements of these bytes where they are not elements themselves.
type place struct {
	Tensor
	offset, size int64
	decode       func(out, blocks []byte)
}

// placed sorts tensors by place and makes them loadable; the data begins at byte start of the file. Tensors must have
// different names, lie within the data and not overlap.
func placed(r io.ReaderAt, list []place, start, dataSize int64) []*Tensor {
	slices.SortFunc(list, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.size, b.size), cmp.Compare(a.Name, b.Name))
	})
	var tensors []*Tensor
	seen := map[string]bool{}
	end := int64(0)
	for i := range list {
		p := &list[i]
		switch {
		case seen[p.Name]:
			refuse("tensor %s appears twice", p.Name)
		case p.offset < end:
			refuse("tensor %s: its data at %d overlaps the tensor before it, which ends at %d", p.Name, p.offset, end)
		case p.size > dataSize-p.offset:
			refuse("tensor %s: its %d bytes at %d end beyond the %d bytes of data in the file: truncated?", p.Name,
				p.size, p.offset, dataSize)
		}
		seen[p.Name], end = true, p.offset+p.size
		p.Load = readRange(r, &p.Tensor, start+p.offset, p.size)
		if p.decode != nil {
			p.Load = p.decoded(p.Load)
		} else {
			p.Part = readParts(r, &p.Tensor, start+p.offset)
		}
		tensors = append(tensors, &p.Tensor)
	}
	return tensors
}

// readRange is the Load of data that lies as it is at [offset, offset+size) of a file.
func readRange(r io.ReaderAt, t *Tensor, offset, size int64) func([]byte) ([]byte, error) {
	return func(buffer []byte) ([]byte, error) {
		buffer = Resize(buffer, size)
		if n, err := r.ReadAt(buffer, offset); int64(n) < size {
			return nil, fmt.Errorf("%s: tensor %s: reading %d bytes at byte %d: %w (has the file shrunk since it was "+
				"opened?)", t.File, t.Name, size, offset, err)
		}
		return buffer, nil
	}
}

// readParts is the Part of such data.
func readParts(r io.ReaderAt, t *Tensor, offset int64) func([]byte, int64, int64) ([]byte, error) {
	return func(buffer []byte, first, count int64) ([]byte, error) {
		return readRange(r, t, offset+first, count)(buffer)
	}
}

// decoded is the Load of a tensor whose bytes in the file are those of raw.
func (p *place) decoded(raw func([]byte) ([]byte, error)) func([]byte) ([]byte, error) {
	return func(buffer []byte) ([]byte, error) {
		blocks, err := raw(nil)
		if err != nil {
			return nil, err
		}
		buffer = Resize(buffer, p.Elements()*p.DType.Size())
		p.decode(buffer, blocks)
		return buffer, nil
	}
}
