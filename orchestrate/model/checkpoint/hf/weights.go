package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/regular"
	"gyre/orchestrate/model/chat/bpe"
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
	for _, name := range []string{"model.safetensors", "pytorch_model.bin"} {
		if atomicfile.Exists(dir, name) {
			return openFiles(dir, []string{name}, name)
		}
		index := filepath.Join(dir, name+".index.json")
		if atomicfile.Exists(index) {
			shards, err := shardsOf(index, filepath.Ext(name))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", index, err)
			}
			return openFiles(dir, shards, fmt.Sprintf("%s, %d shards", filepath.Ext(name)[1:], len(shards)))
		}
	}
	name, err := onlyWeights(dir)
	if err != nil {
		return nil, err
	}
	return openFiles(dir, []string{name}, name)
}

// shardsOf reads the names of the shards from an index.
func shardsOf(path, ending string) ([]string, error) {
	data, err := regular.Read(path)
	if err != nil {
		return nil, err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("not an index: %w", err)
	}
	if len(index.WeightMap) == 0 {
		return nil, errors.New("weight_map is missing or empty")
	}
	shards := slices.Compact(slices.Sorted(maps.Values(index.WeightMap)))
	for _, file := range shards {
		if filepath.Base(file) != file || filepath.Ext(file) != ending {
			return nil, fmt.Errorf("tensors are said to be in %q: expected the name of a %s file in the same directory",
				file, ending)
		}
	}
	return shards, nil
}

// notWeights are files of training programs that share the endings of weights.
var notWeights = []string{"training_args.bin", "optimizer.", "scheduler.", "scaler.", "rng_state", "adapter_model."}

func onlyWeights(dir string) (string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var found []string
	for _, e := range list {
		skip := slices.ContainsFunc(notWeights, func(p string) bool { return strings.HasPrefix(e.Name(), p) })
		if !skip && slices.Contains([]string{".safetensors", ".bin", ".pt", ".pth"}, filepath.Ext(e.Name())) {
			found = append(found, e.Name())
		}
	}
	adapter := func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "adapter_model.") }
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", fmt.Errorf("%s has no model.safetensors or pytorch_model.bin, and several files could be the "+
			"weights: %s", dir, strings.Join(found, ", "))
	case slices.ContainsFunc(list, adapter):
		return "", fmt.Errorf("%s holds an adapter (LoRA), not a model: merge it into its base model first", dir)
	}
	return "", fmt.Errorf("%s has no weights: expected model.safetensors, pytorch_model.bin or their sharded forms: %w",
		dir, os.ErrNotExist)
}

// openFiles opens files and puts their tensors under canonical names.
func openFiles(dir string, files []string, layout string) (w *Weights, err error) {
	w = &Weights{Tensors: map[string]*weights.Tensor{}, Layout: layout}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	for _, file := range files {
		f, err := weights.Open(filepath.Join(dir, file))
		if err != nil {
			return w, err
		}
		w.files = append(w.files, f)
		for _, t := range f.Tensors {
			name := canonicalName(t.Name)
			if name == "" {
				continue
			}
			if other := w.Tensors[name]; other != nil {
				return w, fmt.Errorf("tensor %s is there twice: in %s and in %s", name, other.File, t.File)
			}
			t.Name = name
			w.Tensors[name] = t
		}
	}
	return w, nil
}

// ownName is a name of a CausalLM behind the prefixes of DataParallel, torch.compile and whatever held the model as an
// attribute ("model.model.layers…" of Lightning).
var ownName = regexp.MustCompile(`^(?:.*?\.)?(?:model\.)?((embed_tokens|layers|norm|lm_head|score)\..*)$`)

// buffer is the end of the name of what transformers recomputes.
var buffer = regexp.MustCompile(`rotary_emb\.(inv_freq|original_inv_freq|cos_cached|sin_cached)$`)

// canonicalName is a tensor's name in a CausalLM, with "model." before those of its backbone; "" for a buffer.
func canonicalName(name string) string {
	own := ownName.FindStringSubmatch(name)
	switch {
	case buffer.MatchString(name):
		return ""
	case own == nil:
		return name
	case own[2] == "lm_head" || own[2] == "score":
		return own[1]
	}
	return "model." + own[1]
}

// ShardSize is the size beyond which weights are split over several files.
const ShardSize = 5_000_000_000

// Save writes config.json and the weights, as model.safetensors or, beyond shardSize bytes, in shards with an index.
// The directory must exist; making it appear whole is the caller's concern.
func Save(dir string, c Config, list []weights.Source, shardSize int64) error {
	data, err := c.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644); err != nil {
		return err
	}
	list = c.forFile(list)
	shards, total := split(list, shardSize)
	metadata := map[string]string{"format": "pt"}
	if len(shards) == 1 {
		return weights.Write(filepath.Join(dir, "model.safetensors"), list, metadata)
	}
	weightMap := map[string]string{}
	for i, shard := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		if err := weights.Write(filepath.Join(dir, name), shard, metadata); err != nil {
			return err
		}
		for _, s := range shard {
			weightMap[s.Name] = name
		}
	}
	index, _ := bpe.EncodeJSON(map[string]any{"metadata": map[string]int64{"total_size": total},
		"weight_map": weightMap}, "  ") // texts and numbers always encode
	return os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), index, 0o644)
}

// split cuts a list into runs of at most size bytes; a larger tensor has a run of its own.
func split(list []weights.Source, size int64) (shards [][]weights.Source, total int64) {
	start, sum := 0, int64(0)
	for i, s := range list {
		n := s.Bytes()
		if i > start && sum+n > size {
			shards = append(shards, list[start:i])
			start, sum = i, 0
		}
		sum += n
		total += n
	}
	return append(shards, list[start:]), total
}

// companions are the files beside weights and configuration that make a directory usable: tokenizer, template,
// generation settings.
var companions = []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
	"vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json",
	"response_template.json", "generation_config.json"}

// CopyCompanions copies the tokenizer's and related files that source has into dir.
func CopyCompanions(dir, source string) error {
	for _, name := range companions {
		data, err := regular.Read(filepath.Join(source, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
