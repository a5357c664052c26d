package convert

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

func convert(t *testing.T, source string, dtype *weights.DType) (dir string, s Summary) {
	t.Helper()
	dir = t.TempDir()
	s, err := Convert(source, dir, dtype)
	if err != nil {
		t.Fatal(err)
	}
	return dir, s
}

// load reads every tensor of a file as the given type.
func load(t *testing.T, path string, as weights.DType) map[string][]byte {
	t.Helper()
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string][]byte{}
	for _, x := range f.Tensors {
		if out[x.Name], _, err = x.Dense(as, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func compare(t *testing.T, dir, want string, as weights.DType) {
	t.Helper()
	a, b := load(t, filepath.Join(dir, "model.safetensors"), as), load(t, want, as)
	if len(a) != len(b) {
		t.Errorf("%d tensors, %s has %d", len(a), want, len(b))
	}
	for name := range b {
		if !bytes.Equal(a[name], b[name]) {
			t.Errorf("%s differs from %s", name, want)
		}
	}
}

func readJSON(t *testing.T, dir, name string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestLlamaFromGGUF(t *testing.T) {
	dir, s := convert(t, "testdata/llama.gguf", nil)
	compare(t, dir, "testdata/llama.safetensors", weights.F32)
	c, err := hf.ReadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	scaled := c.RopeTheta == 500000 && reflect.DeepEqual(readJSON(t, dir, "config.json")["rope_scaling"],
		map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
			"original_max_position_embeddings": 8192.0})
	if !c.QKVBias || !c.OutBias || c.TieEmbeddings || !scaled || c.RMSNormEps != 1e-6 ||
		s.Parameters != c.Count(torch.HeadLM) {
		t.Errorf("configuration %+v", c)
	}
	if got := readJSON(t, dir, "generation_config.json")["eos_token_id"]; !reflect.DeepEqual(got, []any{29.0, 27.0}) {
		t.Errorf("a turn ends with %v", got)
	}
}

func TestTokenizerFromGGUF(t *testing.T) {
	dir, _ := convert(t, "testdata/llama.gguf", nil)
	tok, err := chat.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text    string
		special bool
		want    []int32
	}{
		{"abc", false, []int32{27}}, {"bab", false, []int32{1, 26}}, {"ab<eos>a", true, []int32{28, 26, 29, 0}},
		{"<tool>", true, []int32{28, 30}},
	} {
		encode := tok.EncodeOrdinary
		if c.special {
			encode = tok.EncodeDocument
		}
		if got, err := encode(c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q, special %v: %v, %v; want %v", c.text, c.special, got, err, c.want)
		}
	}
	if !slices.Equal(tok.StopIDs(), []int32{29, 27}) || !tok.HasTemplate() {
		t.Errorf("stops at %v", tok.StopIDs())
	}
	added := readJSON(t, dir, "tokenizer.json")["added_tokens"].([]any)
	if len(added) != 3 || added[2].(map[string]any)["special"] != false {
		t.Errorf("added tokens %v", added)
	}
}

func TestQwenFromGGUF(t *testing.T) {
	dir, _ := convert(t, "testdata/qwen3.gguf", nil)
	compare(t, dir, "../testdata/qwen3/model.safetensors", weights.F32)
	half := weights.F16
	dir, _ = convert(t, "testdata/qwen3.gguf", &half)
	compare(t, dir, "../testdata/qwen3/model.safetensors", weights.F16)
	got := readJSON(t, dir, "tokenizer.json")
	if pre := got["pre_tokenizer"].(map[string]any); pre["type"] != "Sequence" ||
		got["normalizer"].(map[string]any)["type"] != "NFC" {
		t.Errorf("pipeline %v", got["pre_tokenizer"])
	}
}

func TestDirectories(t *testing.T) {
	brain := weights.BF16
	for _, source := range []string{"llama", "llama-sharded", "llama-bin", "llama-bin-sharded"} {
		dir, _ := convert(t, "../testdata/"+source, &brain)
		f, err := weights.Open(filepath.Join(dir, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if f.Tensors[0].DType != weights.BF16 {
			t.Errorf("%s: stored as %v", source, f.Tensors[0].DType)
		}
		rounded, exact := load(t, filepath.Join(dir, "model.safetensors"), brain), load(t,
			"../testdata/llama/model.safetensors", brain)
		for name := range exact {
			if !bytes.Equal(rounded[name], exact[name]) {
				t.Errorf("%s: %s differs", source, name)
			}
		}
	}
	dir, s := convert(t, "../testdata/critic", nil) // a value head stays one
	compare(t, dir, "../testdata/critic/model.safetensors", weights.F32)
	if s.Config.Head != torch.HeadValue {
		t.Errorf("configuration %+v", s.Config)
	}
}

func TestUnsupportedGGUF(t *testing.T) {
	f, err := weights.Open("testdata/llama.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	byName := map[string]*weights.Tensor{}
	for _, x := range f.Tensors {
		byName[x.Name] = x
	}
	for want, change := range map[string]func(m weights.Metadata){
		`"mamba"`:                          func(m weights.Metadata) { m["general.architecture"] = "mamba" },
		"llama.block_count is missing":     func(m weights.Metadata) { delete(m, "llama.block_count") },
		"llama.rope.dimension_count is 2":  func(m weights.Metadata) { m["llama.rope.dimension_count"] = int64(2) },
		"num_attention_heads":              func(m weights.Metadata) { m["llama.attention.head_count"] = int64(-4) },
		"hidden_size: expected int64":      func(m weights.Metadata) { m["llama.embedding_length"] = 1.5 },
		"rope_freqs.weight[2] is":          func(m weights.Metadata) { m["llama.rope.freq_base"] = 1e4 },
		`tokenizer.ggml.model "llama"`:     func(m weights.Metadata) { m["tokenizer.ggml.model"] = "llama" },
		`tokenizer.ggml.pre "chatglm"`:     func(m weights.Metadata) { m["tokenizer.ggml.pre"] = "chatglm" },
		"has 2 entries, the embedding has": func(m weights.Metadata) { m["tokenizer.ggml.tokens"] = []string{"a", "b"} },
		"outside the vocabulary":           func(m weights.Metadata) { m["tokenizer.ggml.eos_token_id"] = int64(99) },
		"tokenizer.ggml.merges is missing": func(m weights.Metadata) { m["tokenizer.ggml.merges"] = []int64{1} },
		"token_type has 1 entries":         func(m weights.Metadata) { m["tokenizer.ggml.token_type"] = []int64{1} },
		`token "a" appears twice`: func(m weights.Metadata) {
			list := slices.Clone(m["tokenizer.ggml.tokens"].([]string))
			list[1] = "a"
			m["tokenizer.ggml.tokens"] = list
		},
	} {
		m := weights.Metadata{}
		for k, v := range f.GGUF {
			m[k] = v
		}
		change(m)
		c, err := readConfig(m, byName)
		if err == nil {
			_, err = tokenizerFiles(m, c)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one with %q", err, want)
		}
	}
	for _, name := range []string{"blk.0.attn_qkv.weight", "blk.x.attn_q.weight", "blk.0.attn_q", "v.patch_embd.weight",
		"output.bias", "blk.70000.attn_q.weight"} {
		if renamed, _, ok := huggingFaceName(name); ok {
			t.Errorf("%s becomes %s", name, renamed)
		}
	}
	if _, err := Convert("convert.go", t.TempDir(), nil); err == nil || !strings.Contains(err.Error(),
		"expected a .gguf file") {
		t.Errorf("another file: %v", err)
	}
}
