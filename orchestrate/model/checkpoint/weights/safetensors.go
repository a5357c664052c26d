package weights

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"gyre/internal/atomicfile"
)

// maxHeader is the size in bytes of the largest header that the format allows.
const maxHeader = 100_000_000

// entry is one tensor of a header, its byte range relative to the end of the header.
type entry struct {
	DType   string  `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"`
}

func readSafetensors(r io.ReaderAt, size int64, path string) *File {
	if size < 8 {
		refuse("not a safetensors file: %d bytes are too short for the 8-byte header length", size)
	}
	length := binary.LittleEndian.Uint64(bytesAt(r, 0, 8))
	if length > maxHeader || int64(length) > size-8 {
		refuse("not a safetensors file: header length %d (at most %d) in a file of %d bytes: truncated?", length,
			maxHeader, size)
	}
	start := 8 + int64(length)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(bytesAt(r, 8, int64(length)), &header); err != nil {
		refuse("not a safetensors file: header: %w", err)
	}
	f := &File{Layout: "safetensors"}
	var list []place
	total := int64(0)
	for name, text := range header {
		if name == "__metadata__" {
			if err := json.Unmarshal(text, &f.Metadata); err != nil {
				refuse("header: __metadata__: %w", err)
			}
			continue
		}
		p := placeOf(name, text)
		p.File = path
		total += p.size
		list = append(list, p)
	}
	f.Tensors = placed(r, list, start, size-start)
	if total != size-start { // the format has no holes
		refuse("the tensors take %d bytes, but the file has %d bytes of data", total, size-start)
	}
	return f
}

func placeOf(name string, text json.RawMessage) place {
	var e entry
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&e); err != nil {
		refuse("header: tensor %s: %w", name, err)
	}
	i := slices.IndexFunc(dtypes[:], func(d dtypeNames) bool { return d.safetensors == e.DType })
	if i < 0 {
		refuse("header: tensor %s: unknown dtype %q", name, e.DType)
	}
	n, err := elements(e.Shape)
	if err != nil {
		refuse("header: tensor %s: %w", name, err)
	}
	dtype := DType(i)
	size := n * dtype.Size()
	if len(e.Offsets) != 2 || e.Offsets[0] < 0 || e.Offsets[1]-e.Offsets[0] != size {
		refuse("header: tensor %s: data_offsets %v, but %s %v takes %d bytes", name, e.Offsets, e.DType, e.Shape, size)
	}
	t := Tensor{Name: name, DType: dtype, Kind: dtype.String(), Shape: e.Shape}
	return place{Tensor: t, offset: e.Offsets[0], size: size}
}

// Source is one tensor to be written.
type Source struct {
	Name  string
	DType DType
	Shape []int64
	// Fill writes the tensor's data, dense row-major, into dst, which has exactly its size.
	Fill func(dst []byte) error
}

// Bytes is the size of the tensor's data; 0 for a shape that no file can have, which Write refuses.
func (s Source) Bytes() int64 {
	n, _ := elements(s.Shape)
	return n * s.DType.Size()
}

// Write makes a safetensors file of the given tensors, in their order, holding one of them in memory at a time. The
// file appears under its name when it is complete and on disk; on any error nothing is left behind.
func Write(path string, list []Source, metadata map[string]string) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		header, err := makeHeader(list, metadata)
		if err != nil {
			return err
		}
		if _, err := w.Write(header); err != nil {
			return err
		}
		var buffer []byte
		for _, s := range list {
			buffer = Resize(buffer, s.Bytes())
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

// makeHeader writes the length and the JSON object, by hand to keep the order of the tensors, padded with spaces so
// that the data is 8-byte aligned.
func makeHeader(list []Source, metadata map[string]string) ([]byte, error) {
	var members [][]byte
	add := func(key string, value any) {
		name, _ := json.Marshal(key) // texts, numbers and lists of them always encode
		text, _ := json.Marshal(value)
		members = append(members, slices.Concat(name, []byte(":"), text))
	}
	if len(metadata) > 0 {
		add("__metadata__", metadata)
	}
	seen := map[string]bool{"__metadata__": true}
	at := int64(0)
	for _, s := range list {
		if seen[s.Name] {
			return nil, fmt.Errorf("two tensors named %q", s.Name)
		}
		seen[s.Name] = true
		if _, err := elements(s.Shape); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", s.Name, err)
		}
		shape := append([]int64{}, s.Shape...) // a scalar's shape is [], not null
		add(s.Name, entry{dtypes[s.DType].safetensors, shape, []int64{at, at + s.Bytes()}})
		at += s.Bytes()
	}
	text := slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}"))
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}
