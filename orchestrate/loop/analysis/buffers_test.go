package analysis

import (
	"math"
	"math/rand/v2"
	"testing"

	"gyre/torch"
)

// Inner products of sketches are those of the gradients, within the error that is stated, and sketches add up.
func TestSketchesKeepInnerProducts(t *testing.T) {
	model, err := torch.NewModel(torch.ModelConfig{Family: torch.Llama, Head: torch.HeadLM, VocabSize: 4000, HiddenSize: 64, IntermediateSize: 96,
		NumLayers: 2, NumHeads: 4, NumKVHeads: 2, HeadDim: 16, MaxPositions: 64, RMSNormEps: 1e-5, RopeTheta: 1e4, TieEmbeddings: true})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	parameters, err := model.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	torch.CloseParameters(parameters)
	p := &pool{model: model, components: []string{torch.Task, torch.KL, torch.Entropy}}
	defer p.close()
	b, err := p.take()
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i := range parameters {
		var values [3][]float32
		for k, name := range []string{torch.Task, torch.KL, torch.Entropy} {
			tensor, err := b[name].Tensor(i)
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
	squares, err := b.squares()
	if err != nil {
		t.Fatal(err)
	}
	sketches := map[string]vector{}
	for name, g := range b {
		sketch, err := g.Sketch(sketchDimension)
		if err != nil {
			t.Fatal(err)
		}
		sketches[name] = vector{sketch: sketch}
	}
	products, err := torch.Products([]*torch.Gradients{b[torch.Task], b[torch.KL], b[torch.Entropy]})
	if err != nil {
		t.Fatal(err)
	}
	for place, p := range [][2]string{{torch.Task, torch.Task}, {torch.Task, torch.KL}, {torch.Task, torch.Entropy}, {torch.KL, torch.KL}, {torch.KL, torch.Entropy}, {torch.Entropy, torch.Entropy}} {
		want, _, err := b[p[0]].Dot(b[p[1]])
		if err != nil || total(products[place]) != want {
			t.Errorf("product %v = %v, the dot product is %v (%v)", p, total(products[place]), want, err)
		}
		if index := map[string]int{torch.Task: 0, torch.KL: 1, torch.Entropy: 2}; pair(index[p[0]], index[p[1]], 3) != place {
			t.Errorf("%v is expected at place %d", p, pair(index[p[0]], index[p[1]], 3))
		}
	}
	for _, pair := range [][2]string{{torch.Task, torch.Task}, {torch.Task, torch.KL}, {torch.KL, torch.Entropy}} {
		want, _, err := b[pair[0]].Dot(b[pair[1]])
		if err != nil {
			t.Fatal(err)
		}
		got, err := sketches[pair[0]].dot(sketches[pair[1]])
		if err != nil {
			t.Fatal(err)
		}
		deviation := math.Sqrt(2*squares[pair[0]]*squares[pair[1]]) / math.Sqrt(sketchDimension)
		if math.Abs(got-want) > 4*deviation || got == want {
			t.Errorf("%v: %g, want %g ± %g", pair, got, want, deviation)
		}
	}
	total := sum([]vector{sketches[torch.Task], sketches[torch.KL]})
	for i, v := range total.sketch {
		if math.Abs(float64(v-sketches[torch.Entropy].sketch[i])) > 1e-3 {
			t.Fatalf("place %d: the sum of sketches is %g, the sketch of the sum %g", i, v, sketches[torch.Entropy].sketch[i])
		}
	}
}

func TestPlans(t *testing.T) {
	exact := Options{Profile: Exact, Statistics: true, KeepBytes: 1 << 30}
	for _, c := range []struct {
		name       string
		parameters int64
		change     func(*Options)
		want       Plan
	}{
		{"small models keep every group", 1e6, func(*Options) {}, Plan{Buffers: 45, Bytes: 180e6, Keep: true, Passes: 1}},
		{"large ones sketch", 1e9, func(*Options) {}, Plan{Buffers: 9, Bytes: 36e9 + 24*4*sketchDimension, Passes: 1}},
		{"one component at a time", 1e9, func(o *Options) { o.LowMemory = true }, Plan{Buffers: 3, Bytes: 12e9 + 24*4*sketchDimension, Passes: 3}},
		{"norms only", 1e9, func(o *Options) { o.Statistics = false }, Plan{Buffers: 6, Bytes: 24e9, Passes: 1}},
		{"what fits exactly is kept", 1 << 20, func(o *Options) { o.KeepBytes = 45 << 22 }, Plan{Buffers: 45, Bytes: 45 << 22, Keep: true, Passes: 1}},
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

// No vectors have no inner products.
func TestGramOfNothing(t *testing.T) {
	g, err := newGram(nil)
	if err != nil || g.at(0, 0) != 0 {
		t.Errorf("%+v, %v", g, err)
	}
}
