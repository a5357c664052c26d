package hf

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// load reads a directory into float32 data by parameter name.
func load(t *testing.T, dir string, head torch.Head) (Config, map[string][]byte, []string) {
	t.Helper()
	m, err := Open(dir, &head)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Weights.Close()
	out := map[string][]byte{}
	for _, e := range m.Entries {
		if e.Tensor == nil {
			continue
		}
		if out[e.Name], _, err = e.Tensor.Dense(weights.F32, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	return m.Config, out, m.Notes
}

func TestEveryLayoutHoldsTheSameModel(t *testing.T) {
	_, want, _ := load(t, "../testdata/llama", torch.HeadLM)
	for _, dir := range []string{"llama-sharded", "llama-bin", "llama-bin-sharded"} {
		_, got, _ := load(t, "../testdata/"+dir, torch.HeadLM)
		if len(got) != len(want) {
			t.Errorf("%s: %d tensors, want %d", dir, len(got), len(want))
		}
		for name := range want {
			if !bytes.Equal(got[name], want[name]) {
				t.Errorf("%s: %s differs", dir, name)
			}
		}
	}
}

// variant writes the tensors of a fixture into a new directory, after edit has changed them.
func variant(t *testing.T, fixture string, edit func(config map[string]any, list map[string]*weights.Source)) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile("../testdata/" + fixture + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	w, err := OpenWeights("../testdata/" + fixture)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	list := map[string]*weights.Source{}
	for name, x := range w.Tensors {
		list[name] = &weights.Source{Name: name, DType: x.DType, Shape: x.Shape, Fill: func(dst []byte) error {
			data, err := x.Load(nil)
			copy(dst, data)
			return err
		}}
	}
	edit(config, list)
	var sources []weights.Source
	for _, s := range list {
		sources = append(sources, *s)
	}
	if err := weights.Write(filepath.Join(dir, "model.safetensors"), sources, nil); err != nil {
		t.Fatal(err)
	}
	text, _ = json.Marshal(config)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

type sources = map[string]*weights.Source

func rename(list sources, from, to string) {
	list[to] = list[from]
	list[to].Name = to
	delete(list, from)
}

// The weights are found under whatever attribute of a training program held the model.
func TestPrefixedNamesHoldTheSameModel(t *testing.T) {
	_, want, _ := load(t, "../testdata/llama", torch.HeadLM)
	for _, prefix := range []string{"module.", "_orig_mod.module.", "model.", "module.policy.", "actor.net."} {
		dir := variant(t, "llama", func(_ map[string]any, list sources) {
			for _, name := range slices.Collect(maps.Keys(list)) {
				rename(list, name, prefix+name)
			}
		})
		if _, got, _ := load(t, dir, torch.HeadLM); !reflect.DeepEqual(got, want) {
			t.Errorf("prefix %q: another model", prefix)
		}
	}
}

func TestMismatchesAreListedTogether(t *testing.T) {
	dir := variant(t, "llama", func(_ map[string]any, list sources) {
		delete(list, "model.layers.1.mlp.up_proj.weight")
		list["model.norm.weight"].Shape = []int64{4, 4}
		list["model.layers.0.mlp.down_proj.bias"].DType = weights.I32
		rename(list, "model.layers.0.self_attn.q_proj.bias", "model.layers.7.self_attn.q_proj.bias")
		delete(list, LMHeadName)
	})
	lm := torch.HeadLM
	_, err := Open(dir, &lm)
	if err == nil {
		t.Fatal("loads")
	}
	for _, want := range []string{
		"missing  model.layers.1.mlp.up_proj.weight [24 16]",
		"shape    model.norm.weight in model.safetensors: expected [16], got [4 4]",
		"type     model.layers.0.mlp.down_proj.bias in model.safetensors: int32",
		"missing  model.layers.0.self_attn.q_proj.bias [16]",
		"extra    model.layers.7.self_attn.q_proj.bias [16] in model.safetensors",
		"missing  lm_head.weight [32 16] (config.json has tie_word_embeddings false",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no line %q in\n%v", want, err)
		}
	}
}

func TestTiedHeads(t *testing.T) {
	embedding := func(list sources) *weights.Source {
		s := *list[EmbeddingName]
		s.Name = LMHeadName
		return &s
	}
	tied := "qwen2" // its configuration ties
	_, want, _ := load(t, "../testdata/"+tied, torch.HeadLM)

	dir := variant(t, tied, func(_ map[string]any, list sources) { list[LMHeadName] = embedding(list) })
	if c, got, notes := load(t, dir, torch.HeadLM); !c.TieEmbeddings || len(notes) != 0 || len(got) != len(want) {
		t.Errorf("equal copy: tied %v, notes %v, %d tensors", c.TieEmbeddings, notes, len(got))
	}
	dir = variant(t, tied, func(_ map[string]any, list sources) { rename(list, EmbeddingName, LMHeadName) })
	if c, got, _ := load(t, dir, torch.HeadLM); !c.TieEmbeddings || !bytes.Equal(got[EmbeddingName],
		want[EmbeddingName]) {
		t.Error("only lm_head.weight: the embedding is not filled from it")
	}
	dir = variant(t, tied, func(_ map[string]any, list sources) {
		list[LMHeadName] = embedding(list)
		list[LMHeadName].Fill = func(b []byte) error { clear(b); return nil } // b comes with bytes of earlier tensors
	})
	if c, got, notes := load(t, dir, torch.HeadLM); c.TieEmbeddings || len(notes) != 1 || bytes.Equal(got[LMHeadName],
		got[EmbeddingName]) {
		t.Errorf("different copy: tied %v, notes %v", c.TieEmbeddings, notes)
	}
}

func TestValueHeads(t *testing.T) {
	if c, got, notes := load(t, "../testdata/critic", torch.HeadValue); c.Head != torch.HeadValue || len(notes) != 0 ||
		len(got[ScoreBiasName]) != 4 {
		t.Errorf("critic: value %v, notes %v, %d bytes of bias", c.Head, notes, len(got[ScoreBiasName]))
	}
	if _, got, notes := load(t, "../testdata/llama", torch.HeadValue); got[ScoreName] != nil || len(notes) != 1 {
		t.Errorf("language model as critic: notes %v", notes)
	}
	lm := torch.HeadLM
	if _, err := Open("../testdata/critic", &lm); err == nil || !strings.Contains(err.Error(),
		"missing  lm_head.weight") ||
		!strings.Contains(err.Error(), "extra    score.weight") {
		t.Errorf("critic as language model: %v", err)
	}
	bare := variant(t, "critic", func(_ map[string]any, list sources) {
		for name := range list {
			if strings.HasPrefix(name, "model.") {
				defer rename(list, name, strings.TrimPrefix(name, "model."))
			}
		}
		delete(list, ScoreName)
		delete(list, ScoreBiasName)
	})
	if _, got, _ := load(t, bare, torch.HeadValue); len(got[EmbeddingName]) == 0 {
		t.Error("a bare backbone does not load")
	}
}

func TestLyingIndexes(t *testing.T) {
	index := func(weightMap string) string {
		dir := t.TempDir()
		for _, name := range []string{"config.json", "model-00001-of-00002.safetensors",
			"model-00002-of-00002.safetensors"} {
			data, err := os.ReadFile("../testdata/llama-sharded/" + name)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), []byte(weightMap),
			0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for text, want := range map[string]string{
		`{"weight_map":{"lm_head.weight":"../model.safetensors"}}`: "expected the name of a .safetensors " +
			"file",
		`{"weight_map":{"lm_head.weight":"/etc/x.safetensors"}}`: "expected the name of a .safetensors " +
			"file",
		`{"weight_map":{"lm_head.weight":"config.json"}}`: "expected the name of a .safetensors " +
			"file",
		`{"weight_map":{"lm_head.weight":"model-00003-of-00002.safetensors"}}`: "no such file",
		`{"weight_map":{}}`: "missing or empty",
		`[]`:                "not an index",
	} {
		if _, err := OpenWeights(index(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v; want one with %q", text, err, want)
		}
	}
}

func TestFindingWeights(t *testing.T) {
	for files, want := range map[string]string{
		"": "has no weights", "training_args.bin optimizer.pt": "has no weights",
		"adapter_model.safetensors": "adapter",
		"a.pt b.bin":                "several files could be the weights",
		"x.pt training_args.bin":    "x.pt: not a zip archive",
		"model.safetensors":         "model.safetensors: not a safetensors file",
		"pytorch_model.bin":         "pytorch_model.bin: not a zip",
	} {
		dir := t.TempDir()
		for _, name := range strings.Fields(files) {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := OpenWeights(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v; want one with %q", files, err, want)
		}
	}
}

func TestSaveInShards(t *testing.T) {
	c, want, _ := load(t, "../testdata/qwen3", torch.HeadLM)
	for _, size := range []int64{ShardSize, 4000} {
		dir := t.TempDir()
		var list []weights.Source
		for _, p := range c.Parameters(torch.HeadLM) {
			list = append(list, weights.Source{Name: p.Name, DType: weights.F32, Shape: p.Shape,
				Fill: func(dst []byte) error { copy(dst, want[p.Name]); return nil }})
		}
		if err := Save(dir, c, list, size); err != nil {
			t.Fatal(err)
		}
		again, got, _ := load(t, dir, torch.HeadLM)
		if !reflect.DeepEqual(again, c) || len(got) != len(want) {
			t.Errorf("shard size %d: %d tensors of %d, configuration %+v", size, len(got), len(want), again)
		}
		for name := range want {
			if !bytes.Equal(got[name], want[name]) {
				t.Errorf("shard size %d: %s differs", size, name)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); (err == nil) != (size == ShardSize) {
			t.Errorf("shard size %d: model.safetensors: %v", size, err)
		}
	}
}

func TestCanonicalNames(t *testing.T) {
	for name, want := range map[string]string{
		"model.norm.weight": "model.norm.weight", "lm_head.weight": "lm_head.weight", "steps": "steps",
		"layers.0.mlp.up_proj.weight":                       "model.layers.0.mlp.up_proj.weight",
		"module._orig_mod.model.layers.1.mlp.up_proj.bias":  "model.layers.1.mlp.up_proj.bias",
		"model.model.embed_tokens.weight":                   "model.embed_tokens.weight",
		"model.lm_head.weight":                              "lm_head.weight",
		"policy.score.bias":                                 "score.bias",
		"model.rotary_emb.inv_freq":                         "",
		"module.layers.0.self_attn.rotary_emb.cos_cached":   "",
		"model.layers.0.self_attn.rotary_emb.something.new": "model.layers.0.self_attn.rotary_emb.something.new",
	} {
		if got := canonicalName(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
