package rollout

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"gyre/orchestrate/model/chat"
)

const eos = "<|im_end|>"

// tokenizer is byte-level without any merges: one token per byte, then <|im_start|> and <|im_end|>.
func tokenizer(t *testing.T) *chat.Tokenizer {
	t.Helper()
	if loaded == nil {
		loaded = load(t)
	}
	return loaded
}

var loaded *chat.Tokenizer

func load(t *testing.T) *chat.Tokenizer {
	t.Helper()
	vocabulary := map[string]int{}
	for b := range 256 {
		vocabulary[string(byteRune(b))] = b
	}
	special := func(id int, content string) map[string]any {
		return map[string]any{"id": id, "content": content, "special": true, "normalized": false, "lstrip": false,
			"rstrip": false, "single_word": false}
	}
	dir := t.TempDir()
	for name, content := range map[string]any{
		"tokenizer.json": map[string]any{
			"version": "1.0", "normalizer": nil, "truncation": nil, "padding": nil, "post_processor": nil,
			"added_tokens": []any{special(256, "<|im_start|>"), special(257, eos)},
			"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
				"use_regex": true},
			"decoder": map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
				"use_regex": true},
			"model": map[string]any{"type": "BPE", "vocab": vocabulary, "merges": []string{}},
		},
		"tokenizer_config.json": map[string]any{"eos_token": eos, "chat_template": chat.ChatML},
	} {
		data, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := chat.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// byteRune is GPT-2's printable stand-in for a byte: itself where it is printable, else the next free one from 256 up.
func byteRune(b int) rune {
	printable := func(b int) bool { return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae }
	if printable(b) {
		return rune(b)
	}
	free := rune(256)
	for i := range b {
		if !printable(i) {
			free++
		}
	}
	return free
}
