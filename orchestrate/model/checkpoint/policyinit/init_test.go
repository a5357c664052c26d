package policyinit

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/model/checkpoint"
	"gyre/torch"
)

func small(change func(*Options)) Options {
	o := Defaults
	o.Hidden, o.Layers, o.Heads, o.KVHeads, o.Intermediate, o.Vocab = 16, 2, 4, 2, 24, 280
	o.Corpus = []string{"the cat sat on the mat, the cat sat on the hat", "Up || Left || Up || Left"}
	change(&o)
	return o
}

func TestEveryFamilyLoads(t *testing.T) {
	for _, family := range []string{"llama", "qwen2", "qwen3"} {
		for _, tie := range []bool{true, false} {
			dir := t.TempDir()
			c, err := Create(dir, small(func(o *Options) { o.Family, o.Tie = family, tie }))
			if err != nil {
				t.Fatal(err)
			}
			m, err := checkpoint.LoadModel(dir, torch.HeadLM, torch.Placement{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			logits, err := m.Logits([]int32{3, 4, 5})
			if err != nil || m.Config.TieEmbeddings != tie || int64(len(logits)) != 3*c.VocabSize {
				t.Errorf("%s, tied %v: %d logits, %v", family, tie, len(logits), err)
			}
			for _, x := range logits { // a fresh policy is close to uniform, and not all zero
				if math.IsNaN(float64(x)) || math.Abs(float64(x)) > 2 || x == 0 {
					t.Fatalf("%s: logit %v", family, x)
				}
			}
		}
	}
}

func TestOptionsDecideEverything(t *testing.T) {
	files := func(o Options) map[string][]byte {
		dir := t.TempDir()
		if _, err := Create(dir, o); err != nil {
			t.Fatal(err)
		}
		out := map[string][]byte{}
		for _, name := range []string{"model.safetensors", "tokenizer.json", "config.json"} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			out[name] = data
		}
		return out
	}
	first := files(small(func(*Options) {}))
	again := files(small(func(*Options) {}))
	other := files(small(func(o *Options) { o.Seed = 2 }))
	for name := range first {
		if !bytes.Equal(first[name], again[name]) {
			t.Errorf("%s differs between equal options", name)
		}
		if same := bytes.Equal(first[name], other[name]); same != (name != "model.safetensors") {
			t.Errorf("%s with another seed: equal %v", name, same)
		}
	}
}

func TestWrongOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`"gpt2"`:                          func(o *Options) { o.Family = "gpt2" },
		"multiple of the heads":           func(o *Options) { o.Heads = 3 },
		"with hidden size 16 and 0 heads": func(o *Options) { o.Heads = 0 },
		"num_key_value_heads":             func(o *Options) { o.KVHeads = 3 },
		"num_hidden_layers":               func(o *Options) { o.Layers = 0 },
		"intermediate_size":               func(o *Options) { o.Intermediate = -1 },
		"standard deviation":              func(o *Options) { o.Std = math.NaN() },
		"head_dim":                        func(o *Options) { o.Hidden = 12 },
		"vocabulary size":                 func(o *Options) { o.Vocab = 10 },
	} {
		if _, err := Create(t.TempDir(), small(change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one with %q", err, want)
		}
	}
}
