package torch

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

func tinyConfig(head Head) ModelConfig {
	return ModelConfig{Family: Llama, Head: head, VocabSize: 19, HiddenSize: 8, IntermediateSize: 12, NumLayers: 2,
		NumHeads:   2,
		NumKVHeads: 1, HeadDim: 4, MaxPositions: 32, RMSNormEps: 1e-5, RopeTheta: 10000,
		TieEmbeddings: head == HeadLM}
}

// tinyModel has random weights that depend on the seed alone.
func tinyModel(t *testing.T, head Head) *Model {
	t.Helper()
	m, err := NewModel(tinyConfig(head))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	random := rand.New(rand.NewPCG(1, 2))
	each(t, m, func(_ string, tensor *Tensor, shape []int64) {
		values := make([]float32, count(shape))
		for i := range values {
			values[i] = float32(random.NormFloat64()) / 2
		}
		if err := tensor.SetFloat32s(values); err != nil {
			t.Fatal(err)
		}
	})
	if err := m.Touch(); err != nil {
		t.Fatal(err)
	}
	return m
}

func each(t *testing.T, m *Model, f func(name string, tensor *Tensor, shape []int64)) {
	t.Helper()
	parameters, err := m.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	defer CloseParameters(parameters)
	for _, p := range parameters {
		shape, err := p.Tensor.Shape()
		if err != nil {
			t.Fatal(err)
		}
		f(p.Name, p.Tensor, shape)
	}
}

func count(shape []int64) int64 {
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	return n
}

func weights(t *testing.T, m *Model) [][]float32 {
	t.Helper()
	var all [][]float32
	each(t, m, func(_ string, tensor *Tensor, _ []int64) {
		values, err := tensor.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, values)
	})
	return all
}

func TestParametersHaveHuggingFaceNamesAndShapes(t *testing.T) {
	m := tinyModel(t, HeadLM)
	got := map[string][]int64{}
	each(t, m, func(name string, _ *Tensor, shape []int64) { got[name] = shape })
	for name, want := range map[string][]int64{
		"model.embed_tokens.weight":              {19, 8},
		"model.layers.0.self_attn.q_proj.weight": {8, 8},
		"model.layers.1.self_attn.k_proj.weight": {4, 8},
		"model.layers.1.mlp.up_proj.weight":      {12, 8},
		"model.norm.weight":                      {8},
	} {
		if !slices.Equal(got[name], want) {
			t.Errorf("%s has shape %v, want %v", name, got[name], want)
		}
	}
	if _, listed := got["lm_head.weight"]; listed {
		t.Error("a tied head is listed twice")
	}
}

func TestScoreIsTheLogSoftmaxOfTheLogits(t *testing.T) {
	m := tinyModel(t, HeadLM)
	ids := []int32{3, 0, 18, 7, 7}
	const temperature = 0.7
	logits, err := m.Logits(ids)
	if err != nil {
		t.Fatal(err)
	}
	logprobs, err := m.Logprobs(Pack([][]int32{ids}, nil), temperature)
	if err != nil {
		t.Fatal(err)
	}
	entropies, err := m.Entropies(Pack([][]int32{ids}, nil), temperature)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(ids); i++ {
		row := logits[(i-1)*19 : i*19]
		var sum, first float64
		for _, z := range row {
			sum += math.Exp(float64(z) / temperature)
			first += math.Exp(float64(z)/temperature) * float64(z) / temperature
		}
		logprob, entropy := float64(row[ids[i]])/temperature-math.Log(sum), math.Log(sum)-first/sum
		if math.Abs(logprob-float64(logprobs[i])) > 1e-5 || math.Abs(entropy-float64(entropies[i])) > 1e-5 {
			t.Errorf("token %d: %v %v, want %v %v", i, logprobs[i], entropies[i], logprob, entropy)
		}
	}
	if logprobs[0] != 0 || entropies[0] != 0 {
		t.Error("the first token has a score")
	}
}

func TestErrorsNameTheProblem(t *testing.T) {
	m := tinyModel(t, HeadLM)
	for name, b := range map[string]Batch{
		"empty":           {},
		"id out of range": Pack([][]int32{{1, 19}}, nil),
		"mask of first":   Pack([][]int32{{1, 2}}, [][]bool{{true, true}}),
		"offsets":         {Offsets: []int64{0, 5}, IDs: []int32{1, 2}, Mask: []uint8{0, 1}},
		"offsets inside":  {Offsets: []int64{0, 9, 2}, IDs: []int32{1, 2}, Mask: []uint8{0, 1}},
		"too long":        Pack([][]int32{make([]int32, 33)}, nil),
	} {
		if _, err := m.Logprobs(b, 1); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := m.Logprobs(Pack([][]int32{{1, 2}}, nil), 0); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("temperature 0: %v", err)
	}
	if _, err := m.Values(Pack([][]int32{{1, 2}}, nil)); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("values of a policy: %v", err)
	}
}

func TestADivergedModelIsReported(t *testing.T) {
	m := tinyModel(t, HeadLM)
	each(t, m, func(name string, tensor *Tensor, _ []int64) {
		if name == "model.norm.weight" {
			if err := tensor.SetFloat32s(slices.Repeat([]float32{float32(math.NaN())}, 8)); err != nil {
				t.Fatal(err)
			}
		}
	})
	if err := m.Touch(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Logprobs(Pack([][]int32{{1, 2}}, nil), 1); !errors.Is(err, ErrNotFinite) {
		t.Errorf("got %v, want ErrNotFinite", err)
	}
}

func TestCloseIsIdempotentAndFinal(t *testing.T) {
	m := tinyModel(t, HeadLM)
	g, err := NewGradients(m)
	if err != nil {
		t.Fatal(err)
	}
	parameters, err := m.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	tensor := parameters[0].Tensor
	for range 2 {
		CloseParameters(parameters)
		g.Close()
		m.Close()
	}
	b := Pack([][]int32{{1, 2}}, nil)
	_, logprobsErr := m.Logprobs(b, 1)
	_, backwardErr := m.PolicyBackward(b, PolicyInputs{Weights: make([]float32, 2)},
		PolicyLoss{Task: NewLoss("nll", nil)}, Terms(nil, nil, nil))
	_, gradientsErr := NewGradients(m)
	_, optimizerErr := NewOptimizer(m, AdamW{})
	_, floatsErr := tensor.Float32s()
	for name, err := range map[string]error{"score": logprobsErr, "backward": backwardErr, "new gradients": gradientsErr,
		"new optimizer": optimizerErr, "tensor": floatsErr, "zero": g.Zero(), "touch": m.Touch(),
		"set": tensor.SetFloat32s(nil)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	if tensor.Handle() != nil {
		t.Error("a closed tensor has a handle")
	}
}

func TestModelOutlivesItsOptimizer(t *testing.T) {
	m := tinyModel(t, HeadLM)
	o, err := NewOptimizer(m, AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	if err := o.SetSteps(3); !errors.Is(err, ErrClosed) {
		t.Errorf("optimizer of a closed model: %v", err)
	}
	o.Close() // and the model's memory with it
}

func TestConcurrentUse(t *testing.T) {
	m := tinyModel(t, HeadLM)
	b := Pack([][]int32{{1, 2, 3}, {4, 5}}, nil)
	want, err := m.Logprobs(b, 1)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				got, err := m.Logprobs(b, 1)
				if err == nil && !slices.Equal(got, want) {
					t.Error("log-probs differ between goroutines")
				}
				if err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
	m.Close()
	wg.Wait()
}
