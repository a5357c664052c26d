package gradients

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gyre/internal/statistics"
	"gyre/torch"
)

// entries is how many numbers the parameters hold.
func entries(parameters []torch.Parameter) (n int64) {
	for _, p := range parameters {
		n += p.Elements()
	}
	return n
}

// Layer names the part of the model that a parameter belongs to: embed_tokens, layers.0 …, norm, lm_head.
func Layer(parameter string) string {
	parts := strings.Split(strings.TrimPrefix(parameter, "model."), ".")
	if parts[0] == "layers" && len(parts) > 1 {
		return "layers." + parts[1]
	}
	return parts[0]
}

// Kind is what a parameter is for.
func Kind(parameter string) string {
	for _, k := range []struct{ mark, kind string }{
		{"norm", "norm"}, {"self_attn", "attention"}, {"mlp", "mlp"}, {"embed_tokens", "embedding"},
		{"lm_head", "head"},
	} {
		if strings.Contains(parameter, k.mark) {
			return k.kind
		}
	}
	return "other"
}

// scope is a set of parameters: the inner products of vectors over them add up.
type scope struct {
	kind, name string // global, layer, kind or parameter
	holds      func(parameter int) bool
}

var everything = scope{"global", "all", func(int) bool { return true }}

// scopes are the sets of parameters of one kind, in the order of the parameters.
func scopes(kind string, parameters []torch.Parameter, nameOf func(parameter string) string) (out []scope) {
	for _, p := range parameters {
		name := nameOf(p.Name)
		if !slices.ContainsFunc(out, func(s scope) bool { return s.name == name }) {
			out = append(out, scope{kind, name, func(i int) bool { return nameOf(parameters[i].Name) == name }})
		}
	}
	return out
}

func layers(parameters []torch.Parameter) []scope { return scopes("layer", parameters, Layer) }

// gram holds the inner products of all pairs of some gradients, apart for every parameter.
type gram struct {
	n     int
	pairs [][]float64 // (i, j) with i <= j, row by row; in each the parameters
}

// gramOf takes the inner products of gradients, which it names in its errors. They must be finite: nothing could be
// said about others.
func gramOf(buffers []*torch.Gradients, names []string, parameters []torch.Parameter) (gram, error) {
	products, err := torch.Products(buffers)
	if err != nil {
		return gram{}, err
	}
	g := gram{len(buffers), products}
	for i, name := range names {
		for p, square := range g.at(i, i) {
			if !statistics.Finite(square) {
				return gram{}, fmt.Errorf("the %s gradient at %s is not finite: %w", name, parameters[p].Name,
					torch.ErrNotFinite)
			}
		}
	}
	return g, nil
}

// at are the inner products of i and j by parameter.
func (g gram) at(i, j int) []float64 {
	i, j = min(i, j), max(i, j)
	return g.pairs[i*g.n-i*(i-1)/2+j-i]
}

// inner is the inner product of i and j over a scope.
func (g gram) inner(i, j int, s scope) float64 {
	sum := 0.0
	for p, v := range g.at(i, j) {
		if s.holds(p) {
			sum += v
		}
	}
	return sum
}

func (g gram) norm(i int, s scope) float64 { return math.Sqrt(g.inner(i, i, s)) }

// cosine of i and j over a scope; false where one of them has no length.
func (g gram) cosine(i, j int, s scope) (float64, bool) {
	return statistics.Cosine(g.inner(i, j, s), g.inner(i, i, s), g.inner(j, j, s))
}

// cosineBySize is the mean of the parameters' cosines, weighted by their size; of those parameters that have one.
func (g gram) cosineBySize(i, j int, parameters []torch.Parameter) (float64, bool) {
	sum, size := 0.0, 0.0
	for p, x := range parameters {
		if c, ok := statistics.Cosine(g.at(i, j)[p], g.at(i, i)[p], g.at(j, j)[p]); ok {
			sum += c * float64(x.Elements())
			size += float64(x.Elements())
		}
	}
	return sum / max(size, 1), size > 0
}
