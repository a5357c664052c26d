package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"gyre/orchestrate/chat"
	"gyre/orchestrate/checkpoint"
)

// stopIDs are the ids at which transformers' generate stops: eos_token_id of generation_config.json, or else of config.json.
// Where both say nothing, those of the tokenizer, if there is one.
func stopIDs(dir string, config checkpoint.Config, tokenizer *chat.Tokenizer) ([]int32, error) {
	ids, err := generationEOS(filepath.Join(dir, "generation_config.json"))
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		ids = config.EOS
	}
	var stop []int32
	for _, id := range ids {
		// Ids outside the vocabulary (configurations of shrunken models have such) never occur.
		if id >= 0 && id < config.Model.VocabSize {
			stop = append(stop, int32(id))
		}
	}
	if len(ids) == 0 && tokenizer != nil {
		stop = tokenizer.StopIDs()
	}
	return stop, nil
}

// generationEOS reads eos_token_id, a number, a list or null, of a generation_config.json, which may be missing.
func generationEOS(path string) ([]int64, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var config struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var one int64
	var list []int64
	switch {
	case len(config.EOS) == 0 || string(config.EOS) == "null":
		return nil, nil
	case json.Unmarshal(config.EOS, &one) == nil:
		return []int64{one}, nil
	case json.Unmarshal(config.EOS, &list) == nil:
		return list, nil
	}
	return nil, fmt.Errorf("%s: eos_token_id: expected an id or a list of ids, got %.60s", path, config.EOS)
}
