package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// adapterKeys are [lora] of the cases that scripts/fixtures_pytorch.py trains with PEFT.
var adapterKeys = map[string]string{
	"llama": "rank = 4\nalpha = 8",
	"qwen2": "rank = 3\nalpha = 2\nrslora = true\ntargets = \"attention\"",
	"heads": "rank = 3\nalpha = 6\ntargets = [\"v_proj\", \"embedding\", \"head\"]",
	"qwen3": "rank = 2\nalpha = 3\ntargets = [\"q_proj\", \"v_proj\", \"up_proj\", \"down_proj\"]",
}

// adapterBeside is a copy of PEFT's adapter whose configuration says where its base lies.
func adapterBeside(t *testing.T, kind, model string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(fixtures, "lora", kind))); err != nil {
		t.Fatal(err)
	}
	path, all := filepath.Join(dir, "adapter_config.json"), map[string]any{}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	all["base_model_name_or_path"] = filepath.Join(fixtures, model)
	if err == nil {
		data, err = json.Marshal(all)
	}
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Log-probs, gradients of A and B, and ten replayed steps equal those of PEFT beside transformers.
func TestAdaptersEqualPEFT(t *testing.T) {
	for kind, keys := range adapterKeys {
		t.Run(kind, func(t *testing.T) {
			var want struct {
				expectation
				IDs      [][]int32
				Logprobs [][]float64
			}
			path := filepath.Join(fixtures, "lora", kind)
			data, err := os.ReadFile(path + ".json")
			if err == nil {
				err = json.Unmarshal(data, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			expected := readSafetensors(t, path+".safetensors")
			dir := adapterBeside(t, kind, want.Model)
			from, err := experiment.OpenModel(dir, torch.HeadLM, torch.Placement{})
			if err != nil {
				t.Fatal(err)
			}
			m, _, err := from.Load()
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			compareFirst(t, m, want.IDs, want.Logprobs, expected)

			run := t.TempDir()
			c, err := config.Parse("replay.toml", fmt.Appendf(nil, "%s\n[lora]\n%s\n", want.toml(run), keys), nil)
			if err != nil {
				t.Fatal(err)
			}
			c.Model.Path = dir // the adapter says where its base lies
			trainer, err := New(context.Background(), c, session.Options{
				Replay: filepath.Join(fixtures, "episodes.jsonl"), Console: metrics.NewConsole(io.Discard)})
			if err != nil {
				t.Fatal(err)
			}
			defer trainer.Close()
			if _, err := trainer.Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			compareMetrics(t, want.expectation, filepath.Join(run, "replay", "metrics.jsonl"))
			compareWeights(t, expected, "base_model.model.", trainer.Actor.Model)
		})
	}
}

// Adapters of several ranks and scales, of some layers, and beside biases or a tied head that are trained themselves score
// as PEFT's. What no adapter beside a base can express is refused there, and where it would be trained.
func TestUnevenAdaptersScoreLikePEFT(t *testing.T) {
	for kind, refused := range map[string]string{"uneven": "", "patterns": "", "biases": "k_proj.bias is trained itself",
		"saved": "lm_head.weight is trained itself"} {
		var want struct {
			Model    string
			IDs      [][]int32
			Logprobs [][]float64
		}
		data, err := os.ReadFile(filepath.Join(fixtures, "lora", kind+".json"))
		if err == nil {
			err = json.Unmarshal(data, &want)
		}
		if err != nil {
			t.Fatal(err)
		}
		dir := adapterBeside(t, kind, want.Model)
		from, err := experiment.OpenModel(dir, torch.HeadLM, torch.Placement{})
		if err != nil {
			t.Fatal(err)
		}
		m, _, err := from.Load()
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		found, err := m.Logprobs(torch.Pack(want.IDs, nil), 1)
		if err != nil {
			t.Fatal(err)
		}
		for i, logprob := range slices.Concat(want.Logprobs...) {
			if logprob != 0 && math.Abs(float64(found[i])-logprob) > 1e-5 {
				t.Errorf("%s: token %d: log-prob %.6f, PEFT has %.6f", kind, i, found[i], logprob)
			}
		}
		base, err := experiment.OpenModel(filepath.Join(fixtures, want.Model), torch.HeadLM, torch.Placement{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = base.WithAdapter(dir); refused == "" && err != nil || refused != "" && (err == nil ||
			!strings.Contains(err.Error(), refused+", not by an adapter beside it: make a model of it (gyre model merge)")) {
			t.Errorf("%s beside its base: %v", kind, err)
		}
		c, err := config.Parse("replay.toml", fmt.Appendf(nil, "[model]\npath = %q\n[[envs]]\ntag = \"bandit\"\n", dir), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = experiment.Open(c, experiment.Parts{Learn: true}); err == nil || refused != "" &&
			!strings.Contains(err.Error(), "trains more than A and B: make a model of it with gyre model merge") {
			t.Errorf("%s trained: %v", kind, err)
		}
	}
}

// compareFirst compares log-probs, and the gradient of their negative sum, before anything is trained.
func compareFirst(t *testing.T, m *torch.Model, ids [][]int32, logprobs [][]float64, expected map[string][]float32) {
	t.Helper()
	batch := torch.Pack(ids, nil)
	found, err := m.Logprobs(batch, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range slices.Concat(logprobs...) {
		if want != 0 && math.Abs(float64(found[i])-want) > 1e-4 { // the first of a sequence is not predicted
			t.Errorf("token %d: log-prob %.6f, PEFT has %.6f", i, found[i], want)
		}
	}
	g, err := torch.NewGradients(m)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	weights := slices.Repeat([]float32{1}, len(slices.Concat(ids...)))
	if _, err := m.PolicyBackward(batch, torch.PolicyInputs{Weights: weights}, torch.PolicyLoss{
		Task: torch.NewLoss("nll", nil), Temperature: 1}, torch.Terms(g, nil, nil)); err != nil {
		t.Fatal(err)
	}
	parameters, err := m.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	defer torch.CloseParameters(parameters)
	for i, p := range parameters {
		gradient, err := g.Tensor(i)
		if err != nil {
			t.Fatal(err)
		}
		got, err := gradient.Float32s()
		if err := gradient.Close(); err != nil {
			t.Error(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		compareValues(t, "gradient of "+p.Name, got, expected["grad.base_model.model."+p.Name])
	}
}
