package peft

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
)

// fixtures are models of transformers with PEFT's adapters in lora/: scripts/fixtures_pytorch.py.
const fixtures = "../../../loop/trainer/testdata/pytorch"

// baseDir is where the base model of an adapter lies.
func baseDir(kind string) string {
	if kind == "heads" {
		kind = "qwen2"
	}
	return filepath.Join(fixtures, kind)
}

func base(t *testing.T, kind string) hf.Config {
	t.Helper()
	c, err := hf.ReadConfig(baseDir(kind))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func open(t *testing.T, dir, kind string) *Adapter {
	t.Helper()
	a, err := Open(dir, base(t, kind))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func TestUniformAdapters(t *testing.T) {
	for kind, want := range map[string]struct {
		modules int
		rank    int64
		scale   float64
		targets string
	}{
		"llama": {14, 4, 2, "[q_proj k_proj v_proj o_proj gate_proj up_proj down_proj]"},
		"qwen2": {8, 3, 1.1547005383792517, "[q_proj k_proj v_proj o_proj]"}, // 2/sqrt(3)
		"heads": {4, 3, 2, "[embed_tokens v_proj lm_head]"},
		"qwen3": {8, 2, 1.5, "[q_proj v_proj up_proj down_proj]"},
	} {
		a := open(t, filepath.Join(fixtures, "lora", kind), kind)
		rank, scale, targets, err := a.Uniform()
		if err != nil || len(a.Modules) != want.modules || rank != want.rank || scale != want.scale ||
			fmt.Sprint(targets) != want.targets || len(a.Tensors) != 2*want.modules {
			t.Errorf("%s: %d modules, rank %d, scale %v, targets %v (%v); want %+v", kind, len(a.Modules), rank, scale,
				targets, err, want)
		}
	}
	uneven := open(t, filepath.Join(fixtures, "lora", "uneven"), "llama")
	rank, scale, targets, err := uneven.Uniform()
	if err != nil || rank != 4 || scale != 1.5 || fmt.Sprint(targets) != "[embed_tokens q_proj gate_proj]" {
		t.Errorf("ranks 2 and 4 become %d, scale %v, of %v (%v)", rank, scale, targets, err)
	}
}

// edited is a copy of an adapter's directory with keys of its configuration set.
func edited(t *testing.T, kind string, keys map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(fixtures, "lora", kind))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, ConfigName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for key, value := range keys {
		all[key] = value
	}
	if data, err = json.Marshal(all); err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		key   string
		value any
		want  string // in the error; "" = opens
	}{
		{"peft_version", "9.9", ""},
		{"some_new_option", nil, ""},
		{"some_new_option", false, ""},
		{"some_new_option", map[string]any{}, ""},
		{"init_lora_weights", "gaussian", ""},
		{"layers_to_transform", []int{0, 1}, ""},
		{"lora_dropout", 0.1, ""},
		{"modules_to_save", []string{"classifier", "score"}, ""},
		{"use_dora", true, "use_dora: true is not supported"},
		{"alpha_pattern", map[string]int{"q_proj": 3}, ""},
		{"alpha_pattern", map[string]string{"q_proj": "3"}, "cannot unmarshal string"},
		{"alpha_pattern", map[string]int{"q_(": 3}, "missing closing )"},
		{"rank_pattern", map[string]int{"q_proj": 3}, "expected shape [3 24], got [4 24]"},
		{"rank_pattern", map[string]int{"q_proj": 0}, "rank_pattern: expected ranks from 1 to 65536, got 0"},
		{"bias", "all", ""}, // of a model without any
		{"bias", "some", "bias: expected none, all or lora_only"},
		{"target_modules", []string{"q_proj", "lm_head"}, "lm_head has no adapter, but target_modules says that it has one"},
		{"target_modules", "model.*", "model.embed_tokens has no adapter"},
		{"lora_bias", true, "lora_bias: "},
		{"fan_in_fan_out", true, "fan_in_fan_out: "},
		{"modules_to_save", []string{"lm_head"}, `modules_to_save: "lm_head": no tensor`},
		{"trainable_token_indices", []int{5}, "trainable_token_indices: "},
		{"target_parameters", []string{"x"}, "target_parameters: "},
		{"layer_replication", [][]int{{0, 2}}, "layer_replication: "},
		{"init_lora_weights", "pissa", "init_lora_weights: "},
		{"peft_type", "IA3", "peft_type: "},
		{"r", 0, "r: expected a rank"},
		{"r", 1e9, "r: expected a rank"},
		{"r", "many", "file.r of type int64"},
		{"r", 5, "expected shape [5 24], got [4 24]"},
		{"lora_alpha", -1, "lora_alpha: "},
		{"use_rslroa", true, "use_rslroa: true is not supported (did you mean use_rslora?)"},
	} {
		dir := edited(t, "llama", map[string]any{c.key: c.value})
		a, err := Open(dir, base(t, "llama"))
		if err == nil {
			a.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), dir)) {
			t.Errorf("%s = %v: error %v; want %q", c.key, c.value, err, c.want)
		}
	}
}

// Tensors that do not belong together or to the base model are all named.
func TestHostileTensors(t *testing.T) {
	source := func(name string, shape ...int64) weights.Source {
		return weights.Source{Name: name, DType: weights.F32, Shape: shape, Fill: func([]byte) error { return nil }}
	}
	q := "model.layers.0.self_attn.q_proj"
	good := []weights.Source{source(q+".lora_A.weight", 2, 24), source(q+".lora_B.weight", 24, 2)}
	for name, c := range map[string]struct {
		list []weights.Source
		want string
	}{
		"nothing":       {nil, "no adapter"},
		"half":          {good[:1], "lora_B.weight is missing"},
		"shape":         {[]weights.Source{good[0], source(q+".lora_B.weight", 24, 3)}, "expected shape [24 2], got [24 3]"},
		"vector":        {[]weights.Source{source(q+".lora_A.weight", 48), good[1]}, "expected shape [2 24], got [48]"},
		"empty":         {[]weights.Source{source(q+".lora_A.weight", 0, 24), good[1]}, "expected shape [2 24], got [0 24]"},
		"foreign layer": {append(slices.Clone(good), source("model.layers.7.mlp.up_proj.lora_A.weight", 2, 24)), "no module"},
		"DoRA":          {append(slices.Clone(good), source(q+".lora_magnitude_vector", 24)), "lora_magnitude_vector"},
		"norm":          {[]weights.Source{source("model.norm.lora_A.weight", 2, 24)}, "model.norm.lora_A"},
		"value head":    {append(slices.Clone(good), source(hf.ScoreName, 2, 24)), "score.weight"},
		"type": {[]weights.Source{good[0], {Name: q + ".lora_B.weight", DType: weights.I32, Shape: []int64{24, 2},
			Fill: good[0].Fill}}, "type int32"},
	} {
		dir := t.TempDir()
		if err := Save(dir, Config{Rank: 2, Alpha: 4}, c.list); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, base(t, "llama")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v; want one with %q", name, err, c.want)
		}
	}
	if _, err := Open(t.TempDir(), base(t, "llama")); err == nil || !strings.Contains(err.Error(), "no adapter") {
		t.Errorf("an empty directory: %v", err)
	}
}

// Of the modules that a configuration names none may lack its tensors.
func TestLayersThatLackTensors(t *testing.T) {
	var list []weights.Source
	for layer := range 2 {
		for _, half := range []struct {
			name  string
			shape []int64
		}{{"A", []int64{2, 24}}, {"B", []int64{24, 2}}} {
			name := fmt.Sprintf("model.layers.%d.self_attn.q_proj.lora_%s.weight", layer, half.name)
			list = append(list, weights.Source{Name: name, DType: weights.F32, Shape: half.shape,
				Fill: func([]byte) error { return nil }})
		}
	}
	dir := t.TempDir()
	if err := Save(dir, Config{Rank: 2, Alpha: 4, Targets: []string{"q_proj"}}, list[:2]); err != nil {
		t.Fatal(err)
	}
	for keys, opens := range map[string]bool{
		`{}`: false, `{"layers_to_transform": 0}`: true, `{"layers_to_transform": [0]}`: true,
		`{"layers_to_transform": [1]}`: false, `{"layers_to_transform": [0], "layers_pattern": "layers"}`: true,
		`{"exclude_modules": ["layers.1.self_attn.q_proj"]}`: true, `{"exclude_modules": ".*layers\\.1\\..*"}`: true,
		`{"exclude_modules": "layers"}`: false, `{"target_modules": ["layers.0.self_attn.q_proj"]}`: true,
		`{"target_modules": ".*q_proj"}`: false, `{"target_modules": ".*\\.0\\..*q_proj"}`: true,
		`{"target_modules": "all-linear"}`: false,
		`{"target_modules": "all-linear", "exclude_modules": ".*(layers\\.1\\..*|[kvo]_proj|gate_proj|up_proj|down_proj)"}`: true,
	} {
		path := filepath.Join(dir, ConfigName)
		all := map[string]any{}
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, &all)
		}
		for _, key := range []string{"layers_to_transform", "layers_pattern", "exclude_modules"} {
			delete(all, key)
		}
		all["target_modules"] = []string{"q_proj"}
		if err == nil {
			err = json.Unmarshal([]byte(keys), &all)
		}
		if err == nil {
			data, err = json.Marshal(all)
		}
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		a, err := Open(dir, base(t, "llama"))
		if err == nil {
			a.Close()
		}
		if opens != (err == nil) || !opens && !strings.Contains(err.Error(), "model.layers.1.self_attn.q_proj has no adapter") {
			t.Errorf("%s: %v", keys, err)
		}
	}
}

// resaved writes an adapter that was read, as a run would write its own.
func resaved(t *testing.T, kind string, more ...weights.Source) string {
	t.Helper()
	a := open(t, filepath.Join(fixtures, "lora", kind), kind)
	c := a.Config
	var err error
	if _, _, c.Targets, err = a.Uniform(); err != nil {
		t.Fatal(err)
	}
	list := more
	for _, m := range a.Modules {
		for _, name := range m.names() {
			list = append(list, weights.Source{Name: name, DType: weights.F32, Shape: a.Tensors[name].Shape,
				Fill: func(dst []byte) error {
					_, _, err := a.Tensors[name].Dense(weights.F32, dst, nil)
					return err
				}})
		}
	}
	dir := t.TempDir()
	if err := Save(dir, c, list); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSavedAdaptersAreRead(t *testing.T) {
	score := weights.Source{Name: hf.ScoreName, DType: weights.F32, Shape: []int64{1, 24},
		Fill: func([]byte) error { return nil }}
	for _, kind := range []string{"llama", "heads", "qwen3"} {
		before, after := open(t, filepath.Join(fixtures, "lora", kind), kind), open(t, resaved(t, kind, score), kind)
		if after.Tensors[hf.ScoreName] == nil {
			t.Errorf("%s: the value head is lost", kind)
		}
		for i, m := range before.Modules {
			if after.Modules[i] != m {
				t.Errorf("%s: %+v was %+v", kind, after.Modules[i], m)
			}
		}
		for name, old := range before.Tensors {
			x, _, err := old.Dense(weights.F32, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if y, _, err := after.Tensors[name].Dense(weights.F32, nil, nil); err != nil || !slices.Equal(x, y) {
				t.Errorf("%s: %s differs (%v)", kind, name, err)
			}
		}
	}
}

// opener loads an adapter with PEFT and prints log-probs; what PEFT would only warn of ends it.
const opener = `
import json, sys, warnings
warnings.simplefilter("error", UserWarning)
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
base, adapter, expected = sys.argv[1:]
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), adapter)
worst = 0
want = json.load(open(expected))
for ids, row in zip(want["ids"], want["logprobs"]):
    lp = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    chosen = lp[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
    worst = max(worst, (chosen - torch.tensor(row[1:])).abs().max().item())
print(worst)
assert worst < 1e-5
`

func TestPEFTOpensOurs(t *testing.T) {
	if exec.Command("python3", "-c", "import peft, transformers").Run() != nil {
		t.Skip("PEFT is not installed")
	}
	for _, kind := range []string{"llama", "heads", "qwen3"} {
		out, err := exec.Command("python3", "-c", opener, baseDir(kind), resaved(t, kind),
			filepath.Join(fixtures, "lora", kind+".json")).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", kind, err, out)
		}
	}
}
