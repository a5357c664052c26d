package hf

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

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
			return nil, fmt.Errorf("%s: tensor %s is said to be in %q: expected the name of a %s file in the same directory", path, name, file, ending)
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
