// Package npz writes and reads numpy's archives of arrays: float32 values, rows first.
//
// The library github.com/sbinet/npyio is no replacement: it gives flat values no shape, and it reads compressed
// entries without filling its buffer, which returns wrong values and no error.
package npz

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

// Array is one entry of a file.
type Array struct {
	Name   string
	Shape  []int64
	Values []float32
}

// Write writes arrays as numpy reads them: a zip archive of NPY files (version 1.0, little-endian float32).
func Write(w io.Writer, arrays []Array) error {
	archive := zip.NewWriter(w)
	for _, a := range arrays {
		// Gradients hardly shrink: they are not compressed.
		entry, err := archive.CreateHeader(&zip.FileHeader{Name: a.Name + ".npy", Method: zip.Store})
		if err != nil {
			return err
		}
		if _, err := entry.Write(header(a.Shape)); err != nil {
			return err
		}
		if err := binary.Write(entry, binary.LittleEndian, a.Values); err != nil {
			return err
		}
	}
	return archive.Close()
}

// header is what an array begins with: its length is a multiple of 64, so that the values are aligned.
func header(shape []int64) []byte {
	sizes := make([]string, len(shape))
	for i, n := range shape {
		sizes[i] = strconv.FormatInt(n, 10)
	}
	tuple := strings.Join(sizes, ", ")
	if len(shape) == 1 {
		tuple += "," // (5,) is a tuple, (5) is not
	}
	text := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", tuple)
	const before = 10 // magic, version and the length of the text
	text += strings.Repeat(" ", 63-(before+len(text))%64) + "\n"
	return append([]byte{0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, byte(len(text)), byte(len(text) >> 8)}, text...)
}

// File is an open file of arrays, which are read one at a time.
type File struct {
	Path    string
	Names   []string // of the arrays, in the file's order
	archive *zip.ReadCloser
	entries map[string]*zip.File
}

// Open opens what Write or numpy wrote, compressed or not. Close it.
func Open(path string) (*File, error) {
	archive, err := zip.OpenReader(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: not an npz file: %w", path, err)
	}
	f := &File{Path: path, archive: archive, entries: map[string]*zip.File{}}
	for _, entry := range archive.File {
		name := strings.TrimSuffix(entry.Name, ".npy")
		f.Names = append(f.Names, name)
		f.entries[name] = entry
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() error { return f.archive.Close() }

// Has tells whether the file has an array.
func (f *File) Has(name string) bool { return f.entries[name] != nil }

// Read reads an array of float32 or float64 values.
func (f *File) Read(name string) (Array, error) {
	entry, known := f.entries[name]
	if !known {
		return Array{}, fmt.Errorf("%s has no array %q", f.Path, name)
	}
	a, err := read(entry)
	if err != nil {
		return a, fmt.Errorf("%s: %s: %w", f.Path, entry.Name, err)
	}
	a.Name = name
	return a, nil
}

var describes = regexp.MustCompile(`^\{'descr': '<f([48])', 'fortran_order': False, 'shape': \(([0-9, ]*)\),? ?\}\s*$`)

func read(entry *zip.File) (a Array, err error) {
	r, err := entry.Open()
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	start := make([]byte, 10) // magic, version, and the length of the header
	if _, err := io.ReadFull(r, start); err != nil {
		return a, err
	}
	if string(start[:7]) != "\x93NUMPY\x01" {
		return a, errors.New("not an NPY array of version 1")
	}
	text := make([]byte, binary.LittleEndian.Uint16(start[8:]))
	if _, err := io.ReadFull(r, text); err != nil {
		return a, err
	}
	found := describes.FindSubmatch(text)
	if found == nil {
		return a, fmt.Errorf("header %q, expected rows of <f4 or <f8", strings.TrimSpace(string(text)))
	}
	size, width := int64(1), int64(found[1][0]-'0')
	for _, word := range strings.FieldsFunc(string(found[2]), func(c rune) bool { return c == ',' || c == ' ' }) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || size > 0 && n > (1<<40)/size {
			return a, fmt.Errorf("shape (%s) is too large", found[2])
		}
		a.Shape, size = append(a.Shape, n), size*n
	}
	if have := int64(entry.UncompressedSize64) - int64(len(start)+len(text)); have != size*width {
		return a, fmt.Errorf("%d bytes of values, expected %d for shape (%s)", have, size*width, found[2])
	}
	a.Values = make([]float32, size)
	if width == 8 {
		values := make([]float64, size)
		err = binary.Read(r, binary.LittleEndian, values)
		for i, v := range values {
			a.Values[i] = float32(v)
		}
	} else {
		err = binary.Read(r, binary.LittleEndian, a.Values)
	}
	if err == nil { // the checksum is compared at the end
		_, err = io.Copy(io.Discard, r)
	}
	return a, err
}
