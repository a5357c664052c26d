package gradients

import (
	"math"
	"math/rand/v2"
	"testing"

	"gyre/internal/statistics"
	"gyre/torch"
)

// Gradients are vectors with a common direction and noise. The reference takes the sum of the others for every group.
func TestProxy(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const groups, size = 40, 30
	gradients, sum := make([][]float64, groups), make([]float64, size)
	r := &Result{Terms: map[string]*Term{}}
	for i := range gradients {
		std := float64(i/2) / 10 // two of a value, and two groups without rewards that differ
		r.Bucket.Groups = append(r.Bucket.Groups, Group{Std: std})
		gradients[i] = make([]float64, size)
		for k := range sum {
			if std > 0 {
				gradients[i][k] = std*.3 + random.NormFloat64()
			}
			sum[k] += gradients[i][k]
		}
	}
	inner := func(a, b []float64) (out float64) {
		for k := range a {
			out += a[k] * b[k]
		}
		return out
	}
	term := &Term{vector: vector{square: inner(sum, sum)}}
	var all, some, pulls, cosines []float64
	for i, g := range gradients {
		term.groups = append(term.groups, vector{square: inner(g, g)})
		term.products = append(term.products, inner(g, sum))
		rest := make([]float64, size)
		for k := range rest {
			rest[k] = sum[k] - g[k]
		}
		std := r.Bucket.Groups[i].Std
		all, pulls = append(all, std), append(pulls, inner(g, rest))
		if std > 0 {
			some, cosines = append(some, std), append(cosines, inner(g, rest)/math.Sqrt(inner(g, g)*inner(rest, rest)))
		}
	}
	r.Terms[torch.Task] = term
	p := r.proxy(.95)
	pull, cosine := statistics.Spearman(all, pulls, .95), statistics.Spearman(some, cosines, .95)
	for what, pair := range map[string][2]float64{"pull": {*p.Pull, pull.Value}, "pull low": {*p.PullLow, pull.Low},
		"pull high": {*p.PullHigh, pull.High}, "cosine": {*p.Cosine, cosine.Value},
		"cosine low": {*p.CosineLow, cosine.Low}, "cosine high": {*p.CosineHigh, cosine.High}} {
		if math.Abs(pair[0]-pair[1]) > 1e-12 {
			t.Errorf("%s = %v, want %v", what, pair[0], pair[1])
		}
	}
	if *p.PullLow < 0.3 || *p.CosineLow < 0.3 {
		t.Errorf("a signal in proportion to the deviation: %v and %v", *p.PullLow, *p.CosineLow)
	}
	for i := range term.groups { // nobody has a gradient
		term.groups[i].square, term.products[i] = 0, 0
	}
	term.vector.square = 0
	if p := r.proxy(.95); p.Pull != nil || p.Cosine != nil {
		t.Errorf("without gradients: %v %v, want nothing", p.Pull, p.Cosine)
	}
	if p := (&Result{}).proxy(.95); p != nil {
		t.Errorf("without the task: %v, want nothing", p)
	}
}
