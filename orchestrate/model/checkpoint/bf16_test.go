package checkpoint

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"testing"

	"gyre/torch"
)

// reference is what scripts/fixtures_bf16.py wrote of a checkpoint.
type reference struct {
	IDs      []int32
	Logprobs []float64
	Pure     struct{ Mean, Max float64 } // distances of transformers' own bfloat16 from its float32
	Autocast struct{ Mean, Max float64 }
	Least    float64 `json:"least_cosine"` // of gradients under autocast, over the parameters
}

func references(t *testing.T) map[string]reference {
	t.Helper()
	text, err := os.ReadFile("testdata/bf16.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]reference
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func loadIn(t *testing.T, dir string, on torch.Placement) *torch.Model {
	t.Helper()
	m, err := LoadModel("../../loop/trainer/testdata/pytorch/"+dir, torch.HeadLM, on)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func logprobsOf(t *testing.T, m *torch.Model, ids []int32) []float32 {
	t.Helper()
	logprobs, err := m.Logprobs(torch.Pack([][]int32{ids}, nil), 1)
	if err != nil {
		t.Fatal(err)
	}
	return logprobs[1:]
}

// Every variant of the kernels that this processor runs computes what transformers does: in float32 up to rounding, in
// bfloat16 nearer to float32 on average than transformers' own bfloat16 is. The largest of sixty distances is a matter
// of luck.
func TestEveryInstructionSetIsTransformers(t *testing.T) {
	const variable = "GYRE_TEST_ISA"
	if os.Getenv(variable) == "" {
		sets, err := torch.InstructionSets()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sets {
			if !s.RunsHere {
				continue
			}
			again := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
			again.Env = append(os.Environ(), "GYRE_ISA="+s.Name, variable+"=1")
			if out, err := again.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", s.Name, err, out)
			}
		}
		return
	}
	for dir, want := range references(t) {
		for _, frozen := range []bool{false, true} {
			exact := logprobsOf(t, loadIn(t, dir, torch.Placement{Frozen: frozen}), want.IDs)
			half := logprobsOf(t, loadIn(t, dir, torch.Placement{Compute: torch.ComputeBF16, Frozen: frozen}), want.IDs)
			var mean, largest float64
			for i, w := range want.Logprobs {
				if d := math.Abs(float64(exact[i]) - w); d > 2e-4 {
					t.Fatalf("%s: log-prob %d is %v in float32, transformers gives %v", dir, i, exact[i], w)
				}
				d := math.Abs(float64(half[i]) - w)
				mean, largest = mean+d/float64(len(want.Logprobs)), max(largest, d)
			}
			if mean > want.Pure.Mean || largest > 2*want.Pure.Max || mean == 0 {
				t.Errorf("%s: in bfloat16 %.2g from float32 on average and %.2g at most, transformers %.2g and %.2g",
					dir, mean, largest,
					want.Pure.Mean, want.Pure.Max)
			}
		}
	}
}

// A model that is held for sampling alone gives the same numbers, and refuses what it cannot do any more.
func TestFrozenModels(t *testing.T) {
	for dir, want := range references(t) {
		for _, compute := range []torch.Compute{torch.ComputeF32, torch.ComputeBF16} {
			whole := logprobsOf(t, loadIn(t, dir, torch.Placement{Compute: compute}), want.IDs)
			m := loadIn(t, dir, torch.Placement{Compute: compute, Frozen: true})
			for i, v := range logprobsOf(t, m, want.IDs) {
				if v != whole[i] {
					t.Fatalf("%s in %s: log-prob %d is %v, of the whole model %v", dir, compute, i, v, whole[i])
				}
			}
			if _, err := m.Parameters(); err == nil {
				t.Error("the parameters of a frozen model can be reached")
			}
			if _, err := torch.NewOptimizer(m, torch.AdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}); err == nil {
				t.Error("a frozen model has an optimizer")
			}
			if m.Touch() == nil {
				t.Error("a frozen model takes new weights")
			}
		}
	}
}

// Gradients in bfloat16 point where those in float32 do, every parameter's about as well as autocast's worst.
func TestBFloat16GradientsPointTheSameWay(t *testing.T) {
	for dir, want := range references(t) {
		gradient := func(compute torch.Compute) map[string][]float32 {
			m := loadIn(t, dir, torch.Placement{Compute: compute})
			g, err := torch.NewGradients(m)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			mask := make([]bool, len(want.IDs))
			for i := range mask[1:] {
				mask[i+1] = true
			}
			batch := torch.Pack([][]int32{want.IDs}, [][]bool{mask})
			weights := make([]float32, len(want.IDs))
			for i := range weights {
				weights[i] = 1 / float32(len(want.IDs)-1)
			}
			loss := torch.PolicyLoss{Task: torch.NewLoss("nll", nil), Temperature: 1}
			if _, err := m.PolicyBackward(batch, torch.PolicyInputs{Weights: weights}, loss, torch.Terms(g, g,
				g)); err != nil {
				t.Fatal(err)
			}
			parameters, err := m.Parameters()
			if err != nil {
				t.Fatal(err)
			}
			defer torch.CloseParameters(parameters)
			out := map[string][]float32{}
			for i, p := range parameters {
				values, err := g.Tensor(i)
				if err != nil {
					t.Fatal(err)
				}
				if out[p.Name], err = values.Float32s(); err != nil {
					t.Fatal(err)
				}
				values.Close()
			}
			return out
		}
		exact, half := gradient(torch.ComputeF32), gradient(torch.ComputeBF16)
		for name, a := range exact {
			var ab, aa, bb float64
			for i, x := range a {
				y := float64(half[name][i])
				ab, aa, bb = ab+float64(x)*y, aa+float64(x)*float64(x), bb+y*y
			}
			if cosine := ab / math.Sqrt(aa*bb); 1-cosine > 1.5*(1-want.Least) {
				t.Errorf("%s: %s: cosine %.5f, the least under autocast %.5f", dir, name, cosine, want.Least)
			}
		}
	}
}
