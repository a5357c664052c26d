package gradients

import (
	"math"
	"math/rand/v2"
	"testing"

	"gyre/orchestrate/config"
	"gyre/torch"
)

// Inner products of sketches are those of the gradients, within the error that is stated, and sketches add up.
func TestSketchesKeepInnerProducts(t *testing.T) {
	model, err := torch.NewModel(torch.ModelConfig{Family: torch.Llama, Head: torch.HeadLM, VocabSize: 4000,
		HiddenSize: 64, IntermediateSize: 96,
		NumLayers: 2, NumHeads: 4, NumKVHeads: 2, HeadDim: 16, MaxPositions: 64, RMSNormEps: 1e-5, RopeTheta: 1e4,
		TieEmbeddings: true})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	parameters, err := model.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	torch.CloseParameters(parameters)
	b, err := newBuffers(model, 3, torch.NewGradients)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	r := rand.New(rand.NewPCG(3, 4))
	for i := range parameters {
		var values [3][]float32
		for k := range b {
			tensor, err := b[k].Tensor(i)
			if err != nil {
				t.Fatal(err)
			}
			old, err := tensor.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			for j := range old { // the second shares much with the first, the third is their sum
				switch k {
				case 0:
					old[j] = float32(r.NormFloat64())
				case 1:
					old[j] = values[0][j] + float32(r.NormFloat64())
				case 2:
					old[j] = values[0][j] + values[1][j]
				}
			}
			values[k] = old
			if err := tensor.SetFloat32s(old); err != nil {
				t.Fatal(err)
			}
			tensor.Close()
		}
	}
	var list []torch.Parameter
	for _, p := range parameters {
		list = append(list, torch.Parameter{Name: p.Name})
	}
	g, err := gramOf(b, []string{"a", "b", "sum"}, list)
	if err != nil {
		t.Fatal(err)
	}
	var sketches []vector
	for i, own := range b {
		k, err := vectorOf(own, false)
		if err != nil || k.square != g.inner(i, i, everything) {
			t.Fatalf("square %v, %v", k.square, err)
		}
		sketches = append(sketches, k)
	}
	for i := range b {
		for j := range b {
			want, _, err := b[i].Dot(b[j])
			if whole, problem := (vector{full: b[i]}).dot(vector{full: b[j]}); err != nil || problem != nil ||
				whole != want || g.inner(i, j, everything) != want {
				t.Errorf("product %d %d = %v and %v, the dot product is %v (%v)", i, j, g.inner(i, j, everything),
					whole, want, err)
			}
			got, err := sketches[i].dot(sketches[j])
			if err != nil {
				t.Fatal(err)
			}
			deviation := math.Sqrt(2*g.inner(i, i, everything)*g.inner(j, j, everything)) / math.Sqrt(bucketSketch)
			if math.Abs(got-want) > 4*deviation || got == want {
				t.Errorf("%d %d: %g, want %g ± %g", i, j, got, want, deviation)
			}
		}
	}
	total := sumOf(sketches[:2])
	for i, v := range total {
		if math.Abs(float64(v-sketches[2].sketch[i])) > 1e-3 {
			t.Fatalf("place %d: the sum of sketches is %g, the sketch of the sum %g", i, v, sketches[2].sketch[i])
		}
	}
}

func TestPlans(t *testing.T) {
	exact := Options{Analysis: config.Analysis{Profile: Exact, Statistics: true, MemoryMiB: 1 << 10}}
	for _, c := range []struct {
		name       string
		parameters int64
		change     func(*Options)
		want       Plan
	}{
		{"small models keep every group", 1e6, func(*Options) {}, Plan{Buffers: 45, Bytes: 180e6, Keep: true,
			Passes: 1}},
		{"large ones sketch", 1e9, func(*Options) {}, Plan{Buffers: 9, Bytes: 36e9 + 24*4*bucketSketch, Passes: 1}},
		{"one component at a time", 1e9, func(o *Options) { o.LowMemory = true },
			Plan{Buffers: 3, Bytes: 12e9 + 24*4*bucketSketch, Passes: 3}},
		{"norms only", 1e9, func(o *Options) { o.Statistics = false }, Plan{Buffers: 6, Bytes: 24e9, Passes: 1}},
		{"what fits exactly is kept", 1 << 20, func(o *Options) { o.MemoryMiB = 180 },
			Plan{Buffers: 45, Bytes: 45 << 22, Keep: true, Passes: 1}},
		{"paper", 1e9, func(o *Options) { o.Profile = Paper }, Plan{Buffers: 3, Bytes: 12e9, Passes: 2}},
	} {
		o := exact
		c.change(&o)
		if got := NewPlan(c.parameters, 3, 8, 6, o); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	for want, p := range map[string]Plan{"45 gradient buffers, 180.0 MiB, every group's gradient kept, one forward pass": {Buffers: 45, Bytes: 45 << 22, Keep: true, Passes: 1},
		"3 gradient buffers, 0.5 MiB, 3 forward passes": {Buffers: 3, Bytes: 1 << 19, Passes: 3}} {
		if p.String() != want {
			t.Errorf("%+v: %q, want %q", p, p, want)
		}
	}
}
