package convert

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gyre/orchestrate/checkpoint/gguf"
	"gyre/orchestrate/checkpoint/hf"
	"gyre/orchestrate/checkpoint/safetensors"
	"gyre/orchestrate/checkpoint/tensors"
)

// Summary says what was converted.
type Summary struct {
	Config     hf.Config
	Parameters int64
	Kinds      map[string]int // tensors of each stored type
	Notes      []string
}

// Convert writes the checkpoint at source, a GGUF file or a Hugging Face directory, into the existing directory dir.
// A nil dtype keeps the type of a Hugging Face directory and makes float32 of a GGUF file.
func Convert(source, dir string, dtype *tensors.DType) (Summary, error) {
	info, err := os.Stat(source)
	if err != nil {
		return Summary{}, err
	}
	if info.IsDir() {
		return fromDirectory(source, dir, dtype)
	}
	if filepath.Ext(source) == ".gguf" {
		return fromGGUF(source, dir, dtype)
	}
	return Summary{}, fmt.Errorf("%s: expected a .gguf file or a Hugging Face model directory", source)
}

func fromDirectory(source, dir string, dtype *tensors.DType) (Summary, error) {
	c, err := hf.ReadConfig(source)
	if err != nil {
		return Summary{}, err
	}
	w, err := hf.OpenWeights(source)
	if err != nil {
		return Summary{}, err
	}
	defer w.Close()
	if dtype == nil {
		dtype = &c.DType
	}
	s, err := write(source, dir, c, w, *dtype)
	if err != nil {
		return Summary{}, err
	}
	return s, hf.CopyCompanions(dir, source)
}

func fromGGUF(source, dir string, dtype *tensors.DType) (Summary, error) {
	f, err := gguf.Open(source)
	if err != nil {
		return Summary{}, err
	}
	defer f.Close()
	m, err := readModel(f)
	if err != nil {
		return Summary{}, fmt.Errorf("%s: %w", source, err)
	}
	files, err := tokenizerFiles(f.Metadata, m.config)
	if err != nil {
		return Summary{}, fmt.Errorf("%s: %w", source, err)
	}
	if dtype == nil {
		dtype = new(tensors.DType) // F32
	}
	s, err := write(source, dir, m.config, &hf.Weights{Tensors: m.tensors}, *dtype)
	if err != nil {
		return Summary{}, err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return Summary{}, err
		}
	}
	return s, nil
}

// write matches tensors with the configuration and stores them as dtype.
func write(source, dir string, c hf.Config, w *hf.Weights, dtype tensors.DType) (Summary, error) {
	head := hf.LanguageModel
	if c.Value {
		head = hf.ValueModel
	}
	c, entries, notes, err := hf.Match(source, c, head, w)
	if err != nil {
		return Summary{}, err
	}
	c.DType = dtype
	s := Summary{Config: c, Parameters: c.Count(head), Kinds: map[string]int{}, Notes: notes}
	var scratch []byte
	var list []safetensors.Source
	for _, e := range entries {
		if e.Tensor != nil {
			s.Kinds[e.Tensor.Kind()]++
		}
		list = append(list, safetensors.Source{Name: e.Name, DType: dtype, Shape: e.Shape, Fill: func(dst []byte) error {
			if e.Tensor == nil { // a value head that starts from zero
				clear(dst)
				return nil
			}
			_, used, err := e.Tensor.Dense(dtype, dst, scratch)
			scratch = used
			return err
		}})
	}
	return s, hf.Save(dir, c, list, hf.ShardSize)
}

// KindsText names the stored types with their number of tensors: "61 float32, 210 Q4_1".
func (s Summary) KindsText() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Kinds)) {
		parts = append(parts, fmt.Sprintf("%d %s", s.Kinds[name], name))
	}
	return strings.Join(parts, ", ") + " tensors"
}
