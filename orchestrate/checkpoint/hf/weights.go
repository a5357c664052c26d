package hf

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gyre/orchestrate/checkpoint/safetensors"
	"gyre/orchestrate/checkpoint/tensors"
	"gyre/orchestrate/checkpoint/torchfile"
)

// Weights are the tensors of a model directory under canonical names ("model.layers.0.…"). Close them when loaded.
type Weights struct {
	Tensors map[string]*tensors.Tensor
	Files   []string // base names, in the order they were read
	Layout  string   // what kind of files: "safetensors", "safetensors, 3 shards", "pytorch_model.bin"
	closers []io.Closer
}

// Close closes the files.
func (w *Weights) Close() error {
	for _, c := range w.closers {
		c.Close()
	}
	w.closers = nil
	return nil
}

// OpenWeights opens the weights of a directory: model.safetensors, its sharded form, pytorch_model.bin, its sharded
// form, or else the only *.safetensors, *.bin, *.pt or *.pth file there is.
func OpenWeights(dir string) (*Weights, error) {
	for _, name := range []string{"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			if strings.HasSuffix(name, ".index.json") {
				return openSharded(dir, name)
			}
			return openFiles(dir, []string{name}, name)
		}
	}
	name, err := onlyWeights(dir)
	if err != nil {
		return nil, err
	}
	return openFiles(dir, []string{name}, name)
}

// notWeights are files of training programs that share the endings of weights.
var notWeights = []string{"training_args.bin", "optimizer.", "scheduler.", "scaler.", "rng_state", "adapter_model."}

func onlyWeights(dir string) (string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var found []string
	adapter := false
	for _, e := range list {
		skip := slices.ContainsFunc(notWeights, func(p string) bool { return strings.HasPrefix(e.Name(), p) })
		adapter = adapter || strings.HasPrefix(e.Name(), "adapter_model.")
		switch filepath.Ext(e.Name()) {
		case ".safetensors", ".bin", ".pt", ".pth":
			if !skip {
				found = append(found, e.Name())
			}
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", fmt.Errorf("%s has no model.safetensors or pytorch_model.bin, and several files could be the weights: %s",
			dir, strings.Join(found, ", "))
	case adapter:
		return "", fmt.Errorf("%s holds an adapter (LoRA), not a model: merge it into its base model first", dir)
	default:
		return "", fmt.Errorf("%s has no weights: expected model.safetensors, pytorch_model.bin or their sharded forms", dir)
	}
}

func openFiles(dir string, files []string, layout string) (*Weights, error) {
	w := &Weights{Tensors: map[string]*tensors.Tensor{}, Files: files, Layout: layout}
	var all []*tensors.Tensor
	for _, name := range files {
		list, closer, err := openFile(filepath.Join(dir, name))
		if err != nil {
			w.Close()
			return nil, err
		}
		w.closers = append(w.closers, closer)
		all = append(all, list...)
	}
	if err := w.add(all); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func openFile(path string) ([]*tensors.Tensor, io.Closer, error) {
	if filepath.Ext(path) == ".safetensors" {
		f, err := safetensors.Open(path)
		if err != nil {
			return nil, nil, err
		}
		return f.Tensors, f, nil
	}
	f, err := torchfile.Open(path)
	if err != nil {
		return nil, nil, err
	}
	return f.Tensors, f, nil
}

// add puts tensors under their canonical names.
func (w *Weights) add(list []*tensors.Tensor) error {
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = t.Name
	}
	canonical := canonicalNames(names)
	for _, t := range list {
		name := canonical[t.Name]
		if name == "" {
			continue
		}
		if other := w.Tensors[name]; other != nil {
			return fmt.Errorf("tensor %s is there twice: in %s and in %s", name, other.File, t.File)
		}
		t.Name = name
		w.Tensors[name] = t
	}
	return nil
}
