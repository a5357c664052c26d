package hf

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gyre/orchestrate/model/checkpoint/weights"
)

// Weights are the tensors of a model directory under canonical names ("model.layers.0.…"). Close them when loaded.
type Weights struct {
	Tensors map[string]*weights.Tensor
	Layout  string // what kind of files: "safetensors", "safetensors, 3 shards", "pytorch_model.bin"
	files   []*weights.File
}

// Close closes the files.
func (w *Weights) Close() error {
	for _, f := range w.files {
		f.Close()
	}
	w.files = nil
	return nil
}

// OpenWeights opens the weights of a directory: model.safetensors, its sharded form, pytorch_model.bin, its sharded
// form, or else the only *.safetensors, *.bin, *.pt or *.pth file there is.
func OpenWeights(dir string) (*Weights, error) {
	for _, name := range []string{"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
		"pytorch_model.bin.index.json"} {
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
		return "", fmt.Errorf("%s has no model.safetensors or pytorch_model.bin, and several files could be the "+
			"weights: %s",
			dir, strings.Join(found, ", "))
	case adapter:
		return "", fmt.Errorf("%s holds an adapter (LoRA), not a model: merge it into its base model first", dir)
	default:
		return "", fmt.Errorf("%s has no weights: expected model.safetensors, pytorch_model.bin or their sharded "+
			"forms: %w", dir, os.ErrNotExist)
	}
}

func openFiles(dir string, files []string, layout string) (*Weights, error) {
	w := &Weights{Tensors: map[string]*weights.Tensor{}, Layout: layout}
	var all []*weights.Tensor
	for _, name := range files {
		f, err := weights.Open(filepath.Join(dir, name))
		if err != nil {
			w.Close()
			return nil, err
		}
		w.files = append(w.files, f)
		all = append(all, f.Tensors...)
	}
	if err := w.add(all); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// add puts tensors under their canonical names.
func (w *Weights) add(list []*weights.Tensor) error {
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

// maxIndex bounds the size of an index file, maxShards the number of files it names.
const (
	maxIndex  = 64 << 20
	maxShards = 4096
)

func openSharded(dir, indexName string) (*Weights, error) {
	path := filepath.Join(dir, indexName)
	data, err := readSmall(path, maxIndex)
	if err != nil {
		return nil, err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("%s: not an index: %w", path, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fmt.Errorf("%s: weight_map is missing or empty", path)
	}
	ending := filepath.Ext(strings.TrimSuffix(indexName, ".index.json"))
	var shards []string
	for name, file := range index.WeightMap {
		if !filepath.IsLocal(file) || strings.ContainsAny(file, `/\`) || filepath.Ext(file) != ending {
			return nil, fmt.Errorf("%s: tensor %s is said to be in %q: expected the name of a %s file in the same "+
				"directory", path, name, file, ending)
		}
		shards = append(shards, file)
	}
	slices.Sort(shards)
	shards = slices.Compact(shards)
	if len(shards) > maxShards {
		return nil, fmt.Errorf("%s: %d shards, at most %d are read", path, len(shards), maxShards)
	}
	w, err := openFiles(dir, shards, fmt.Sprintf("%s, %d shards", strings.TrimPrefix(ending, "."), len(shards)))
	if err != nil {
		return nil, err
	}
	if err := w.checkIndex(index.WeightMap, path); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// checkIndex compares what the index says with what the shards hold.
func (w *Weights) checkIndex(weightMap map[string]string, path string) error {
	names := make([]string, 0, len(weightMap))
	for name := range weightMap {
		names = append(names, name)
	}
	slices.Sort(names)
	canonical := canonicalNames(names)
	for _, name := range names {
		if canonical[name] == "" { // a buffer that is not read
			continue
		}
		t := w.Tensors[canonical[name]]
		if t == nil || filepath.Base(t.File) != weightMap[name] {
			return fmt.Errorf("%s: tensor %s is not in %s, where the index says it is", path, name, weightMap[name])
		}
	}
	return nil
}

// canonicalNames maps the names of one checkpoint to those of a CausalLM: without the prefixes of DataParallel,
// torch.compile and whatever held the model as an attribute ("model.model.layers…" of Lightning), with "model." before
// those of a bare backbone. Buffers that transformers recomputes map to "".
func canonicalNames(names []string) map[string]string {
	out := make(map[string]string, len(names))
	holder, bare := holderOf(names), true
	for _, name := range names {
		short := strings.TrimPrefix(unwrapped(name), holder)
		bare = bare && !strings.HasPrefix(short, "model.")
		out[name] = short
	}
	for name, short := range out {
		switch {
		case isBuffer(short):
			out[name] = ""
		case bare && (strings.HasPrefix(short, "embed_tokens.") || strings.HasPrefix(short, "layers.") ||
			strings.HasPrefix(short, "norm.")):
			out[name] = "model." + short
		}
	}
	return out
}

// unwrapped is the name without the prefixes of DataParallel and torch.compile, in any order.
func unwrapped(name string) string {
	for {
		short := strings.TrimPrefix(strings.TrimPrefix(name, "module."), "_orig_mod.")
		if short == name {
			return name
		}
		name = short
	}
}

// holderOf is what stands before the CausalLM's own names: read off the token embedding, which every decoder has once.
// With several embeddings there are several models, and no prefix is taken off.
func holderOf(names []string) string {
	holder, found := "", false
	for _, name := range names {
		before, ok := strings.CutSuffix(unwrapped(name), "embed_tokens.weight")
		if !ok {
			continue
		}
		if found {
			return ""
		}
		holder, found = strings.TrimSuffix(before, "model."), true
	}
	return holder
}

func isBuffer(name string) bool {
	for _, suffix := range []string{"rotary_emb.inv_freq", "rotary_emb.original_inv_freq", "rotary_emb.cos_cached",
		"rotary_emb.sin_cached"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}
