package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"gyre/internal/atomicfile"
)

const (
	maxHeader = 100_000_000 // bytes: the largest header the format allows
	maxDims   = 64          // of one tensor: PyTorch's own limit
)

// entry is one tensor of a header, its byte range relative to the end of the header.
type entry struct {
	name       string
	dtype      DType
	shape      []int64
	begin, end int64
}

func readSafetensors(r io.ReaderAt, size int64, path string) (f *File, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("not a valid safetensors file: %w", err)
		}
	}()
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
	f = &File{Layout: "safetensors", Metadata: metadata}
	for _, e := range entries {
		f.Tensors = append(f.Tensors, &Tensor{Name: e.name, File: path, DType: e.dtype, Shape: e.shape,
			Load: readRange(r, path, e.name, start+e.begin, e.end-e.begin)})
	}
	return f, nil
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
	if n > maxHeader {
		return nil, fmt.Errorf("header length %d, at most %d is allowed", n, maxHeader)
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
		n, err := elements(e.shape)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", e.name, err)
		}
		switch want := n * e.dtype.Size(); {
		case e.begin > e.end || e.end-e.begin != want:
			return fmt.Errorf("tensor %s: data_offsets [%d, %d], but %s %v takes %d bytes", e.name, e.begin, e.end,
				dtypes[e.dtype].safetensors, e.shape, want)
		case e.begin < at:
			return fmt.Errorf("tensor %s: its data at %d overlaps the tensor before it, which ends at %d", e.name,
				e.begin, at)
		case e.begin > at:
			return fmt.Errorf("tensor %s: %d unused bytes before its data at %d", e.name, e.begin-at, e.begin)
		case e.end > dataSize:
			return fmt.Errorf("tensor %s: its data ends at %d, but the file holds %d bytes of data: truncated?", e.name,
				e.end, dataSize)
		}
		at = e.end
	}
	if at != dataSize {
		return fmt.Errorf("%d bytes after the last tensor: expected the data to end at %d, the file has %d bytes of "+
			"data", dataSize-at, at, dataSize)
	}
	return nil
}

// parseHeader reads the JSON header token by token, because encoding/json would let duplicate keys, unknown ones and
// other number forms pass. Offsets and sizes are non-negative on return.
func parseHeader(header []byte) (entries []entry, metadata map[string]string, err error) {
	defer refused(&err)
	if !utf8.Valid(header) {
		refuse("not valid UTF-8")
	}
	p := headerParser{json.NewDecoder(bytes.NewReader(header))}
	p.UseNumber()
	p.object("tensor", func(name string) {
		if name != "__metadata__" {
			entries = append(entries, p.entry(name))
			return
		}
		metadata = map[string]string{}
		p.object("__metadata__:", func(key string) { metadata[key] = p.text() })
	})
	if _, err := p.Token(); err != io.EOF {
		refuse("text after the JSON object, at byte %d", p.InputOffset())
	}
	return entries, metadata, nil
}

type headerParser struct{ *json.Decoder }

func (p headerParser) token() json.Token {
	t, err := p.Token()
	if err != nil {
		refuse("%w", err)
	}
	return t
}

func (p headerParser) delim(want json.Delim) {
	if t := p.token(); t != want {
		refuse("byte %d: expected %v, got %v", p.InputOffset(), want, t)
	}
}

// object reads {key: value, …}, calling value after each key.
func (p headerParser) object(of string, value func(key string)) {
	p.delim('{')
	seen := map[string]bool{}
	for p.More() {
		key := p.text()
		if seen[key] {
			refuse("%s %q appears twice", of, key)
		}
		seen[key] = true
		value(key)
	}
	p.delim('}')
}

func (p headerParser) text() string {
	t := p.token()
	s, ok := t.(string)
	if !ok {
		refuse("byte %d: expected a string, got %v", p.InputOffset(), t)
	}
	return s
}

func (p headerParser) entry(name string) entry {
	e := entry{name: name}
	fields := 0
	p.object(fmt.Sprintf("tensor %q: key", name), func(key string) {
		fields++
		switch key {
		case "dtype":
			text := p.text()
			i := slices.IndexFunc(dtypes[:], func(d dtypeNames) bool { return d.safetensors == text })
			if i < 0 {
				refuse("tensor %q: unknown dtype %q", name, text)
			}
			e.dtype = DType(i)
		case "shape":
			e.shape = p.integers(maxDims)
		case "data_offsets":
			offsets := p.integers(2)
			if len(offsets) != 2 {
				refuse("tensor %q: data_offsets has %d numbers, expected 2", name, len(offsets))
			}
			e.begin, e.end = offsets[0], offsets[1]
		default:
			refuse("tensor %q: unknown key %q", name, key)
		}
	})
	if fields != 3 {
		refuse("tensor %q: dtype, shape and data_offsets are needed", name)
	}
	return e
}

// integers reads an array of at most limit non-negative integers.
func (p headerParser) integers(limit int) []int64 {
	p.delim('[')
	out := []int64{}
	for p.More() {
		t := p.token()
		number, ok := t.(json.Number)
		if !ok {
			refuse("byte %d: expected an integer, got %v", p.InputOffset(), t)
		}
		n, err := strconv.ParseInt(number.String(), 10, 64)
		if err != nil || n < 0 {
			refuse("byte %d: expected a non-negative 64-bit integer, got %v", p.InputOffset(), number)
		}
		if len(out) == limit {
			refuse("byte %d: more than %d numbers", p.InputOffset(), limit)
		}
		out = append(out, n)
	}
	p.delim(']')
	return out
}

// Source is one tensor to be written.
type Source struct {
	Name  string
	DType DType
	Shape []int64
	// Fill writes the tensor's data, dense row-major, into dst, which has exactly its size.
	Fill func(dst []byte) error
}

// Bytes is the size of the tensor's data.
func (s Source) Bytes() (int64, error) {
	n, err := elements(s.Shape)
	if err != nil {
		return 0, fmt.Errorf("tensor %s: %w", s.Name, err)
	}
	return n * s.DType.Size(), nil
}

// Write makes a safetensors file of the given tensors, in their order, holding one of them in memory at a time. The
// file appears under its name when it is complete and on disk; on any error nothing is left behind.
func Write(path string, list []Source, metadata map[string]string) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		header, err := makeHeader(list, metadata)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))),
			header...)); err != nil {
			return err
		}
		var buffer []byte
		for _, s := range list {
			size, _ := s.Bytes()
			buffer = Resize(buffer, size)
			err := s.Fill(buffer)
			if err == nil {
				_, err = w.Write(buffer)
			}
			if err != nil {
				return fmt.Errorf("tensor %s: %w", s.Name, err)
			}
		}
		return nil
	})
}

// makeHeader writes the JSON object by hand to keep the order of the tensors, padded with spaces so that the data is
// 8-byte aligned.
func makeHeader(list []Source, metadata map[string]string) ([]byte, error) {
	b := bytes.NewBufferString("{")
	item := func(key string, value any) error {
		name, err := json.Marshal(key)
		if err != nil {
			return err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, "%s:%s", name, text)
		return nil
	}
	if len(metadata) > 0 {
		if err := item("__metadata__", metadata); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{"__metadata__": true}
	at := int64(0)
	for _, s := range list {
		if seen[s.Name] {
			return nil, fmt.Errorf("two tensors named %q", s.Name)
		}
		seen[s.Name] = true
		size, err := s.Bytes()
		if err != nil {
			return nil, err
		}
		err = item(s.Name, struct {
			DType   string   `json:"dtype"`
			Shape   []int64  `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
			// a scalar's shape is [], not null
		}{dtypes[s.DType].safetensors, append([]int64{}, s.Shape...), [2]int64{at, at + size}})
		if err != nil {
			return nil, err
		}
		at += size
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if b.Len() > maxHeader {
		return nil, fmt.Errorf("header of %d bytes, at most %d is allowed", b.Len(), maxHeader)
	}
	return b.Bytes(), nil
}
