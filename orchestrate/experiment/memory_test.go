package experiment

import (
	"testing"

	"gyre/orchestrate/config"
	"gyre/torch"
)

func TestParametersAreTheModels(t *testing.T) {
	plain := torch.ModelConfig{Family: torch.Llama, VocabSize: 50, HiddenSize: 12, IntermediateSize: 20, NumLayers: 2, NumHeads: 3, NumKVHeads: 1,
		HeadDim: 6, MaxPositions: 32, RMSNormEps: 1e-6, RopeTheta: 1e4}
	tied, biased, qwen3, value := plain, plain, plain, plain
	tied.TieEmbeddings = true
	biased.QKVBias, biased.OutBias, biased.MLPBias = true, true, true
	qwen3.Family, qwen3.QKNorm = torch.Qwen3, true
	value.Head = torch.HeadValue
	for _, c := range []torch.ModelConfig{plain, tied, biased, qwen3, value} {
		model, err := torch.NewModel(c)
		if err != nil {
			t.Fatal(err)
		}
		defer model.Close()
		parameters, err := model.Parameters()
		if err != nil {
			t.Fatal(err)
		}
		defer torch.CloseParameters(parameters)
		want := int64(0)
		for _, p := range parameters {
			shape, err := p.Tensor.Shape()
			if err != nil {
				t.Fatal(err)
			}
			n := int64(1)
			for _, d := range shape {
				n *= d
			}
			want += n
		}
		if got := Parameters(c); got != want {
			t.Errorf("%+v: %d parameters, the model has %d", c, got, want)
		}
	}
}

// SmolLM2-135M with AdamW in f32: what a process held at the peak of an update (gyre_peak_rss), by rows and recomputation.
func TestPlanIsWhatUpdatesTake(t *testing.T) {
	model := torch.ModelConfig{Family: torch.Llama, VocabSize: 49152, HiddenSize: 576, IntermediateSize: 1536, NumLayers: 30, NumHeads: 9, NumKVHeads: 3,
		HeadDim: 64, MaxPositions: 8192, TieEmbeddings: true}
	for _, x := range []struct {
		rows      int
		recompute bool
		measured  float64 // GB
	}{{1024, false, 3.16}, {512, false, 2.79}, {640, false, 2.84}, {1024, true, 2.55}} {
		c := &config.Config{}
		c.Actor.MicroBatchTokens, c.Actor.RecomputeActivations = x.rows, x.recompute
		e := &Experiment{Parts: Parts{Learn: true}, Policy: &Model{Shape: model}, config: c}
		planned := float64(e.PlanMemory().Phase("update")) / 1e9
		if planned < x.measured || planned > 1.1*x.measured {
			t.Errorf("%d rows, recompute %v: %.2f GB planned, %.2f measured", x.rows, x.recompute, planned, x.measured)
		}
	}
}

func TestMemTotal(t *testing.T) {
	if got := parseMemTotal([]byte("MemFree: 3 kB\nMemTotal:       24587452 kB\n")); got != 24587452<<10 {
		t.Errorf("MemTotal %d", got)
	}
	if got := parseMemTotal([]byte("nothing")); got != 0 {
		t.Errorf("without MemTotal: %d", got)
	}
}
