package config

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestTargets(t *testing.T) {
	all := []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
	for override, want := range map[string][]string{
		"lora.rank=4":                               all,
		"lora.targets=attention":                    {"q_proj", "k_proj", "v_proj", "o_proj"},
		"lora.targets=\"mlp\"":                      {"gate_proj", "up_proj", "down_proj"},
		`lora.targets=["v_proj","q_proj","v_proj"]`: {"q_proj", "v_proj"},
		`lora.targets=["down_proj", "attention"]`:   {"q_proj", "k_proj", "v_proj", "o_proj", "down_proj"},
		`lora.targets=["head", "all", "embedding"]`: append(slices.Clone(all), "embed_tokens", "lm_head"),
		`lora.targets=["lm_head"]`:                  {"lm_head"},
	} {
		if got := parse(t, smallest, "lora.rank=4", override).LoRA.Targets.Modules(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", override, got, want)
		}
	}
}

func TestScaleAndRates(t *testing.T) {
	plain := parse(t, smallest, "lora.rank=16", "lora.alpha=8", "lora.lr_scale=10").LoRA
	if plain.Scale() != 0.5 || plain.LearningRate(0.125) != 1.25 {
		t.Errorf("scale %v, rate %v", plain.Scale(), plain.LearningRate(0.125))
	}
	root := parse(t, smallest, "lora.rank=16", "lora.alpha=8", "lora.rslora=true").LoRA
	if root.Scale() != 8/math.Sqrt(16) {
		t.Errorf("rsLoRA's scale is %v", root.Scale())
	}
	off := parse(t, smallest, "lora.rank=0", "lora.lr_scale=10").LoRA
	if off.LearningRate(1e-6) != 1e-6 {
		t.Errorf("without adapters the rate is %v", off.LearningRate(1e-6))
	}
}

func TestBaseType(t *testing.T) {
	if c := parse(t, smallest, "lora.rank=4", "model.base_dtype=int8"); c.Model.BaseDType != "int8" {
		t.Errorf("the base is %s", c.Model.BaseDType)
	}
	for override, want := range map[string]string{"lora.rank=0": "set lora.rank", "model.device=cuda": "CPU only",
		"model.base_dtype=int4": "expected one of auto, float32, bfloat16, int8"} {
		problems := failures(t, smallest, "lora.rank=4", "model.base_dtype=int8", override)
		if len(problems) != 1 || problems[0].Key != "model.base_dtype" || !strings.Contains(problems[0].Message, want) {
			t.Errorf("%s: %v, want model.base_dtype: …%s…", override, problems, want)
		}
	}
}
