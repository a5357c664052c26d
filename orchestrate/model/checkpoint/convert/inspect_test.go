package convert

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	for path, want := range map[string][]string{
		"../testdata/qwen2": {"safetensors", "bfloat16 × 26", "qwen2 (language model, tied)",
			"2 layers, width 16, 4 heads of 4 (2 for keys and values)", "tokenizer   none"},
		"../testdata/llama-sharded":               {"safetensors, 2 shards", "(llama3)", "llama (language model)"},
		"../testdata/llama-bin":                   {"pytorch_model.bin", "float32"},
		"../testdata/critic":                      {"llama (value)"},
		"../testdata/llama/model.safetensors":     {"safetensors, 24 KiB", "5,168"},
		"../testdata/llama-bin/pytorch_model.bin": {"torch.save", "module._orig_mod.lm_head.weight"},
	} {
		info, err := Inspect(path)
		if err != nil {
			t.Error(err)
			continue
		}
		var out bytes.Buffer
		if err := info.Print(&out, true); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: no %q in\n%s", path, w, out.String())
			}
		}
		if _, err := json.Marshal(info); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{"..", "../testdata/llama/config.json", "nowhere"} {
		if _, err := Inspect(path); err == nil {
			t.Errorf("%s: opens", path)
		}
	}
}
