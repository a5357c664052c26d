package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

const fixtures = "testdata/pytorch"

// expectation is what scripts/fixtures_pytorch.py wrote about one case.
type expectation struct {
	Case, Model string
	Config      struct {
		LR          float64 `json:"lr"`
		CriticLR    float64 `json:"critic_lr"`
		Temperature float64
		Gamma, Lam  float64
		Mode        string
		EntropyCoef float64 `json:"entropy_coef"`
		KLCoef      float64 `json:"kl_coef"`
		MiniBatch   int     `json:"mini_batch"`
	}
	Steps []map[string]json.RawMessage
}

func (e expectation) toml(run string) string {
	advantage := "grpo"
	if e.Case == "ppo" {
		advantage = "gae"
	}
	return fmt.Sprintf(`
[run]
name = "replay"
steps = %d
output = %q
[model]
path = "%s/%s"
dtype = "float32"
reference = "%s/reference"
[critic]
path = "%s/critic"
lr = %g
mini_batch = %d
[[envs]]
tag = "sokoban"
groups = 3
group_size = 4
[rollout]
temperature = %g
[algorithm]
advantage = %q
gamma = %g
lambda = %g
kl_coef = %g
entropy_coef = %g
[actor]
lr = %g
mini_batch = %d
micro_batch_tokens = 40
loss_aggregation = %q
[analysis]
enabled = false
`, len(e.Steps), run, fixtures, e.Model, fixtures, fixtures, e.Config.CriticLR, e.Config.MiniBatch, e.Config.Temperature, advantage,
		e.Config.Gamma, e.Config.Lam, e.Config.KLCoef, e.Config.EntropyCoef, e.Config.LR, e.Config.MiniBatch,
		e.Config.Mode)
}

// Ten replayed steps arrive at PyTorch's losses, gradient norms and weights.
func TestReplayedUpdatesEqualPyTorch(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(fixtures, "expected", "*.json"))
	if err != nil || len(files) < 6 {
		t.Fatalf("fixtures: %d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want expectation
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			run := t.TempDir()
			c, err := config.Parse("replay.toml", []byte(want.toml(run)), nil)
			if err != nil {
				t.Fatal(err)
			}
			episodes := "episodes.jsonl"
			if want.Case == "grpo_old" {
				episodes = "episodes_old.jsonl"
			}
			trainer, err := New(context.Background(), c, session.Options{Replay: filepath.Join(fixtures, episodes),
				Console: metrics.NewConsole(io.Discard)})
			if err != nil {
				t.Fatal(err)
			}
			defer trainer.Close()
			if _, err := trainer.Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			compareMetrics(t, want, filepath.Join(run, "replay", "metrics.jsonl"))
			expected := readSafetensors(t, strings.TrimSuffix(file, ".json")+".safetensors")
			compareWeights(t, expected, "", trainer.Actor.Model)
		})
	}
}

func compareMetrics(t *testing.T, want expectation, path string) {
	t.Helper()
	names := map[string]string{"pg": "actor/pg_loss", "entropy": "actor/entropy", "kl": "actor/kl_loss",
		"grad_norm": "actor/grad_norm",
		"vf_loss":   "critic/vf_loss", "critic_grad_norm": "critic/grad_norm"}
	step := 0
	for record, err := range metrics.Read(path) {
		if err != nil {
			t.Fatal(err)
		}
		for key, raw := range want.Steps[step] {
			name, ok := names[key]
			if !ok {
				continue
			}
			var values []float64
			if err := json.Unmarshal(raw, &values); err != nil {
				t.Fatal(err)
			}
			expected := 0.0
			for _, v := range values {
				expected += v / float64(len(values))
			}
			got, ok := record.Float(name)
			if !ok {
				t.Fatalf("step %d: %s is missing", record.Step, name)
			}
			// Losses are sums of terms of both signs: compare them with the size of the terms, not of their sum.
			if math.Abs(got-expected) > 1e-4*math.Max(math.Abs(expected), 0.1) {
				t.Errorf("step %d: %s = %.8g, PyTorch has %.8g", record.Step, name, got, expected)
			}
		}
		step++
	}
	if step != len(want.Steps) {
		t.Fatalf("%d metric lines, want %d", step, len(want.Steps))
	}
}

// compareWeights compares a model's parameters with those expected under their names and a prefix.
func compareWeights(t *testing.T, expected map[string][]float32, prefix string, model *torch.Model) {
	t.Helper()
	parameters, err := model.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	defer torch.CloseParameters(parameters)
	for _, p := range parameters {
		got, err := p.Tensor.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		compareValues(t, p.Name, got, expected[prefix+p.Name])
	}
}

func compareValues(t *testing.T, name string, got, want []float32) {
	t.Helper()
	if len(want) == 0 || len(want) != len(got) {
		t.Fatalf("%s: PyTorch has %d values, the model %d", name, len(want), len(got))
	}
	difference, size := 0.0, 0.0
	for i := range got {
		difference += math.Pow(float64(got[i])-float64(want[i]), 2)
		size += math.Pow(float64(want[i]), 2)
	}
	if relative := math.Sqrt(difference / size); relative > 1e-4 || math.IsNaN(relative) {
		t.Errorf("%s: relative difference %.2g from PyTorch's", name, relative)
	}
}

// readSafetensors reads an f32 file by hand, so that this test does not rest on the reader it indirectly tests.
func readSafetensors(t *testing.T, path string) map[string][]float32 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := uint64(0)
	for i := range 8 {
		n |= uint64(data[i]) << (8 * i)
	}
	var header map[string]struct {
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(data[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	out := map[string][]float32{}
	for name, h := range header {
		body := data[8+int(n)+h.Offsets[0] : 8+int(n)+h.Offsets[1]]
		values := make([]float32, len(body)/4)
		for i := range values {
			b := body[4*i:]
			values[i] = math.Float32frombits(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
		}
		out[name] = values
	}
	return out
}

// Log-probs and greedy continuations of every family agree with transformers.
func TestScoresEqualTransformers(t *testing.T) {
	for _, kind := range []string{"llama", "llama3", "qwen2", "qwen3"} {
		t.Run(kind, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(fixtures, kind, "expected.json"))
			if err != nil {
				t.Fatal(err)
			}
			var want struct {
				IDs, Prompts, Greedy [][]int32
				Logprobs             [][]*float64
			}
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			model, err := checkpoint.LoadModel(filepath.Join(fixtures, kind), torch.HeadLM, torch.Placement{})
			if err != nil {
				t.Fatal(err)
			}
			defer model.Close()
			logprobs, err := model.Logprobs(torch.Pack(want.IDs, nil), 1)
			if err != nil {
				t.Fatal(err)
			}
			offset := 0
			for s, row := range want.Logprobs {
				for i := 1; i < len(row); i++ {
					if got := float64(logprobs[offset+i]); math.Abs(got-*row[i]) > 2e-4 {
						t.Errorf("sequence %d, token %d: %.6f, transformers has %.6f", s, i, got, *row[i])
					}
				}
				offset += len(row)
			}
			for s, prompt := range want.Prompts {
				if got := greedy(t, model, prompt, len(want.Greedy[s])); fmt.Sprint(got) != fmt.Sprint(want.Greedy[s]) {
					t.Errorf("greedy continuation %d: %v, transformers has %v", s, got, want.Greedy[s])
				}
			}
		})
	}
}

func greedy(t *testing.T, model *torch.Model, prompt []int32, n int) []int32 {
	t.Helper()
	engine, err := torch.NewEngine(model, torch.EngineConfig{MaxSequences: 4, MaxLength: 64, MaxBatchTokens: 16,
		PrefixCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	err = engine.Submit(torch.Request{ID: 1, Prompt: prompt, Sampling: torch.Sampling{MaxTokens: n, TopP: 1,
		IgnoreEOS: true}})
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := engine.Step(); err != nil {
			t.Fatal(err)
		}
		done, err := engine.Poll()
		if err != nil {
			t.Fatal(err)
		}
		if len(done) == 1 {
			return done[0].Tokens
		}
	}
}
