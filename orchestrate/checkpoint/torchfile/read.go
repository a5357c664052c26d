package torchfile

import (
	"fmt"
	"io"
	"os"
	"strings"

	"gyre/orchestrate/checkpoint/pickle"
	"gyre/orchestrate/checkpoint/tensors"
)

// File is an opened archive. Close it when no tensor will be loaded any more.
type File struct {
	Tensors []*tensors.Tensor // in the order of the state dict
	file    *os.File
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// Open reads the state dict of a file. A state dict may be wrapped as {"state_dict": …} or {"model": …}; other values
// beside the tensors are ignored.
func Open(path string) (*File, error) {
	file, size, err := tensors.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	list, err := read(file, size, path)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &File{Tensors: list, file: file}, nil
}

func read(r io.ReaderAt, size int64, path string) ([]*tensors.Tensor, error) {
	a, err := openArchive(r, size)
	if err != nil {
		return nil, err
	}
	if _, ok := a.records["byteorder"]; ok {
		order, err := a.read("byteorder")
		if err != nil {
			return nil, err
		}
		if string(order) != "little" {
			return nil, fmt.Errorf("byte order %q, only little-endian files are read", order)
		}
	}
	if _, script := a.records["constants.pkl"]; script {
		return nil, fmt.Errorf("a TorchScript program, expected a state dict")
	}
	data, err := a.read("data.pkl")
	if err != nil {
		return nil, err
	}
	h := &host{archive: a, types: map[string]tensors.DType{}}
	root, err := pickle.Load(data, pickle.Host{Globals: h.globals(), Persistent: h.persistent})
	if err != nil {
		return nil, fmt.Errorf("data.pkl: %w", err)
	}
	dict, err := stateDict(root)
	if err != nil {
		return nil, fmt.Errorf("data.pkl: %w", err)
	}
	var list []*tensors.Tensor
	for _, key := range dict.Keys {
		value, _ := dict.Get(key)
		name, isText := key.(string)
		if v, ok := value.(view); ok && isText {
			list = append(list, v.tensor(r, path, name))
		}
	}
	return list, nil
}

func (v view) tensor(r io.ReaderAt, path, name string) *tensors.Tensor {
	size := v.storage.dtype.Size()
	t := &tensors.Tensor{Name: name, File: path, DType: v.storage.dtype, Shape: v.shape, Strides: v.strides,
		Load: tensors.ReadRange(r, path, name, v.storage.record.offset+v.offset*size, v.span*size)}
	if tensors.Contiguous(v.shape, v.strides) {
		t.Strides = nil
	}
	return t
}

// wrappers are the keys under which training programs keep the weights, in order of preference.
var wrappers = []string{"state_dict", "model_state_dict", "model", "module"}

// stateDict finds the dict that holds tensors by name: the root, or one of its wrappers.
func stateDict(root any) (*pickle.Dict, error) {
	dict, ok := root.(*pickle.Dict)
	if !ok {
		return nil, fmt.Errorf("holds a %s, expected a state dict", pickle.TypeName(root))
	}
	// Wrappers first: beside them there may be tensors that are no weights, such as a step counter.
	for _, key := range wrappers {
		if value, ok := dict.Get(key); ok {
			if inner, ok := value.(*pickle.Dict); ok && holdsTensors(inner) {
				return inner, nil
			}
		}
	}
	if holdsTensors(dict) {
		return dict, nil
	}
	return nil, fmt.Errorf("no tensors in the dict or under its keys %s", strings.Join(wrappers, ", "))
}

func holdsTensors(d *pickle.Dict) bool {
	for _, key := range d.Keys {
		value, _ := d.Get(key)
		if _, ok := value.(view); ok {
			return true
		}
	}
	return false
}
