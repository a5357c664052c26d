// Package convert makes Hugging Face directories from other checkpoints: from GGUF files, with tokenizer, chat
// template and generation settings, and from Hugging Face directories of any file layout, as another type or with
// adapters added. Tensors stream from file to file one at a time. It also says what a directory or a file holds without
// loading it.
package convert

import (
	"fmt"
	"os"
	"path/filepath"

	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/peft"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// Summary says what was converted.
type Summary struct {
	Config     hf.Config
	Parameters int64
	Stored     string // the types of the tensors that were read: "float32 × 61, Q4_1 × 210"
	Notes      []string
}

// Convert writes the checkpoint at source, a GGUF file or a Hugging Face directory, into the existing directory dir.
// A nil dtype keeps the type of a Hugging Face directory and makes float32 of a GGUF file.
func Convert(source, dir string, dtype *weights.DType) (Summary, error) {
	info, err := os.Stat(source)
	switch {
	case err != nil:
		return Summary{}, err
	case info.IsDir():
		return Merge(source, "", dir, dtype)
	case filepath.Ext(source) == ".gguf":
		return fromGGUF(source, dir, dtype)
	}
	return Summary{}, fmt.Errorf("%s: expected a .gguf file or a Hugging Face model directory", source)
}

// Merge writes a model directory with the weights of base, and the adapters of another directory (if it names one) added
// to them, into the existing directory dir. A nil dtype keeps the type of the base.
func Merge(base, adapter, dir string, dtype *weights.DType) (Summary, error) {
	m, err := hf.Open(base, nil)
	if err != nil {
		return Summary{}, err
	}
	defer m.Weights.Close()
	if adapter != "" {
		a, err := peft.Open(adapter, m.Config)
		if err != nil {
			return Summary{}, err
		}
		defer a.Close()
		if err := a.Merge(m); err != nil {
			return Summary{}, fmt.Errorf("%s: %w", adapter, err)
		}
	}
	s, err := write(m, dir, dtype)
	if err != nil {
		return Summary{}, err
	}
	return s, hf.CopyCompanions(dir, base)
}

func fromGGUF(source, dir string, dtype *weights.DType) (Summary, error) {
	f, err := weights.Open(source)
	if err != nil {
		return Summary{}, err
	}
	defer f.Close()
	c, w, err := readModel(f)
	if err != nil {
		return Summary{}, fmt.Errorf("%s: %w", source, err)
	}
	files, err := tokenizerFiles(f.GGUF, c)
	if err != nil {
		return Summary{}, fmt.Errorf("%s: %w", source, err)
	}
	m, err := hf.Match(source, c, torch.HeadLM, w)
	if err != nil {
		return Summary{}, err
	}
	s, err := write(m, dir, dtype)
	for name, data := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
	}
	return s, err
}

// write stores the model's tensors as dtype; nil keeps the type of its configuration.
func write(m *hf.Model, dir string, dtype *weights.DType) (Summary, error) {
	c := m.Config
	if dtype != nil {
		c.DType = *dtype
	}
	var scratch []byte
	var list []weights.Source
	var read []*weights.Tensor
	for _, e := range m.Entries {
		if e.Tensor != nil {
			read = append(read, e.Tensor)
		}
		list = append(list, weights.Source{Name: e.Name, DType: c.DType, Shape: e.Shape, Fill: func(dst []byte) error {
			if e.Tensor == nil { // a value head that starts from zero
				clear(dst)
				return nil
			}
			_, used, err := e.Tensor.Dense(c.DType, dst, scratch)
			scratch = used
			return err
		}})
	}
	s := Summary{Config: c, Parameters: c.Count(c.Head), Stored: kindsText(countKinds(read)), Notes: m.Notes}
	return s, hf.Save(dir, c, list, hf.ShardSize)
}
