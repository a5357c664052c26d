package inspect

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"gyre/orchestrate/chat"
	"gyre/orchestrate/checkpoint/gguf"
	"gyre/orchestrate/checkpoint/hf"
	"gyre/orchestrate/checkpoint/safetensors"
	"gyre/orchestrate/checkpoint/tensors"
	"gyre/orchestrate/checkpoint/torchfile"
)

// Open inspects a model directory or a file.
func Open(path string) (Info, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Info{}, err
	}
	if info.IsDir() {
		return directory(path)
	}
	switch filepath.Ext(path) {
	case ".gguf":
		f, err := gguf.Open(path)
		if err != nil {
			return Info{}, err
		}
		defer f.Close()
		return ggufFile(f), nil
	case ".safetensors":
		f, err := safetensors.Open(path)
		if err != nil {
			return Info{}, err
		}
		defer f.Close()
		return describe(path, "safetensors", f.Tensors), nil
	case ".bin", ".pt", ".pth":
		f, err := torchfile.Open(path)
		if err != nil {
			return Info{}, err
		}
		defer f.Close()
		return describe(path, "torch.save", f.Tensors), nil
	}
	return Info{}, fmt.Errorf("%s: expected a model directory or a .gguf, .safetensors, .bin, .pt or .pth file", path)
}

// describe fills in what follows from the tensors alone.
func describe(path, layout string, list []*tensors.Tensor) Info {
	out := Info{Path: path, Layout: layout}
	kinds := map[string]*DType{}
	files := map[string]bool{}
	for _, t := range list {
		n := t.Elements()
		out.Parameters += n
		k := kinds[t.Kind()]
		if k == nil {
			k = &DType{Name: t.Kind()}
			kinds[t.Kind()] = k
		}
		k.Tensors++
		k.Elements += n
		if !files[t.File] {
			files[t.File] = true
			if info, err := os.Stat(t.File); err == nil {
				out.Bytes += info.Size()
			}
		}
		out.Tensors = append(out.Tensors, Tensor{Name: t.Name, DType: t.Kind(), Shape: append([]int64{}, t.Shape...), File: filepath.Base(t.File)})
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		out.DTypes = append(out.DTypes, *kinds[name])
	}
	return out
}

func ggufFile(f *gguf.File) Info {
	out := describe(f.Path, fmt.Sprintf("GGUF version %d", f.Version), f.Tensors)
	if name, ok := f.Metadata.Text("general.name"); ok {
		arch, _ := f.Metadata.Text("general.architecture")
		out.Notes = append(out.Notes, fmt.Sprintf("%s, architecture %s", name, arch))
	}
	out.Notes = append(out.Notes, "`gyre model convert` makes a model directory of it")
	return out
}

func directory(path string) (Info, error) {
	c, err := hf.ReadConfig(path)
	if err != nil {
		return Info{}, err
	}
	w, err := hf.OpenWeights(path)
	if err != nil {
		return Info{}, err
	}
	defer w.Close()
	head := hf.LanguageModel
	if c.Value {
		head = hf.ValueModel
	}
	c, _, notes, err := hf.Match(path, c, head, w)
	if err != nil {
		return Info{}, err
	}
	var list []*tensors.Tensor
	for _, name := range slices.Sorted(maps.Keys(w.Tensors)) {
		list = append(list, w.Tensors[name])
	}
	out := describe(path, w.Layout, list)
	out.Notes = notes
	out.Parameters = c.Count(head)
	out.Model = model(c)
	out.Memory = memory(c, out.Parameters)
	if _, err := os.Stat(filepath.Join(path, "tokenizer.json")); err == nil {
		t, err := chat.Load(path)
		if err != nil {
			out.Notes = append(out.Notes, "tokenizer: "+err.Error())
		} else {
			out.Tokenizer = &Tokenizer{VocabSize: t.VocabSize(), StopIDs: t.StopIDs(), ChatTemplate: t.HasTemplate()}
		}
	}
	return out, nil
}

func model(c hf.Config) *Model {
	head := "language model"
	if c.Value {
		head = "value"
	} else if c.Tie {
		head += ", tied"
	}
	return &Model{Family: string(c.Family), Head: head, HiddenSize: c.HiddenSize, Layers: c.NumLayers, Heads: c.NumHeads,
		KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, IntermediateSize: c.IntermediateSize, VocabSize: c.VocabSize, MaxPositions: c.MaxPositions,
		RopeType: c.Rope.Type, RopeTheta: c.Rope.Theta}
}

// memory counts four bytes per number: weights and packed copies; for training as much again for gradients, twice for
// moments.
func memory(c hf.Config, parameters int64) *Memory {
	return &Memory{Sampling: 8 * parameters, Training: 20 * parameters, KVToken: 8 * c.NumLayers * c.NumKVHeads * c.HeadDim}
}
