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
	if v.full != nil {
		product, _, err := v.full.Dot(w.full)
		return product, err
	}
	sum := 0.0
	for i, x := range v.sketch {
		sum += float64(x) * float64(w.sketch[i])
	}
	return sum, nil
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
