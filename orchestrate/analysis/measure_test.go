package analysis

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gyre/torch"
)

// Any number of components, by any names: two task terms with advantages of their own, of which one is the other's double, and one that is
// neither, beside the entropy; the whole step and one component after the other.
func TestNamedComponents(t *testing.T) {
	model, err := torch.NewModel(torch.ModelConfig{Family: torch.Llama, Head: torch.HeadLM, VocabSize: 40, HiddenSize: 16, IntermediateSize: 24,
		NumLayers: 2, NumHeads: 2, NumKVHeads: 1, HeadDim: 8, MaxPositions: 32, RMSNormEps: 1e-5, RopeTheta: 1e4})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	r := rand.New(rand.NewPCG(6, 7))
	parameters, err := model.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	defer torch.CloseParameters(parameters)
	for _, p := range parameters {
		values, err := p.Tensor.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		for i := range values {
			values[i] = float32(0.3 * r.NormFloat64())
		}
		if err := p.Tensor.SetFloat32s(values); err != nil {
			t.Fatal(err)
		}
	}
	if err := model.Touch(); err != nil {
		t.Fatal(err)
	}
	const episodes, length = 8, 6
	ids, advantages := make([][]int32, episodes), map[string][]float32{"first": nil, "double": nil, "other": nil}
	for i := range ids {
		for range length {
			ids[i] = append(ids[i], int32(r.IntN(40)))
		}
		a, b := float32(r.NormFloat64()), float32(r.NormFloat64())
		advantages["first"], advantages["double"], advantages["other"] = append(advantages["first"], a), append(advantages["double"], 2*a), append(advantages["other"], b)
	}
	batch := Batch{Tokens: slices.Repeat([]int{length - 1}, episodes), Components: []torch.Component{{Name: "first"}, {Name: "double"}, {Name: "other"},
		{Name: "entropy", Term: torch.TermEntropy}}}
	batch.Backward = func(samples []int, out []torch.Component) (torch.PolicyStats, error) {
		var chosen [][]int32
		for _, i := range samples {
			chosen = append(chosen, ids[i])
		}
		b := torch.Pack(chosen, nil)
		scores, err := model.Score(b, 1, false)
		if err != nil {
			return torch.PolicyStats{}, err
		}
		for k, c := range out {
			if own := advantages[c.Name]; own != nil {
				out[k].Advantages = nil
				for _, i := range samples {
					out[k].Advantages = append(out[k].Advantages, slices.Repeat([]float32{own[i]}, length)...)
				}
			}
		}
		return model.PolicyBackward(b, torch.PolicyInputs{OldLogprobs: scores.Logprobs, Weights: slices.Repeat([]float32{0.025}, len(b.IDs))},
			torch.PolicyLoss{Objective: torch.ObjectivePPO, Temperature: 1, ClipLow: .2, ClipHigh: .2, EntropyCoef: .01}, out)
	}
	var groups []Group
	for g := range 4 {
		groups = append(groups, Group{ID: g, Spread: float64(g), Samples: []int{2 * g, 2*g + 1}})
	}
	for _, low := range []bool{false, true} {
		report, err := Measure(context.Background(), model, Quantile(groups, 2, false), batch, Options{Profile: Exact, Statistics: true, Confidence: .95,
			LowMemory: low, KeepBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(report.Components, []string{"first", "double", "other", "entropy"}) {
			t.Errorf("components %v", report.Components)
		}
		m := report.Metrics("grad_norm")
		slack := 1e-5
		if low {
			slack = .03 // sketches
		}
		for _, bucket := range []string{"bucket_1", "bucket_2", "all"} {
			p := "grad_norm/" + bucket + "/"
			first, double, c := m[p+"first"], m[p+"double"], m[p+"cosine/first_double"]
			if first == 0 || math.Abs(double-2*first) > 1e-5*first || math.Abs(c-1) > slack {
				t.Errorf("low memory %v: %s: norms %v and %v, cosine %v", low, bucket, first, double, c)
			}
			if c, ok := m[p+"cosine/other_entropy"]; !ok || math.Abs(c) > .9 || m[p+"signal_sq/other"] == 0 {
				t.Errorf("low memory %v: %s: cosine of other and entropy %v (%v)", low, bucket, c, ok)
			}
			parts := m[p+"loss/first"] + m[p+"loss/double"] + m[p+"loss/other"] + m[p+"loss/entropy"]
			if total := m[p+"loss/total"]; math.Abs(parts-total) > 1e-9 || math.Abs(m[p+"loss/double"]-2*m[p+"loss/first"]) > 1e-6 {
				t.Errorf("low memory %v: %s: losses add up to %v, the total is %v", low, bucket, parts, total)
			}
		}
	}
}
