package safetensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"

	"gyre/orchestrate/checkpoint/tensors"
)

// MaxHeader is the largest header the format allows, in bytes.
const MaxHeader = 100_000_000

// File is an opened file. Close it when no tensor will be loaded any more.
type File struct {
	Tensors  []*tensors.Tensor // in the order of their data
	Metadata map[string]string
	file     *os.File
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// Open reads and checks the header of a file.
func Open(path string) (*File, error) {
	file, size, err := tensors.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	f, err := read(file, size, path)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: not a valid safetensors file: %w", path, err)
	}
	f.file = file
	return f, nil
}

func read(r io.ReaderAt, size int64, path string) (*File, error) {
	header, err := readHeader(r, size)
	if err != nil {
		return nil, err
	}
	entries, metadata, err := parseHeader(header)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	start := int64(8 + len(header))
	if err := checkLayout(entries, size-start); err != nil {
		return nil, err
	}
	out := &File{Metadata: metadata}
	for _, e := range entries {
		out.Tensors = append(out.Tensors, &tensors.Tensor{Name: e.name, File: path, DType: e.dtype, Shape: e.shape,
			Load: tensors.ReadRange(r, path, e.name, start+e.begin, e.end-e.begin)})
	}
	return out, nil
}

func readHeader(r io.ReaderAt, fileSize int64) ([]byte, error) {
	var prefix [8]byte
	if fileSize < int64(len(prefix)) {
		return nil, fmt.Errorf("%d bytes: too short for the 8-byte header length", fileSize)
	}
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	if n > MaxHeader {
		return nil, fmt.Errorf("header length %d, at most %d is allowed", n, MaxHeader)
	}
	if int64(n) > fileSize-int64(len(prefix)) {
		return nil, fmt.Errorf("header length %d in a file of %d bytes: truncated?", n, fileSize)
	}
	header := make([]byte, n)
	if _, err := r.ReadAt(header, int64(len(prefix))); err != nil && n > 0 {
		return nil, err
	}
	if n == 0 || header[0] != '{' {
		return nil, fmt.Errorf("header does not start with '{'")
	}
	return header, nil
}

// checkLayout sorts entries by position and checks that they tile [0, dataSize) and have the sizes their shapes ask
// for.
func checkLayout(entries []entry, dataSize int64) error {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.name, b.name))
	})
	at := int64(0)
	for _, e := range entries {
		n, err := tensors.Elements(e.shape)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", e.name, err)
		}
		switch want := n * e.dtype.Size(); {
		case e.begin > e.end || e.end-e.begin != want:
			return fmt.Errorf("tensor %s: data_offsets [%d, %d], but %s %v takes %d bytes", e.name, e.begin, e.end,
				e.dtype.Safetensors(), e.shape, want)
		case e.begin < at:
			return fmt.Errorf("tensor %s: its data at %d overlaps the tensor before it, which ends at %d", e.name, e.begin, at)
		case e.begin > at:
			return fmt.Errorf("tensor %s: %d unused bytes before its data at %d", e.name, e.begin-at, e.begin)
		case e.end > dataSize:
			return fmt.Errorf("tensor %s: its data ends at %d, but the file holds %d bytes of data: truncated?", e.name, e.end, dataSize)
		}
		at = e.end
	}
	if at != dataSize {
		return fmt.Errorf("%d bytes after the last tensor: expected the data to end at %d, the file has %d bytes of data", dataSize-at, at, dataSize)
	}
	return nil
}
