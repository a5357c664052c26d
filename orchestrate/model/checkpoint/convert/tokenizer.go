package convert

import (
	"errors"
	"fmt"
	"slices"

	"gyre/orchestrate/model/chat/bpe"
	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
)

// Token types of tokenizer.ggml.token_type that matter here.
const (
	tokenNormal  = 1
	tokenControl = 3
	tokenUser    = 4
)

// tokenizerFiles makes the files beside the weights from tokenizer.ggml.*: by file name.
func tokenizerFiles(m weights.Metadata, c hf.Config) (map[string][]byte, error) {
	tokens, _ := m["tokenizer.ggml.tokens"].([]string)
	if int64(len(tokens)) != c.VocabSize {
		return nil, fmt.Errorf("tokenizer.ggml.tokens has %d entries, the embedding has %d rows", len(tokens),
			c.VocabSize)
	}
	settings := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false,
		"model_max_length": c.MaxPositions}
	generation := map[string]any{}
	for key, name := range map[string]string{"bos": "bos", "eos": "eos", "padding": "pad", "unknown": "unk"} {
		id, ok := m["tokenizer.ggml."+key+"_token_id"].(int64)
		if !ok {
			continue
		}
		if id < 0 || id >= c.VocabSize {
			return nil, fmt.Errorf("tokenizer.ggml.%s_token_id %d is outside the vocabulary of %d", key, id,
				c.VocabSize)
		}
		settings[name+"_token"] = tokens[id]
		if name != "unk" {
			generation[name+"_token_id"] = id
		}
	}
	if eot, ok := m["tokenizer.ggml.eot_token_id"].(int64); ok && eot >= 0 && eot < c.VocabSize {
		if eos, ok := generation["eos_token_id"]; ok && eos != eot {
			generation["eos_token_id"] = []any{eos, eot} // a turn may end with either
		}
	}
	tokenizer, err := tokenizerJSON(m, tokens)
	files := map[string][]byte{"tokenizer.json": tokenizer}
	files["tokenizer_config.json"], _ = bpe.EncodeJSON(settings, "  ") // texts and numbers always encode
	files["generation_config.json"], _ = bpe.EncodeJSON(generation, "  ")
	if template, ok := m["tokenizer.chat_template"].(string); ok {
		files["chat_template.jinja"] = []byte(template)
	}
	return files, err
}

func tokenizerJSON(m weights.Metadata, tokens []string) ([]byte, error) {
	if kind := m["tokenizer.ggml.model"]; kind != "gpt2" {
		return nil, fmt.Errorf("tokenizer.ggml.model %q is not supported: expected gpt2 (byte-level BPE)", kind)
	}
	merges, ok := m["tokenizer.ggml.merges"].([]string)
	if !ok {
		return nil, errors.New("tokenizer.ggml.merges is missing")
	}
	types, ok := m["tokenizer.ggml.token_type"].([]int64)
	if !ok {
		types = slices.Repeat([]int64{tokenNormal}, len(tokens))
	}
	if len(types) != len(tokens) {
		return nil, fmt.Errorf("tokenizer.ggml.token_type has %d entries, expected %d", len(types), len(tokens))
	}
	pre, _ := m["tokenizer.ggml.pre"].(string)
	pipeline, ok := bpe.Pipelines[pre]
	if !ok {
		return nil, fmt.Errorf("tokenizer.ggml.pre %q is not supported: expected smollm, qwen2, llama-bpe or gpt-2",
			pre)
	}
	// Control and user-defined tokens that follow the last ordinary one are not part of the BPE's own vocabulary.
	ordinary := 0
	var added []bpe.AddedToken
	for id, kind := range types {
		switch kind {
		case tokenNormal:
			ordinary = id + 1
		case tokenControl, tokenUser:
			added = append(added, bpe.AddedToken{ID: int32(id), Content: tokens[id], Special: kind == tokenControl})
		}
	}
	addBOS, given := m["tokenizer.ggml.add_bos_token"].(bool)
	if !given {
		addBOS = pipeline.AddBOS
	}
	if bos, ok := m["tokenizer.ggml.bos_token_id"].(int64); addBOS && ok {
		pipeline.PostProcessor = bpe.Prepend(tokens[bos], int32(bos))
	}
	return pipeline.File(tokens[:ordinary], merges, added)
}
