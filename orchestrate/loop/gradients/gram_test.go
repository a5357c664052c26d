package gradients

import (
	"math"
	"math/rand/v2"
	"testing"

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
