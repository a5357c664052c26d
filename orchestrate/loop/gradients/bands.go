package gradients

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
)

// Band is where a cosine would lie, with the stated confidence, if one reward component said nothing of the other:
// within the band, nothing is known; below it, the components work against each other.
type Band struct{ Low, High float64 }

// permuted holds a component's gradient as if its rewards had been permuted within their groups, many times over, as
// advantages and squared norms.
type permuted struct {
	advantages blas64.General // one row each
	squares    []float64
}

// bands computes what the cosines of components would be by chance, from inner products of the episodes' own gradients.
type bands struct {
	gram       blas64.General // ⟨s_i, s_j⟩
	groups     []Group
	rounds     int // per component
	confidence float64
	random     *rand.Rand
}

// newBands takes the inner products of the episodes' sketches.
func newBands(sketches [][]float32, groups []Group, rounds int, confidence float64, random *rand.Rand) *bands {
	n := len(sketches)
	rows := blas32.General{Rows: n, Cols: episodeSketch, Stride: episodeSketch, Data: slices.Concat(sketches...)}
	product := blas32.Symmetric{Uplo: blas.Upper, N: n, Stride: n, Data: make([]float32, n*n)}
	blas32.Syrk(blas.NoTrans, 1, rows, 0, product)
	gram := matrix(n, n)
	for i := range n {
		for j := i; j < n; j++ {
			v := float64(product.Data[i*n+j])
			gram.Data[i*n+j], gram.Data[j*n+i] = v, v
		}
	}
	return &bands{gram: gram, groups: groups, rounds: rounds, confidence: confidence, random: random}
}

func matrix(rows, columns int) blas64.General {
	return blas64.General{Rows: rows, Cols: columns, Stride: columns, Data: make([]float64, rows*columns)}
}

// permute permutes advantages within every group, as many times as there are rounds.
func (b *bands) permute(advantages []float64) permuted {
	n := len(advantages)
	p := permuted{matrix(b.rounds, n), make([]float64, b.rounds)}
	for r := range b.rounds {
		row := p.advantages.Data[r*n : (r+1)*n]
		for _, group := range b.groups {
			for i, from := range b.random.Perm(len(group.Rows)) {
				row[group.Rows[i]] = advantages[group.Rows[from]]
			}
		}
	}
	product := matrix(b.rounds, n)
	blas64.Gemm(blas.NoTrans, blas.NoTrans, 1, p.advantages, b.gram, 0, product)
	for r := range b.rounds {
		for i, v := range p.advantages.Data[r*n : (r+1)*n] {
			p.squares[r] += v * product.Data[r*n+i]
		}
	}
	return p
}

// against are the inner products of every episode's gradient with one gradient, as sum of episodes' with their
// advantages.
func (b *bands) against(advantages []float64) []float64 {
	n := len(advantages)
	out := make([]float64, n)
	blas64.Gemv(blas.NoTrans, 1, b.gram, blas64.Vector{N: n, Inc: 1, Data: advantages}, 0,
		blas64.Vector{N: n, Inc: 1, Data: out})
	return out
}

// cosines of a gradient (its inner products with the episodes', and its squared norm) with the permuted ones.
func (p permuted) cosines(products []float64, square float64) []float64 {
	var out []float64
	n := len(products)
	for r := range p.squares {
		sum := 0.0
		for i, v := range p.advantages.Data[r*n : (r+1)*n] {
			sum += v * products[i]
		}
		if norm := p.squares[r] * square; norm > 0 {
			out = append(out, sum/math.Sqrt(norm))
		}
	}
	return out
}

// between is the band of two components: the wider of what remains of their cosine when the first's rewards are
// permuted, and when the second's are. If one of them is a signal, only the other's permutation is the right one, and
// nobody knows which.
func (b *bands) between(first, second []float64, permutedFirst, permutedSecond permuted) (Band, bool) {
	one, other := b.against(first), b.against(second)
	inner := func(advantages, products []float64) (sum float64) {
		for i, v := range products {
			sum += advantages[i] * v
		}
		return sum
	}
	a, ok := b.interval(permutedSecond.cosines(one, inner(first, one)))
	c, too := b.interval(permutedFirst.cosines(other, inner(second, other)))
	return Band{min(a.Low, c.Low), max(a.High, c.High)}, ok && too
}

// interval holds the middle of the cosines, by ranks: of R+1 exchangeable ones, the one that was measured among them,
// the share outside is at most 1 - confidence.
func (b *bands) interval(list []float64) (Band, bool) {
	cut := int(float64(len(list)+1)*(1-b.confidence)/2 + 1e-9) // 5 of 99 at 0.9, whatever 1 - 0.9 is in binary
	if cut < 1 {
		return Band{}, false // too few rounds to say
	}
	slices.Sort(list)
	band := Band{list[cut-1], list[len(list)-cut]}
	return band, band.Low < band.High
}
