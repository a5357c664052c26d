package gradients

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/train"
	"gyre/torch"
)

// golden is what float64 autograd and finite differences say of a tiny model: logits = lm_head · mlp · embedding of
// the token before.
type golden struct {
	Params     map[string][][]float64
	Prompts    [][]int32
	Responses  [][]int32
	UID        []int
	Rewards    map[string][]float64
	Weights    map[string]float64
	Logp       [][]float64
	Advantages map[string]map[string][]float64
	Grpo       goldenMode
	GrpoNostd  goldenMode `json:"grpo_nostd"`
	Rloo       goldenMode
	Exact      goldenMode `json:"exact_linear"`
}

type goldenMode struct {
	GradNorm map[string]float64                `json:"grad_norm"`
	Grad     map[string]map[string][][]float64 `json:"grad"`
	Global   map[string]float64                `json:"cos_global"`
	PerParam map[string]map[string]float64     `json:"cos_per_param"`
	BySize   map[string]float64                `json:"cos_size_weighted"`
}

func readGolden(t *testing.T) (g golden) {
	t.Helper()
	data, err := os.ReadFile("testdata/gradsim.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// episodes are the golden ones as an estimator reads them: rewards lie on the last token.
func (g golden) episodes() []Rewarded {
	var out []Rewarded
	for i, response := range g.Responses {
		n := len(g.Prompts[g.UID[i]]) + len(response)
		e := Rewarded{Components: map[string][]float64{}}
		e.Group, e.Mask, e.Rewards = g.UID[i], g.sequence(i).Mask, make([]float64, n)
		e.Rewards[n-1] = g.Rewards["total"][i]
		for _, name := range []string{"correctness", "format", "length"} {
			e.Components[name] = make([]float64, n)
			e.Components[name][n-1] = g.Rewards[name][i]
		}
		out = append(out, e)
	}
	return out
}

func (g golden) sequence(i int) (s train.Sequence) {
	prompt := g.Prompts[g.UID[i]]
	s.IDs, s.Mask = slices.Concat(prompt, g.Responses[i]), make([]bool, len(prompt)+len(g.Responses[i]))
	for t := len(prompt); t < len(s.IDs); t++ {
		s.Mask[t] = true
	}
	return s
}

const goldenWidth, gain = 4, 1e4 // of hidden vectors, padded with a zero; of the final norm

// model is the golden one as a decoder: its block adds nothing, its final norm divides by √(mean square + 1e8) and
// multiplies by 1e4, which is the identity to nine digits, and its embedding is mlp · embedding.
func (g golden) model(t *testing.T) *torch.Model {
	t.Helper()
	m, err := torch.NewModel(torch.ModelConfig{Family: torch.Llama, Head: torch.HeadLM, VocabSize: 6,
		HiddenSize: goldenWidth, IntermediateSize: 4,
		NumLayers: 1, NumHeads: 1, NumKVHeads: 1, HeadDim: goldenWidth, MaxPositions: 16, RMSNormEps: gain * gain,
		RopeTheta: 1e4})
	if err != nil {
		t.Fatal(err)
	}
	parameters, err := m.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	defer torch.CloseParameters(parameters)
	for _, p := range parameters {
		values, err := p.Tensor.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		clear(values)
		embedding, mlp := g.Params["model.embed_tokens.weight"], g.Params["model.layers.0.mlp.weight"]
		switch p.Name {
		case "model.norm.weight":
			for i := range values {
				values[i] = gain
			}
		case "model.embed_tokens.weight":
			for v, e := range embedding {
				for r, row := range mlp {
					for c, w := range row {
						values[v*goldenWidth+r] += float32(w * e[c])
					}
				}
			}
		case "lm_head.weight":
			for v, row := range g.Params[p.Name] {
				for c, w := range row {
					values[v*goldenWidth+c] = float32(w)
				}
			}
		}
		if err := p.Tensor.SetFloat32s(values); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Touch(); err != nil {
		t.Fatal(err)
	}
	return m
}

// subject is the golden episodes under a model, weighted as a mean over all tokens.
func (g golden) subject(t *testing.T, m *torch.Model) Subject {
	t.Helper()
	s := Subject{Policy: learner(t, m), Batch: &train.Batch{}, Objective: train.Objective{PolicyLoss: torch.PolicyLoss{
		Task: torch.NewLoss("ppo", map[string]float64{"clip_high": .2, "clip_dual": 0}), Temperature: 1}},
		Columns: []train.Column{{Name: torch.Task}}}
	for i := range g.Responses {
		s.Batch.Sequences = append(s.Batch.Sequences, g.sequence(i))
	}
	s.Batch.Weigh("token-mean", 0)
	var err error
	if s.Batch.Old, err = s.Policy.Compute(context.Background(), s.Batch, train.What{Temperature: 1}); err != nil {
		t.Fatal(err)
	}
	return s
}

// split undoes the merging of mlp and embedding in a gradient: the chain rule.
func (g golden) split(parameters []torch.Parameter, gradient *torch.Gradients, t *testing.T) map[string][][]float64 {
	out := map[string][][]float64{}
	for i, p := range parameters {
		values, err := all(gradient, i, 0)
		if err != nil {
			t.Fatal(err)
		}
		at := func(v, c int) float64 { return float64(values[v*goldenWidth+c]) }
		embedding, mlp := g.Params["model.embed_tokens.weight"], g.Params["model.layers.0.mlp.weight"]
		switch p.Name {
		case "lm_head.weight":
			for v := range embedding {
				out[p.Name] = append(out[p.Name], []float64{at(v, 0), at(v, 1), at(v, 2)})
			}
		case "model.embed_tokens.weight":
			d := make([][]float64, 3)
			for r := range d {
				d[r] = make([]float64, 3)
			}
			for v, e := range embedding {
				row := make([]float64, 3)
				for r := range 3 {
					for c := range 3 {
						row[c] += at(v, r) * mlp[r][c]
						d[r][c] += at(v, r) * e[c]
					}
				}
				out[p.Name] = append(out[p.Name], row)
			}
			out["model.layers.0.mlp.weight"] = d
		}
	}
	return out
}

func inner(a, b map[string][][]float64, only string) (sum float64) {
	for name := range a {
		for i, row := range a[name] {
			for j, v := range row {
				if only == "" || only == name {
					sum += v * b[name][i][j]
				}
			}
		}
	}
	return sum
}

func TestGoldenCase(t *testing.T) {
	g := readGolden(t)
	m := g.model(t)
	subject := g.subject(t, m)
	for i, want := range g.Logp {
		for j, v := range subject.Batch.Old[i][len(g.Prompts[g.UID[i]]):] {
			if math.Abs(float64(v)-want[j]) > 1e-5 {
				t.Fatalf("episode %d, token %d: log-prob %v, want %v", i, j, v, want[j])
			}
		}
	}
	names := []string{"correctness", "format", "length"}
	for mode, c := range map[string]struct {
		mode, advantage string
		normed          bool
		want            goldenMode
	}{
		"grpo": {"independent", "grpo", true, g.Grpo}, "grpo_nostd": {"independent", "grpo", false, g.GrpoNostd},
		"rloo": {"independent", "rloo", true, g.Rloo}, "exact_linear": {"exact", "grpo", true, g.Exact},
	} {
		a := Estimate(g.episodes(), config.Components{Mode: c.mode, Names: names}, g.Weights,
			config.Algorithm{Advantage: c.advantage, NormByStd: c.normed})
		for k, name := range append(slices.Clone(names), Total) {
			got := a.Total
			if k < len(a.Means) {
				got = a.Means[k]
			}
			for i, want := range g.Advantages[mode][name] {
				if math.Abs(got[i]-want) > 1e-9 {
					t.Errorf("%s, %s: advantage %d is %.12g, want %.12g", mode, name, i, got[i], want)
				}
			}
		}
		split := map[string]map[string][][]float64{}
		report, err := MeasureComponents(context.Background(), subject, g.UID, a,
			ComponentOptions{Keep: func(taken Taken) error {
				for k, name := range taken.Names {
					split[name] = g.split(taken.Parameters, taken.Gradients[k], t)
				}
				return nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range c.want.Grad {
			if norm := math.Sqrt(inner(split[name], split[name],
				"")); math.Abs(norm-c.want.GradNorm[name]) > 1e-4*c.want.GradNorm[name] {
				t.Errorf("%s: |%s| = %v, want %v", mode, name, norm, c.want.GradNorm[name])
			}
			for parameter, rows := range want {
				for i, row := range rows {
					for j, v := range row {
						if math.Abs(split[name][parameter][i][j]-v) > 1e-4*c.want.GradNorm[name] {
							t.Errorf("%s: %s, %s[%d][%d] = %v, want %v", mode, name, parameter, i, j,
								split[name][parameter][i][j], v)
						}
					}
				}
			}
		}
		values := componentLine(report)
		for i, first := range report.Names {
			for _, second := range report.Names[i+1:] {
				key := first + "_vs_" + second
				of := func(only string) float64 {
					return inner(split[first], split[second], only) / math.Sqrt(inner(split[first], split[first],
						only)*inner(split[second], split[second], only))
				}
				if got := of(""); math.Abs(got-c.want.Global[key]) > 1e-4 {
					t.Errorf("%s: cosine %s = %v, want %v", mode, key, got, c.want.Global[key])
				}
				sized, sizes := 0.0, map[string]float64{"model.embed_tokens.weight": 18, "model.layers.0.mlp.weight": 9,
					"lm_head.weight": 18}
				for parameter, want := range c.want.PerParam[key] {
					if got := of(parameter); math.Abs(got-want) > 1e-4 {
						t.Errorf("%s: cosine %s at %s = %v, want %v", mode, key, parameter, got, want)
					}
					sized += of(parameter) * sizes[parameter] / 45
				}
				if math.Abs(sized-c.want.BySize[key]) > 1e-4 {
					t.Errorf("%s: cosine by size %s = %v, want %v", mode, key, sized, c.want.BySize[key])
				}
				// What the report says of the one parameter that is as in the golden model.
				for _, row := range report.table(scopes("parameter", report.parameters,
					func(name string) string { return name })).Rows {
					if row[1] == "lm_head.weight" && row[2] == first && row[3] == second {
						if got := row[4].(float64); math.Abs(got-c.want.PerParam[key]["lm_head.weight"]) > 1e-4 {
							t.Errorf("%s: the table's cosine %s of lm_head is %v, want %v", mode, key, got,
								c.want.PerParam[key]["lm_head.weight"])
						}
					}
				}
			}
		}
		sum, linear := values["grad_components/check/sum_error"].(float64)
		if linear != (mode != "grpo") || linear && sum > 1e-6 {
			t.Errorf("%s: the parts' sum is off by %v (checked: %v)", mode, sum, linear)
		}
		if got := values["grad_components/check/sum_cosine"].(float64); mode == "grpo" && math.Abs(got-0.9757) > 0.01 ||
			mode == "exact_linear" && got < 1-1e-9 {
			t.Errorf("%s: cosine of the parts' sum with the total %v", mode, got)
		}
	}
}
