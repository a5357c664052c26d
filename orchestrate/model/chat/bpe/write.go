package bpe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Pipeline is what surrounds the BPE model in a tokenizer.json, in Hugging Face's JSON.
type Pipeline struct {
	Normalizer, PreTokenizer, PostProcessor any
	IgnoreMerges                            bool
	AddBOS                                  bool // by default, where the pipeline is that of a GGUF file
}

// Pipelines are those of known models, under llama.cpp's names (tokenizer.ggml.pre).
var Pipelines = map[string]Pipeline{
	"smollm": {PreTokenizer: sequence(object{"type": "Digits", "individual_digits": true}, byteLevel(false, true))},
	"gpt-2":  {PreTokenizer: byteLevel(false, true), PostProcessor: byteLevel(true, true)},
	"qwen2": {Normalizer: object{"type": "NFC"}, PreTokenizer: sequence(splitBy(patternQwen2), byteLevel(false, false)),
		PostProcessor: byteLevel(false, false)},
	"llama-bpe": {PreTokenizer: sequence(splitBy(patternLlama3), byteLevel(false, false)),
		PostProcessor: byteLevel(true, true), IgnoreMerges: true, AddBOS: true},
}

type object = map[string]any

func byteLevel(addPrefixSpace, useRegex bool) object {
	return object{"type": "ByteLevel", "add_prefix_space": addPrefixSpace, "trim_offsets": true, "use_regex": useRegex}
}

func sequence(steps ...object) object { return object{"type": "Sequence", "pretokenizers": steps} }

func splitBy(pattern string) object {
	return object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": "Isolated", "invert": false}
}

// Prepend is the post-processor that puts one token before every text.
func Prepend(token string, id int32) any {
	special := object{"SpecialToken": object{"id": token, "type_id": 0}}
	text := func(name string, kind int) object { return object{"Sequence": object{"id": name, "type_id": kind}} }
	return object{"type": "TemplateProcessing", "single": []object{special, text("A", 0)},
		"pair": []object{special, text("A", 0), {"SpecialToken": object{"id": token, "type_id": 1}},
			text("B", 1)},
		"special_tokens": object{token: object{"id": token, "ids": []int32{id}, "tokens": []string{token}}}}
}

// File writes a tokenizer.json: tokens by id, merges as "a b", and added tokens, some of which may be tokens as well.
func (p Pipeline) File(tokens, merges []string, added []AddedToken) ([]byte, error) {
	return EncodeJSON(object{"version": "1.0", "truncation": nil, "padding": nil,
		"added_tokens": append([]AddedToken{}, added...),
		"normalizer":   p.Normalizer, "pre_tokenizer": p.PreTokenizer, "post_processor": p.PostProcessor,
		"decoder": byteLevel(true, true),
		"model": object{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
			"end_of_word_suffix": nil, "fuse_unk": false, "byte_fallback": false, "ignore_merges": p.IgnoreMerges,
			"vocab": vocabulary(tokens), "merges": append([]string{}, merges...)}}, " ")
}

// vocabulary marshals as {"token": id, …} in the order of the ids.
type vocabulary []string

// MarshalJSON has the signature of json.Marshaler.
func (v vocabulary) MarshalJSON() ([]byte, error) {
	var members [][]byte
	seen := make(map[string]bool, len(v))
	for id, token := range v {
		if seen[token] {
			return nil, fmt.Errorf("token %q appears twice", token)
		}
		seen[token] = true
		key, err := EncodeJSON(token, "")
		if err != nil {
			return nil, err
		}
		members = append(members, fmt.Appendf(nil, "%s:%d", bytes.TrimSpace(key), id))
	}
	return fmt.Appendf(nil, "{%s}", bytes.Join(members, []byte(","))), nil
}

// EncodeJSON writes JSON with a newline at the end, without escaping <, > and &, which token texts are full of.
func EncodeJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return b.Bytes(), err
}

// IDs are the token ids of a role in Hugging Face's files: null, one id or a list. Negative ones (older files' "none")
// are dropped.
type IDs []int32

// MarshalJSON implements json.Marshaler.
func (ids IDs) MarshalJSON() ([]byte, error) {
	switch len(ids) {
	case 0:
		return []byte("null"), nil
	case 1:
		return json.Marshal(ids[0])
	}
	return json.Marshal([]int32(ids))
}

// UnmarshalJSON implements json.Unmarshaler.
func (ids *IDs) UnmarshalJSON(data []byte) error {
	var one int32
	var many []int32
	if data[0] != '[' && json.Unmarshal(data, &one) == nil && string(data) != "null" {
		many = []int32{one}
	} else if json.Unmarshal(data, &many) != nil {
		return fmt.Errorf("expected a token id or a list of them, got %.60s", data)
	}
	*ids = slices.DeleteFunc(many, func(id int32) bool { return id < 0 })
	return nil
}
