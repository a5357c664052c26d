package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
)

// Token types of tokenizer.ggml.token_type that matter here.
const (
	tokenNormal  = 1
	tokenControl = 3
	tokenUser    = 4
)

type object = map[string]any

// tokenizerFiles makes the files beside the weights from tokenizer.ggml.*: by file name.
func tokenizerFiles(m weights.Metadata, c hf.Config) (map[string][]byte, error) {
	t, err := readTokens(m, c)
	if err != nil {
		return nil, err
	}
	tokenizer, err := t.tokenizerJSON(m)
	if err != nil {
		return nil, err
	}
	settings := object{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false,
		"model_max_length": c.MaxPositions}
	generation := object{}
	for _, role := range []struct{ key, name string }{{"bos", "bos"}, {"eos", "eos"}, {"padding", "pad"}, {"unknown",
		"unk"}} {
		id, ok := m.Integer("tokenizer.ggml." + role.key + "_token_id")
		if !ok {
			continue
		}
		if id < 0 || id >= int64(len(t.tokens)) {
			return nil, fmt.Errorf("tokenizer.ggml.%s_token_id %d is outside the vocabulary of %d", role.key, id,
				len(t.tokens))
		}
		settings[role.name+"_token"] = t.tokens[id]
		if role.name != "unk" {
			generation[role.name+"_token_id"] = id
		}
	}
	if eot, ok := m.Integer("tokenizer.ggml.eot_token_id"); ok && generation["eos_token_id"] != eot && eot >= 0 &&
		eot < int64(len(t.tokens)) {
		if eos, ok := generation["eos_token_id"]; ok {
			generation["eos_token_id"] = []any{eos, eot} // a turn may end with either
		}
	}
	files := map[string][]byte{}
	for name, v := range map[string]object{"tokenizer.json": tokenizer, "tokenizer_config.json": settings,
		"generation_config.json": generation} {
		if files[name], err = encode(v); err != nil {
			return nil, err
		}
	}
	if template, ok := m.Text("tokenizer.chat_template"); ok {
		files["chat_template.jinja"] = []byte(template)
	}
	return files, nil
}

// encode writes indented JSON without escaping <, > and &, which token texts are full of.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// vocabulary is the token list of a file.
type vocabulary struct {
	tokens []string
	types  []int64
	merges []string
	pre    string
}

func readTokens(m weights.Metadata, c hf.Config) (vocabulary, error) {
	var t vocabulary
	var ok bool
	if kind, _ := m.Text("tokenizer.ggml.model"); kind != "gpt2" {
		return t, fmt.Errorf("tokenizer.ggml.model %q is not supported: expected gpt2 (byte-level BPE)", kind)
	}
	if t.tokens, ok = m.Texts("tokenizer.ggml.tokens"); !ok || int64(len(t.tokens)) != c.VocabSize {
		return t, fmt.Errorf("tokenizer.ggml.tokens has %d entries, the embedding has %d rows", len(t.tokens),
			c.VocabSize)
	}
	if t.merges, ok = m.Texts("tokenizer.ggml.merges"); !ok {
		return t, errors.New("tokenizer.ggml.merges is missing")
	}
	if t.types, ok = m.Integers("tokenizer.ggml.token_type"); !ok {
		t.types = make([]int64, len(t.tokens))
		for i := range t.types {
			t.types[i] = tokenNormal
		}
	}
	if len(t.types) != len(t.tokens) {
		return t, fmt.Errorf("tokenizer.ggml.token_type has %d entries, expected %d", len(t.types), len(t.tokens))
	}
	t.pre, _ = m.Text("tokenizer.ggml.pre")
	return t, nil
}

// vocab marshals as {"token": id, …} in the order of the ids.
type vocab []string

func (v vocab) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	seen := make(map[string]bool, len(v))
	for id, token := range v {
		if seen[token] {
			return nil, fmt.Errorf("token %q appears twice", token)
		}
		seen[token] = true
		key, err := encode(token)
		if err != nil {
			return nil, err
		}
		if id > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s:%d", bytes.TrimSpace(key), id)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func (t vocabulary) tokenizerJSON(m weights.Metadata) (object, error) {
	pipeline, ok := pipelines[t.pre]
	if !ok {
		return nil, fmt.Errorf("tokenizer.ggml.pre %q is not supported: expected smollm, qwen2, llama-bpe or gpt-2",
			t.pre)
	}
	// Control and user-defined tokens that follow the last ordinary one are not part of the BPE's own vocabulary.
	ordinary := 0
	for id, kind := range t.types {
		if kind == tokenNormal {
			ordinary = id + 1
		}
	}
	added := []object{}
	for id, kind := range t.types {
		if kind == tokenControl || kind == tokenUser {
			added = append(added, object{"id": id, "content": t.tokens[id], "single_word": false, "lstrip": false,
				"rstrip":     false,
				"normalized": false, "special": kind == tokenControl})
		}
	}
	out := object{"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"normalizer":    pipeline.normalizer,
		"pre_tokenizer": pipeline.pre, "post_processor": pipeline.post, "decoder": byteLevel(true, true, true),
		"model": object{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
			"end_of_word_suffix": nil,
			"fuse_unk":           false, "byte_fallback": false, "ignore_merges": pipeline.ignoreMerges,
			"vocab":  vocab(t.tokens[:ordinary]),
			"merges": t.merges}}
	addBOS, given := m["tokenizer.ggml.add_bos_token"].(bool)
	if !given {
		addBOS = pipeline.addBOS
	}
	if bos, ok := m.Integer("tokenizer.ggml.bos_token_id"); addBOS && ok && bos >= 0 && bos < int64(len(t.tokens)) {
		out["post_processor"] = prepend(t.tokens[bos], bos)
	}
	return out, nil
}

// pipeline is what a name in tokenizer.ggml.pre stands for, in Hugging Face's JSON.
type pipeline struct {
	normalizer, pre, post any
	ignoreMerges, addBOS  bool // addBOS: unless the file says otherwise
}

// The splitting expressions are those of the models' own tokenizer.json.
const (
	qwenSplit  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	llamaSplit = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

var pipelines = map[string]pipeline{
	"smollm": {pre: sequence(object{"type": "Digits", "individual_digits": true}, byteLevel(false, true, true))},
	"gpt-2":  {pre: byteLevel(false, true, true), post: byteLevel(true, false, true)},
	"qwen2": {normalizer: object{"type": "NFC"}, pre: sequence(split(qwenSplit), byteLevel(false, false, false)),
		post: byteLevel(false, false, false)},
	"llama-bpe": {pre: sequence(split(llamaSplit), byteLevel(false, true, false)), post: byteLevel(true, false, true),
		ignoreMerges: true, addBOS: true},
}

func byteLevel(addPrefixSpace, trimOffsets, useRegex bool) object {
	return object{"type": "ByteLevel", "add_prefix_space": addPrefixSpace, "trim_offsets": trimOffsets,
		"use_regex": useRegex}
}

func sequence(steps ...object) object { return object{"type": "Sequence", "pretokenizers": steps} }

func split(pattern string) object {
	return object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": "Isolated", "invert": false}
}

// prepend is the post-processor that puts one token before every text.
func prepend(token string, id int64) object {
	special := object{"SpecialToken": object{"id": token, "type_id": 0}}
	text := func(name string, kind int) object { return object{"Sequence": object{"id": name, "type_id": kind}} }
	return object{"type": "TemplateProcessing", "single": []object{special, text("A", 0)},
		"pair": []object{special, text("A", 0), object{"SpecialToken": object{"id": token, "type_id": 1}},
			text("B", 1)},
		"special_tokens": object{token: object{"id": token, "ids": []int64{id}, "tokens": []string{token}}}}
}
