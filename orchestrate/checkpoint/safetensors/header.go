package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"gyre/orchestrate/checkpoint/tensors"
)

// entry is one tensor of a header, its byte range relative to the end of the header.
type entry struct {
	name       string
	dtype      tensors.DType
	shape      []int64
	begin, end int64
}

// maxDims bounds the dimensions of one tensor; PyTorch's own limit is 64.
const maxDims = 64

// parseHeader reads the JSON header token by token, because encoding/json would let duplicate keys, unknown ones and
// other number forms pass. Offsets and sizes are non-negative on return.
func parseHeader(header []byte) ([]entry, map[string]string, error) {
	if !utf8.Valid(header) {
		return nil, nil, errors.New("not valid UTF-8")
	}
	p := parser{json.NewDecoder(bytes.NewReader(header))}
	p.UseNumber()
	var entries []entry
	var metadata map[string]string
	seen := map[string]bool{}
	err := p.object(func(name string) error {
		if seen[name] {
			return fmt.Errorf("tensor %q appears twice", name)
		}
		seen[name] = true
		if name == "__metadata__" {
			var err error
			metadata, err = p.metadata()
			return err
		}
		e, err := p.entry(name)
		entries = append(entries, e)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if _, err := p.Token(); err != io.EOF {
		return nil, nil, fmt.Errorf("text after the JSON object, at byte %d", p.InputOffset())
	}
	return entries, metadata, nil
}

type parser struct{ *json.Decoder }

// object reads {key: value, …}, calling value after each key.
func (p parser) object(value func(key string) error) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	for p.More() {
		t, err := p.Token()
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok {
			return fmt.Errorf("byte %d: expected a key, got %v", p.InputOffset(), t)
		}
		if err := value(key); err != nil {
			return err
		}
	}
	return p.delim('}')
}

func (p parser) delim(want json.Delim) error {
	t, err := p.Token()
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("byte %d: expected %v, got %v", p.InputOffset(), want, t)
	}
	return nil
}

func (p parser) text() (string, error) {
	t, err := p.Token()
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", fmt.Errorf("byte %d: expected a string, got %v", p.InputOffset(), t)
	}
	return s, nil
}

func (p parser) metadata() (map[string]string, error) {
	m := map[string]string{}
	err := p.object(func(key string) error {
		if _, ok := m[key]; ok {
			return fmt.Errorf("__metadata__: %q appears twice", key)
		}
		s, err := p.text()
		m[key] = s
		return err
	})
	return m, err
}

func (p parser) entry(name string) (entry, error) {
	e := entry{name: name, begin: -1}
	fields := map[string]bool{}
	err := p.object(func(key string) error {
		if fields[key] {
			return fmt.Errorf("%q appears twice", key)
		}
		fields[key] = true
		switch key {
		case "dtype":
			s, err := p.text()
			if err != nil {
				return err
			}
			var ok bool
			if e.dtype, ok = tensors.FromSafetensors(s); !ok {
				return fmt.Errorf("unknown dtype %q", s)
			}
			return nil
		case "shape":
			var err error
			e.shape, err = p.integers(maxDims)
			return err
		case "data_offsets":
			offsets, err := p.integers(2)
			if err == nil && len(offsets) != 2 {
				err = fmt.Errorf("data_offsets has %d numbers, expected 2", len(offsets))
			}
			if err == nil {
				e.begin, e.end = offsets[0], offsets[1]
			}
			return err
		default:
			return fmt.Errorf("unknown key %q", key)
		}
	})
	if err == nil && len(fields) != 3 {
		err = errors.New("dtype, shape and data_offsets are needed")
	}
	if err != nil {
		return e, fmt.Errorf("tensor %q: %w", name, err)
	}
	return e, nil
}

// integers reads an array of at most limit non-negative integers.
func (p parser) integers(limit int) ([]int64, error) {
	if err := p.delim('['); err != nil {
		return nil, err
	}
	out := []int64{}
	for p.More() {
		t, err := p.Token()
		if err != nil {
			return nil, err
		}
		number, ok := t.(json.Number)
		if !ok {
			return nil, fmt.Errorf("byte %d: expected an integer, got %v", p.InputOffset(), t)
		}
		n, err := strconv.ParseInt(number.String(), 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("byte %d: expected a non-negative 64-bit integer, got %v", p.InputOffset(), number)
		}
		if len(out) == limit {
			return nil, fmt.Errorf("byte %d: more than %d numbers", p.InputOffset(), limit)
		}
		out = append(out, n)
	}
	return out, p.delim(']')
}
