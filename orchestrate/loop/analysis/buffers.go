package analysis

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"gyre/torch"
)

// buffers is one gradient buffer per component.
type buffers map[string]*torch.Gradients

// into gives the components their buffers; those without one still say their losses.
func (b buffers) into(components []torch.Term) []torch.Term {
	out := slices.Clone(components)
	for i, c := range out {
		out[i].Into = b[c.Name]
	}
	return out
}

func (b buffers) zero() error {
	for _, g := range b {
		if err := g.Zero(); err != nil {
			return err
		}
	}
	return nil
}

func (b buffers) add(other buffers) error {
	for _, name := range slices.Sorted(maps.Keys(b)) { // over ranks these are exchanges, which come in one order
		if err := b[name].Add(other[name], 1); err != nil {
			return err
		}
	}
	return nil
}

// finite refuses the squared norm of a component's gradient that is not: nothing could be said about it.
func finite(component string, square float64) error {
	if math.IsNaN(square) || math.IsInf(square, 0) {
		return fmt.Errorf("the %s gradient is not finite: %w", component, torch.ErrNotFinite)
	}
	return nil
}

// squares are the components' squared norms, all finite.
func (b buffers) squares() (map[string]float64, error) {
	out := map[string]float64{}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		square, _, err := b[name].Dot(b[name])
		if err != nil {
			return nil, err
		}
		if err := finite(name, square); err != nil {
			return nil, err
		}
		out[name] = square
	}
	return out, nil
}

// pool makes and owns buffers for a set of components; those that are given back are used again.
type pool struct {
	model      *torch.Model
	components []string
	all, free  []buffers
}

func (p *pool) take() (buffers, error) {
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b, b.zero()
	}
	b := buffers{}
	p.all = append(p.all, b)
	for _, name := range p.components {
		g, err := torch.NewGradients(p.model)
		if err != nil {
			return nil, fmt.Errorf("a gradient buffer: %w", err)
		}
		b[name] = g
	}
	return b, nil
}

func (p *pool) give(b buffers) { p.free = append(p.free, b) }

func (p *pool) close() {
	for _, b := range p.all {
		for _, g := range b {
			g.Close()
		}
	}
}

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
