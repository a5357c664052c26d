package gradients

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas/blas64"

	"gyre/orchestrate/config"
)

// synthetic episodes have gradients of a few strong and many weak directions, in groups.
func synthetic(r *rand.Rand, groups, size, dimension int) (gram blas64.General, members []Group, ids []int) {
	n := groups * size
	gradients := make([][]float64, n)
	for i := range gradients {
		gradients[i] = make([]float64, dimension)
		for k := range gradients[i] {
			gradients[i][k] = r.NormFloat64() / math.Sqrt(1+0.3*float64(k))
		}
		ids = append(ids, i/size)
	}
	for g := range groups {
		var own []int
		for i := range size {
			own = append(own, g*size+i)
		}
		members = append(members, Group{Rows: own})
	}
	gram = matrix(n, n)
	for i := range n {
		for j := range n {
			for k := range dimension {
				gram.Data[i*n+j] += gradients[i][k] * gradients[j][k]
			}
		}
	}
	return gram, members, ids
}

func cosineOf(gram blas64.General, a, b []float64) float64 {
	dot := func(x, y []float64) (sum float64) {
		for i := range x {
			for j := range y {
				sum += x[i] * gram.Data[i*gram.Stride+j] * y[j]
			}
		}
		return sum
	}
	return dot(a, b) / math.Sqrt(dot(a, a)*dot(b, b))
}

// advantagesOf standardises rewards within their groups, as grpo does.
func advantagesOf(t *testing.T, ids []int, rewards ...[]float64) [][]float64 {
	t.Helper()
	episodes := make([]Rewarded, len(ids))
	var names []string
	for k := range rewards {
		names = append(names, string(rune('a'+k)))
	}
	for i, g := range ids {
		components := map[string]float64{}
		for k, name := range names {
			components[name] = rewards[k][i]
		}
		episodes[i] = rewarded(g, 3, 0, components)
	}
	a := Estimate(episodes, config.Components{Mode: "independent", Names: names}, nil,
		config.Algorithm{Advantage: "grpo", NormByStd: true})
	return a.Means
}

// Two parts that are made of noise lie inside the band as often as it says, whether rewards are continuous or few; a
// part that is a signal and one that is noise do too; parts that share a signal lie outside.
func TestBandsCoverNoise(t *testing.T) {
	const trials = 400
	var r *rand.Rand
	for name, draw := range map[string]func(gram blas64.General, n int) ([]float64, []float64){
		"noise": func(_ blas64.General, n int) ([]float64, []float64) { return noise(r, n, false), noise(r, n, false) },
		"zeros and ones": func(_ blas64.General, n int) ([]float64, []float64) {
			return noise(r, n, true), noise(r, n, true)
		},
		"signal and noise": func(gram blas64.General, n int) ([]float64, []float64) {
			return append([]float64(nil), gram.Data[:n]...), noise(r, n, false)
		},
	} {
		inside := 0
		r = rand.New(rand.NewPCG(3, 5))
		for trial := range trials {
			gram, groups, ids := synthetic(r, 5, 6, 40)
			one, other := draw(gram, len(ids))
			a := advantagesOf(t, ids, one, other)
			b := &bands{gram: gram, groups: groups, rounds: 100, confidence: .9,
				random: rand.New(rand.NewPCG(1, uint64(trial)))}
			band, ok := b.between(a[0], a[1], b.permute(a[0]), b.permute(a[1]))
			if !ok {
				t.Fatalf("%s: no band", name)
			}
			if c := cosineOf(gram, a[0], a[1]); band.Low <= c && c <= band.High {
				inside++
			}
		}
		t.Logf("%s: %.3f", name, float64(inside)/trials)
		if share := float64(inside) / trials; share < .86 || share > .96 { // three standard errors of 1.5 %
			t.Errorf("%s: %.3f of the cosines are inside a band of 90 %%", name, share)
		}
	}
}

func noise(r *rand.Rand, n int, binary bool) []float64 {
	out := make([]float64, n)
	for i := range out {
		if out[i] = r.NormFloat64(); binary {
			out[i] = float64(r.IntN(2))
		}
	}
	return out
}

// A part and a scaled copy of it point the same way, far outside the band; a part and its opposite the other way.
func TestCopiesAndOpposites(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 1))
	gram, groups, ids := synthetic(r, 6, 8, 50)
	one := noise(r, len(ids), false)
	scaled, opposite := make([]float64, len(one)), make([]float64, len(one))
	for i, v := range one {
		scaled[i], opposite[i] = 7*v+2, -v
	}
	a := advantagesOf(t, ids, one, scaled, opposite)
	b := &bands{gram: gram, groups: groups, rounds: 100, confidence: .95, random: r}
	for k, want := range map[int]float64{1: 1, 2: -1} {
		band, ok := b.between(a[0], a[k], b.permute(a[0]), b.permute(a[k]))
		c := cosineOf(gram, a[0], a[k])
		if math.Abs(c-want) > 1e-5 || !ok || band.Low <= -.95 || band.High >= .95 || band.Low >= 0 || band.High <= 0 {
			t.Errorf("copy %d: cosine %v, band %v (%v)", k, c, band, ok)
		}
	}
}

// Few rounds and parts without a gradient have no band.
func TestNoBand(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	gram, groups, ids := synthetic(r, 2, 4, 5)
	b := &bands{gram: gram, groups: groups, rounds: 5, confidence: .95, random: r}
	a := noise(r, len(ids), false)
	if band, ok := b.between(a, a, b.permute(a), b.permute(a)); ok {
		t.Errorf("ten rounds make the band %v", band)
	}
	b.rounds = 100
	zero := make([]float64, len(ids))
	if band, ok := b.between(a, zero, b.permute(a), b.permute(zero)); ok {
		t.Errorf("a part without a gradient has the band %v", band)
	}
}

// Of 99 cosines the fifth from either end bounds a band of 90 %; of 18 none is far enough out.
func TestIntervalByRanks(t *testing.T) {
	b := &bands{confidence: .9}
	var list []float64
	for i := range 99 {
		list = append(list, float64((i*37)%99)/100)
	}
	if band, ok := b.interval(list); !ok || band != (Band{.04, .94}) {
		t.Errorf("99 cosines: %v, %v", band, ok)
	}
	if band, ok := b.interval(list[:19]); !ok || band.Low != slices.Min(list[:19]) ||
		band.High != slices.Max(list[:19]) {
		t.Errorf("19 cosines: %v, %v", band, ok)
	}
	if band, ok := b.interval(list[:18]); ok {
		t.Errorf("18 cosines: %v", band)
	}
	if band, ok := b.interval(slices.Repeat([]float64{.3}, 99)); ok {
		t.Errorf("cosines that are all alike: %v", band)
	}
	p := permuted{advantages: blas64.General{Rows: 2, Cols: 2, Stride: 2, Data: []float64{1, 2, 3, -1}},
		squares: []float64{0, 4}}
	if got := p.cosines([]float64{1, 1}, 9); len(got) != 1 || got[0] != 2./6 {
		t.Errorf("cosines %v, want 1/3 and none with a gradient of no length", got)
	}
}

// Every pair of episodes has its inner product, whichever comes first.
func TestInnerProductsOfSketches(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	sketches := make([][]float32, 5)
	for i := range sketches {
		sketches[i] = make([]float32, episodeSketch)
		for k := range sketches[i] {
			sketches[i][k] = float32(r.NormFloat64())
		}
	}
	b := newBands(sketches, nil, 1, .9, r)
	for i := range sketches {
		for j := range sketches {
			want := 0.0
			for k, v := range sketches[i] {
				want += float64(v) * float64(sketches[j][k])
			}
			if got := b.gram.Data[i*5+j]; math.Abs(got-want) > 1e-3*math.Sqrt(float64(episodeSketch)) {
				t.Errorf("⟨s_%d, s_%d⟩ = %v, want %v", i, j, got, want)
			}
		}
	}
}
