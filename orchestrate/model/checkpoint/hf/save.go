package hf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gyre/orchestrate/model/chat/bpe"
	"gyre/orchestrate/model/checkpoint/weights"
)

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
	shards, total, err := split(list, shardSize)
	if err != nil {
		return err
	}
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
	index, err := bpe.EncodeJSON(map[string]any{"metadata": map[string]int64{"total_size": total},
		"weight_map": weightMap}, "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), index, 0o644)
}

// split cuts a list into runs of at most size bytes; a larger tensor has a run of its own.
func split(list []weights.Source, size int64) (shards [][]weights.Source, total int64, err error) {
	start, sum := 0, int64(0)
	for i, s := range list {
		n, err := s.Bytes()
		if err != nil {
			return nil, 0, err
		}
		if i > start && sum+n > size {
			shards = append(shards, list[start:i])
			start, sum = i, 0
		}
		sum += n
		total += n
	}
	return append(shards, list[start:]), total, nil
}

// companions are the files beside weights and configuration that make a directory usable: tokenizer, template,
// generation settings.
var companions = []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
	"vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json",
	"generation_config.json"}

// CopyCompanions copies the tokenizer's and related files that source has into dir.
func CopyCompanions(dir, source string) error {
	for _, name := range companions {
		data, err := os.ReadFile(filepath.Join(source, name))
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
