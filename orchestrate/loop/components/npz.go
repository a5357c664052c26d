package components

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/torch"
)

// Array is one entry of an npz file.
type Array struct {
	Name   string
	Shape  []int64
	Values []float32
}

// WriteNPZ writes arrays as numpy reads them: a zip archive of NPY files (version 1.0, little-endian float32, rows first).
func WriteNPZ(w io.Writer, arrays []Array) error {
	archive := zip.NewWriter(w)
	for _, a := range arrays {
		entry, err := archive.CreateHeader(&zip.FileHeader{Name: a.Name + ".npy", Method: zip.Store}) // gradients hardly shrink
		if err != nil {
			return err
		}
		if _, err := entry.Write(npyHeader(a.Shape)); err != nil {
			return err
		}
		if err := binary.Write(entry, binary.LittleEndian, a.Values); err != nil {
			return err
		}
	}
	return archive.Close()
}

// npyHeader is what an array begins with: its length is a multiple of 64, so that the values are aligned.
func npyHeader(shape []int64) []byte {
	sizes := make([]string, len(shape))
	for i, n := range shape {
		sizes[i] = strconv.FormatInt(n, 10)
	}
	if len(shape) == 1 {
		sizes = append(sizes, "") // (5,) is a tuple, (5) is not
	}
	text := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", strings.TrimSuffix(strings.Join(sizes, ", "), " "))
	const before = 10 // magic, version and the length of the text
	text += strings.Repeat(" ", 63-(before+len(text))%64) + "\n"
	header := append([]byte("\x93NUMPY\x01\x00"), byte(len(text)), byte(len(text)>>8))
	return append(header, text...)
}

// NPZ is an open file of arrays, which are read one at a time.
type NPZ struct {
	Path    string
	Names   []string // of the arrays, in the file's order
	archive *zip.ReadCloser
	files   map[string]*zip.File
}

// OpenNPZ opens what WriteNPZ (or numpy, compressed or not) wrote. Close it.
func OpenNPZ(path string) (*NPZ, error) {
	archive, err := zip.OpenReader(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: not an npz file: %w", path, err)
	}
	n := &NPZ{Path: path, archive: archive, files: map[string]*zip.File{}}
	for _, f := range archive.File {
		name := strings.TrimSuffix(f.Name, ".npy")
		n.Names = append(n.Names, name)
		n.files[name] = f
	}
	return n, nil
}

// Close closes the file.
func (n *NPZ) Close() error { return n.archive.Close() }

// Read reads an array of float32 or float64 values in C order. Other types are an error that names it.
func (n *NPZ) Read(name string) (Array, error) {
	f, known := n.files[name]
	if !known {
		return Array{}, fmt.Errorf("%s has no array %q", n.Path, name)
	}
	a, err := readNPY(f)
	if err != nil {
		return a, fmt.Errorf("%s: %s: %w", n.Path, f.Name, err)
	}
	a.Name = name
	return a, nil
}

// ReadNPZ reads a whole file.
func ReadNPZ(path string) ([]Array, error) {
	file, err := OpenNPZ(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var out []Array
	for _, name := range file.Names {
		a, err := file.Read(name)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func readNPY(f *zip.File) (a Array, err error) {
	r, err := f.Open()
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return a, err
	}
	if string(head[:6]) != "\x93NUMPY" || head[6] < 1 || head[6] > 3 {
		return a, errors.New("not an NPY array of version 1 to 3")
	}
	length := make([]byte, map[byte]int{1: 2, 2: 4, 3: 4}[head[6]])
	if _, err := io.ReadFull(r, length); err != nil {
		return a, err
	}
	n := 0
	for i, b := range length {
		n |= int(b) << (8 * i)
	}
	if n > 1<<16 {
		return a, fmt.Errorf("its header has %d bytes, expected a few hundred", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return a, err
	}
	header := string(text)
	if strings.Contains(header, "'fortran_order': True") {
		return a, errors.New("columns first (fortran_order), expected rows first")
	}
	wide := strings.Contains(header, "'<f8'")
	if !wide && !strings.Contains(header, "'<f4'") {
		return a, fmt.Errorf("header %q, expected values of type <f4 or <f8", strings.TrimSpace(header))
	}
	_, shape, found := strings.Cut(header, "'shape': (")
	shape, _, closed := strings.Cut(shape, ")")
	if !found || !closed {
		return a, fmt.Errorf("header %q has no shape", strings.TrimSpace(header))
	}
	size := int64(1)
	for _, word := range strings.FieldsFunc(shape, func(c rune) bool { return c == ',' || c == ' ' }) {
		var n int64
		if _, err := fmt.Sscan(word, &n); err != nil || n < 0 {
			return a, fmt.Errorf("shape (%s) is not one", shape)
		}
		a.Shape = append(a.Shape, n)
		if size *= n; size > 1<<40 {
			return a, fmt.Errorf("shape (%s) is too large", shape)
		}
	}
	bytes := size * 4
	if wide {
		bytes *= 2
	}
	if have := int64(f.UncompressedSize64) - int64(n) - int64(8+len(length)); have != bytes {
		return a, fmt.Errorf("%d bytes of values, expected %d for shape (%s)", have, bytes, shape)
	}
	a.Values = make([]float32, size)
	if wide {
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

// projected is how many numbers a projection keeps of a parameter: cosines of projections are off by about 1/√projected.
const projected = 4096

// project sums the values into few, each under a sign and at a place that only its index and the parameter's name decide: the same at
// every step and for every part, so that inner products of projections estimate those of what was projected.
func project(name string, values []float32) []float32 {
	if len(values) <= projected {
		return values
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	seed := h.Sum64()
	out := make([]float32, projected)
	for i, v := range values {
		x := splitmix(seed + uint64(i)*0x9e3779b97f4a7c15)
		if x>>63 == 1 {
			v = -v
		}
		out[x%projected] += v
	}
	return out
}

// splitmix is the output function of SplitMix64 (Steele, Lea and Flood 2014).
func splitmix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Saver writes gradients to files in the background, one file at a time. Wait ends it.
type Saver struct {
	Dir        string // "" writes nothing: where gradients are spread over processes, all save, and one writes
	Projection bool   // of every parameter, not all of it
	// Values are those of parameter i, of so many entries: in the process that writes, all of them.
	Values  func(g *torch.Gradients, i int, entries int64) ([]float32, error)
	pending chan error
}

// FullBytes is the size of a file of full gradients.
func FullBytes(parts int, parameters int64) int64 { return int64(parts) * 4 * parameters }

// Save copies the gradients of the parts and starts writing gradients_step_STEP.npz with keys PART/PARAMETER. It first waits for the file
// before, and reports what became of it.
func (s *Saver) Save(step int, names []string, gradients []*torch.Gradients, parameters []torch.Parameter) error {
	if err := s.Wait(); err != nil {
		return err
	}
	var arrays []Array
	for k, name := range names {
		for i, p := range parameters {
			shape, err := p.Tensor.Shape()
			if err != nil {
				return err
			}
			entries := int64(1)
			for _, n := range shape {
				entries *= n
			}
			values, err := s.Values(gradients[k], i, entries)
			if err != nil {
				return err
			}
			if s.Dir == "" {
				continue
			}
			if s.Projection {
				if short := project(p.Name, values); len(short) < len(values) {
					values, shape = short, []int64{int64(len(short))}
				}
			}
			arrays = append(arrays, Array{Name: name + "/" + p.Name, Shape: shape, Values: values})
		}
	}
	if s.Dir == "" {
		return nil
	}
	path := filepath.Join(s.Dir, fmt.Sprintf("gradients_step_%d.npz", step))
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	s.pending = make(chan error, 1)
	go func(done chan<- error) {
		done <- atomicfile.Write(path, func(w io.Writer) error { return WriteNPZ(w, arrays) })
	}(s.pending)
	return nil
}

// Wait until the last file is on the disk. A nil Saver has none.
func (s *Saver) Wait() error {
	if s == nil || s.pending == nil {
		return nil
	}
	err := <-s.pending
	s.pending = nil
	return err
}
