package hf

import (
	"cmp"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"gyre/orchestrate/model/chat/bpe"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

func parse(t *testing.T, text string) Config {
	t.Helper()
	c, err := ParseConfig([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c
}

func TestBothSpellingsAndEncodeAgree(t *testing.T) {
	new, err := ReadConfig("../testdata/llama")
	if err != nil {
		t.Fatal(err)
	}
	old, err := ReadConfig("../testdata/llama-sharded")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(new, old) {
		t.Errorf("spellings differ:\n%+v\n%+v", new, old)
	}
	want := ropeSays{"llama3", 500000, 8, 1, 4, 32}
	if ropeOf(new) != want {
		t.Errorf("rope %+v, want %+v", ropeOf(new), want)
	}
	for _, name := range []string{"llama", "qwen2", "qwen3", "critic"} {
		c, err := ReadConfig("../testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if again := parse(t, string(text)); !reflect.DeepEqual(c, again) {
			t.Errorf("%s: written and read again:\n%+v\n%+v", name, c, again)
		}
	}
}

func TestDefaultsAreTransformers(t *testing.T) {
	for text, want := range map[string]Config{
		`{"model_type":"llama"}`: {ModelConfig: torch.ModelConfig{Family: torch.Llama, VocabSize: 32000,
			HiddenSize: 4096, IntermediateSize: 11008, NumLayers: 32, NumHeads: 32, NumKVHeads: 32,
			HeadDim: 128, MaxPositions: 2048, RMSNormEps: 1e-6, RopeTheta: 10000}, BOS: bpe.IDs{1}, EOS: bpe.IDs{2}},
		`{"model_type":"qwen2"}`: {ModelConfig: torch.ModelConfig{Family: torch.Qwen2, VocabSize: 151936,
			HiddenSize: 4096, IntermediateSize: 22016, NumLayers: 32, NumHeads: 32, NumKVHeads: 32,
			HeadDim: 128, MaxPositions: 32768, RMSNormEps: 1e-6, RopeTheta: 10000, QKVBias: true}},
		`{"model_type":"qwen3","hidden_size":64,"attention_bias":true,"dtype":"bfloat16"}`: {ModelConfig: torch.ModelConfig{Family: torch.Qwen3, VocabSize: 151936, HiddenSize: 64, IntermediateSize: 22016,
			NumLayers: 32, NumHeads: 32, NumKVHeads: 32, HeadDim: 128, MaxPositions: 32768, RMSNormEps: 1e-6,
			RopeTheta: 10000, QKVBias: true, OutBias: true, QKNorm: true}, DType: weights.BF16},
	} {
		if got := parse(t, text); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", text, got, want)
		}
	}
	if c := parse(t, `{"architectures":["Qwen2ForCausalLM"],"num_attention_heads":64,"num_key_value_heads":null}`); c.Family != torch.Qwen2 || c.NumKVHeads != 64 {
		t.Errorf("null num_key_value_heads: %+v", c)
	}
}

// ropeSays is what a configuration says of the rotary embedding.
type ropeSays struct {
	kind                     string
	theta, factor, low, high decimal
	original                 int64
}

func ropeOf(c Config) ropeSays {
	r := cmp.Or(c.rope, &rope{Type: "default"})
	return ropeSays{r.Type, decimal(c.RopeTheta), r.Factor, r.LowFreqFactor, r.HighFreqFactor, r.OriginalMaxPositions}
}

func TestRopeSpellings(t *testing.T) {
	plain, linear := ropeSays{kind: "default", theta: 5000}, ropeSays{kind: "linear", theta: 5000, factor: 2}
	for text, want := range map[string]ropeSays{
		`"rope_theta":5000,"rope_scaling":{"type":"linear","factor":2}`:                                            linear,
		`"rope_theta":5000,"rope_scaling":{"rope_type":"linear","factor":2.0}`:                                     linear,
		`"rope_parameters":{"rope_type":"linear","factor":2,"rope_theta":5000}`:                                    linear,
		`"rope_theta":1,"rope_parameters":{"rope_type":"linear","factor":2,"rope_theta":5000}`:                     linear,
		`"rope_theta":5000,"rope_parameters":{"rope_type":"linear","factor":2}`:                                    linear,
		`"rope_parameters":{"full_attention":{"rope_type":"linear","factor":2,"rope_theta":5000}}`:                 linear,
		`"rope_theta":5000,"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_type":"nonsense"}`: linear,
		`"rope_theta":5000,"rope_scaling":null`:                                                                    plain,
		`"rope_theta":5000,"rope_scaling":{}`:                                                                      plain,
		`"rope_parameters":{"rope_theta":5000.0,"rope_type":"default"}`:                                            plain,
		`"max_position_embeddings":77,"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4}`: {
			"llama3", 10000, 8, 1, 4, 77},
	} {
		if got := ropeOf(parse(t, `{"model_type":"llama",`+text+`}`)); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

// What C++ makes of theta and the divisors: the frequencies that transformers computes, rounded as it rounds them.
func TestScaledFrequencies(t *testing.T) {
	base := `{"model_type":"llama","head_dim":128,"rope_theta":500000,"rope_scaling":`
	plain := func(i int) float64 {
		return float64(float32(1 / float64(float32(math.Pow(500000, float64(i)/64)))))
	}
	llama3 := func(factor float64) func(i int) float64 {
		return func(i int) float64 {
			f := plain(i)
			switch wavelength := 2 * math.Pi / f; {
			case wavelength > 8192/1.0:
				return f / factor
			case wavelength < 8192/4.0:
				return f
			default:
				smooth := (8192/wavelength - 1) / (4 - 1)
				return (1-smooth)*f/factor + smooth*f
			}
		}
	}
	for scaling, want := range map[string]func(i int) float64{
		`null`:                                plain,
		`{"rope_type":"linear","factor":2.5}`: func(i int) float64 { return plain(i) / 2.5 },
		`{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,` +
			`"original_max_position_embeddings":8192}`: llama3(8),
		`{"rope_type":"llama3","factor":32,"low_freq_factor":1,"high_freq_factor":4,` +
			`"original_max_position_embeddings":8192}`: llama3(32),
	} {
		c := parse(t, base+scaling+"}")
		for i := range 64 {
			if got := float32(plain(i) / cmp.Or(c.Shape.Rope.Divisors[i], 1)); got != float32(want(i)) {
				t.Errorf("%s: frequency %d is %v, want %v", scaling, i, got, float32(want(i)))
			}
		}
	}
}

// Of an odd number of components one more rotates, of none no layer does.
func TestPartialRotations(t *testing.T) {
	for text, want := range map[string]int32{`"head_dim":12,"partial_rotary_factor":0.5`: 6, `"head_dim":14`: 8,
		`"head_dim":2,"partial_rotary_factor":0.4`: 0} {
		c := parse(t, `{"model_type":"glm","num_hidden_layers":2,`+text+`}`)
		if none := c.Shape.Layers[1] == torch.NoPELayer; c.Shape.RotaryDims != want || none != (want == 0) {
			t.Errorf("%s: %d components rotate, none %v; want %d", text, c.Shape.RotaryDims, none, want)
		}
	}
}

func TestRefusedConfigs(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                       "not a configuration",
		`{}`:                      `model_type ""`,
		`{"model_type":"falcon"}`: `model_type "falcon"`,
		`{"model_type":"llama","hidden_size":"a"}`:                                                              "hidden_size: expected int64, got a string",
		`{"model_type":"llama","hidden_size":1.5}`:                                                              "hidden_size: expected int64, got a number 1.5",
		`{"model_type":"llama","hidden_size":100}`:                                                              "hidden_size: 100 is not a multiple of num_attention_heads 32",
		`{"model_type":"llama","hidden_size":-64}`:                                                              "hidden_size: must be between 1",
		`{"model_type":"llama","vocab_size":1000000000000000}`:                                                  "vocab_size: must be between 1",
		`{"model_type":"llama","head_dim":7}`:                                                                   "head_dim: 7 is odd",
		`{"model_type":"glm","head_dim":11,"partial_rotary_factor":0.5}`:                                        "head_dim: 11 is odd",
		`{"model_type":"llama","num_key_value_heads":5}`:                                                        "not a multiple of num_key_value_heads 5",
		`{"model_type":"llama","num_attention_heads":0}`:                                                        "num_attention_heads: must be between 1",
		`{"model_type":"llama","hidden_act":"gelu"}`:                                                            `hidden_act: "gelu"`,
		`{"model_type":"llama","rms_norm_eps":-1}`:                                                              "rms_norm_eps",
		`{"model_type":"llama","rope_theta":0}`:                                                                 "rope_theta",
		`{"model_type":"llama","quantization_config":{"bits":4}}`:                                               "quantization_config",
		`{"model_type":"llama","torch_dtype":"int8"}`:                                                           `torch_dtype: unknown weight type "int8"`,
		`{"model_type":"llama","rope_scaling":{"rope_type":"su2","factor":2}}`:                                  `rope_scaling.rope_type: "su2"`,
		`{"model_type":"llama","use_bidirectional_attention":true}`:                                             "use_bidirectional_attention: is not known of a llama model",
		`{"model_type":"llama","rope_scaling":{"rope_type":"yarn","factor":2,"mrope_section":[8,4]}}`:           "rope_scaling.mrope_section",
		`{"model_type":"mistral","sliding_window":0}`:                                                           "sliding_window: must be positive",
		`{"model_type":"gemma2","layer_types":["full_attention"]}`:                                              "layer_types: 1 entries for 26 layers",
		`{"model_type":"llama","rope_parameters":{"rope_type":"longrope","factor":2}}`:                          "rope_parameters.short_factor: expected 64",
		`{"model_type":"llama","rope_parameters":{"partial_rotary_factor":0.5}}`:                                "rope_parameters.partial_rotary_factor",
		`{"model_type":"llama","rope_scaling":{"rope_type":"linear"}}`:                                          "rope_scaling.factor: must be a positive number",
		`{"model_type":"smollm3","num_hidden_layers":1,"sliding_window":8,"layer_types":["sliding_attention"]}`: "layer_types: sliding_attention, and no sliding_window",
		`{"model_type":"qwen2","rope_parameters":{"sliding_attention":{"rope_theta":5.0}}}`:                     "rope_parameters.sliding_attention: one",
		`{"model_type":"gemma3_text","rope_parameters":{"rope_type":"linear","factor":8}}`:                      "rope_parameters: expected full_attention and",
		`{"model_type":"gemma3_text","rope_scaling":{"factor":8},"rope_parameters":{"full_attention":{}}}`:      "rope_scaling: expected the scaling of",
		`{"model_type":"olmo3","rope_local_base_freq":10.0}`:                                                    "rope_local_base_freq: is not known",
		`{"model_type":"glm4","head_dim":10,"rope_scaling":{"rope_type":"yarn","factor":2.0}}`:                  `partial_rotary_factor: makes 5 components rotate`,
		`{"model_type":"llama","rope_scaling":7}`:                                                               "rope_scaling: expected",
		`{"model_type":"qwen3","use_sliding_window":true,"layer_types":["full_attention","sliding_attention"]}`: "layer_types: 2 entries",
	} {
		if _, err := ParseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v; want one with %q", text, err, want)
		}
	}
	// Windows that hide nothing are no obstacle, and all problems are reported together.
	for _, text := range []string{
		`{"model_type":"qwen2","use_sliding_window":true,"max_window_layers":32}`,
		`{"model_type":"qwen2","use_sliding_window":true,"sliding_window":32768}`,
		`{"model_type":"qwen2","use_sliding_window":true,"sliding_window":null}`,
		`{"model_type":"qwen2","use_sliding_window":false,"sliding_window":4096,"layer_types":["full_attention"]}`,
	} {
		parse(t, text)
	}
	_, err := ParseConfig([]byte(`{"model_type":"llama","hidden_act":"relu","rope_scaling":{"type":"yarn2"}}`))
	if err == nil || !strings.Contains(err.Error(), "hidden_act") || !strings.Contains(err.Error(), "yarn") {
		t.Errorf("two problems, error %v", err)
	}
	if _, err := ReadConfig(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no config.json") {
		t.Errorf("empty directory: %v", err)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(`{"model_type":"llama","rope_scaling":{"type":"linear","factor":2}}`)
	f.Add(`{"model_type":"qwen3","rope_parameters":{"full_attention":{"rope_theta":1e6}},"eos_token_id":[1,2]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ParseConfig([]byte(text)); err == nil {
			if n := c.Count(torch.HeadLM); n < 1 || n > weights.MaxElements {
				t.Fatalf("%d parameters", n)
			}
		}
	})
}

// A pipe or a device in place of config.json is refused, and keeps nobody waiting.
func TestConfigIsARegularFile(t *testing.T) {
	pipe, device := t.TempDir(), t.TempDir()
	if err := errors.Join(syscall.Mkfifo(filepath.Join(pipe, "config.json"), 0o600),
		os.Symlink("/dev/zero", filepath.Join(device, "config.json"))); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{pipe, device} {
		if _, err := ReadConfig(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("error %v", err)
		}
	}
}
