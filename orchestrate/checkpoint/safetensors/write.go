package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/checkpoint/tensors"
)

// Source is one tensor to be written.
type Source struct {
	Name  string
	DType tensors.DType
	Shape []int64
	// Fill writes the tensor's data, dense row-major, into dst, which has exactly its size.
	Fill func(dst []byte) error
}

// Bytes is the size of the tensor's data.
func (s Source) Bytes() (int64, error) {
	n, err := tensors.Elements(s.Shape)
	if err != nil {
		return 0, fmt.Errorf("tensor %s: %w", s.Name, err)
	}
	return n * s.DType.Size(), nil
}

// Write makes a file of the given tensors, in their order, holding one of them in memory at a time. The file appears
// under its name when it is complete and on disk; on any error nothing is left behind.
func Write(path string, list []Source, metadata map[string]string) error {
	return atomicfile.Write(path, func(w io.Writer) error { return encode(w, list, metadata) })
}

func encode(w io.Writer, list []Source, metadata map[string]string) error {
	header, err := makeHeader(list, metadata)
	if err != nil {
		return err
	}
	if err := binary.Write(w, binary.LittleEndian, uint64(len(header))); err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	var buffer []byte
	for _, s := range list {
		size, err := s.Bytes()
		if err != nil {
			return err
		}
		buffer = tensors.Resize(buffer, size)
		if err := s.Fill(buffer); err != nil {
			return fmt.Errorf("tensor %s: %w", s.Name, err)
		}
		if _, err := w.Write(buffer); err != nil {
			return fmt.Errorf("tensor %s: %w", s.Name, err)
		}
	}
	return nil
}

// makeHeader writes the JSON object by hand to keep the order of the tensors, padded with spaces so that the data is
// 8-byte aligned.
func makeHeader(list []Source, metadata map[string]string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	if len(metadata) > 0 {
		m, err := json.Marshal(metadata)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, `"__metadata__":%s`, m)
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
		name, err := json.Marshal(s.Name)
		if err != nil {
			return nil, err
		}
		shape, err := json.Marshal(append([]int64{}, s.Shape...)) // a scalar's is [], not null
		if err != nil {
			return nil, err
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `%s:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, name, s.DType.Safetensors(), shape, at, at+size)
		at += size
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if b.Len() > MaxHeader {
		return nil, fmt.Errorf("header of %d bytes, at most %d is allowed", b.Len(), MaxHeader)
	}
	return b.Bytes(), nil
}
