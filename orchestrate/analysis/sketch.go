package analysis

import "gyre/torch"

// sketchDimension is a prime, so that neither rows nor columns of a matrix fall on the same places. It makes the error of an
// inner product about 0.4 % of the product of the norms.
const sketchDimension = 65521

// vector remembers a gradient for inner products with others: the gradient itself, or a sketch of it.
type vector struct {
	full   *torch.Gradients
	sketch []float32
}

func (v vector) dot(w vector) (float64, error) {
	g, err := newGram([]vector{v, w})
	return g.at(0, 1), err
}

// gram holds the inner products of all pairs of some vectors.
type gram struct {
	n     int
	pairs []float64
}

// newGram reads every gradient once; the work grows with the square of their number.
func newGram(list []vector) (gram, error) {
	g := gram{n: len(list)}
	if len(list) > 0 && list[0].full != nil {
		var buffers []*torch.Gradients
		for _, v := range list {
			buffers = append(buffers, v.full)
		}
		products, err := torch.Products(buffers)
		for _, perParameter := range products {
			g.pairs = append(g.pairs, total(perParameter))
		}
		return g, err
	}
	for i, v := range list {
		for _, w := range list[i:] {
			sum := 0.0
			for k, x := range v.sketch {
				sum += float64(x) * float64(w.sketch[k])
			}
			g.pairs = append(g.pairs, sum)
		}
	}
	return g, nil
}

// at is the inner product of vectors i and j, 0 when there are none.
func (g gram) at(i, j int) float64 {
	if len(g.pairs) == 0 {
		return 0
	}
	return g.pairs[pair(min(i, j), max(i, j), g.n)]
}

// sum adds up sketches: the sketch of a sum is the sum of the sketches.
func sum(parts []vector) vector {
	out := make([]float32, sketchDimension)
	for _, p := range parts {
		for i, x := range p.sketch {
			out[i] += x
		}
	}
	return vector{sketch: out}
}
