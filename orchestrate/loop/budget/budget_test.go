package budget

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"gyre/internal/statistics"
)

// The allocation is the best of all, by trying all.
func TestAllocateIsOptimal(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	worth := func(noise []float64, sizes []int) (sum float64) {
		for g, n := range sizes {
			sum += noise[g] / float64(n-1)
		}
		return sum
	}
	for range 200 {
		noise := []float64{random.ExpFloat64(), random.ExpFloat64() * random.ExpFloat64(), random.ExpFloat64()}
		if random.IntN(5) == 0 {
			noise[1] = 0
		}
		total, floor, best := 6+random.IntN(12), 2, math.Inf(1)
		for a := floor; a <= total-2*floor; a++ {
			for b := floor; b <= total-floor-a; b++ {
				best = min(best, worth(noise, []int{a, b, total - a - b}))
			}
		}
		got := Allocate(noise, total, floor)
		if sum := got[0] + got[1] + got[2]; sum != total || slices.Min(got) < floor ||
			worth(noise, got) > best*(1+1e-12) {
			t.Fatalf("%v of %d: %v is worth %v, the best %v", noise, total, got, worth(noise, got), best)
		}
	}
	if got := Allocate([]float64{1, 1, 1}, 12, 2); !slices.Equal(got, []int{4, 4, 4}) {
		t.Errorf("equal groups: %v", got)
	}
	if got := Allocate([]float64{0, 0}, 8, 2); got != nil {
		t.Errorf("nothing is noisy: %v, want no allocation", got)
	}
	// Neyman: sizes less one go as the roots of the noise.
	if got := Allocate([]float64{1, 9}, 402, 2); got[0] != 101 || got[1] != 301 {
		t.Errorf("1 and 9: %v, want 101 and 301", got)
	}
}

// What the posterior expects of a group is what groups of its distribution have, drawn at random.
func TestPosteriorPredicts(t *testing.T) {
	p := posterior{alpha: 1.7, beta: 3.1, won: 0.04, lost: 0.01, apart: 1.3}
	source := rand.NewPCG(5, 6)
	normal, chance := rand.New(source), distuv.Beta{Alpha: p.alpha, Beta: p.beta, Src: source}
	for _, n := range []int{2, 5, 16} {
		const draws = 60000
		var all []float64
		for range draws {
			success, rewards := chance.Rand(), make([]float64, n)
			for i := range rewards {
				if rewards[i] = 0.1 * normal.NormFloat64(); normal.Float64() < success {
					rewards[i] = 1.3 + 0.2*normal.NormFloat64()
				}
			}
			d := statistics.Deviation(rewards)
			all = append(all, d*d)
		}
		mean, variance := p.sampled(n)
		d := statistics.Deviation(all)
		if math.Abs(mean-p.variance()) > 1e-12 {
			t.Errorf("groups of %d: mean %v, variance of rewards %v", n, mean, p.variance())
		}
		if got := statistics.Mean(all); math.Abs(got-mean) > 5*d/math.Sqrt(draws) {
			t.Errorf("groups of %d: %v on average, expected %v", n, got, mean)
		}
		if got := d * d; math.Abs(got/variance-1) > 0.1 {
			t.Errorf("groups of %d: variance %v, expected %v", n, got, variance)
		}
	}
}

// world plays groups of tasks with success probabilities of their own.
type world struct {
	*rand.Rand
	chances []float64
}

func (w world) play(places []Place, task []int, sizes []int) (groups []Group) {
	for i, p := range places {
		g, n := Group{Place: p, Energy: 1}, p.Size
		if sizes != nil {
			n = sizes[i]
		}
		for range n {
			if w.Float64() < w.chances[task[i]] {
				g.Won = append(g.Won, 1)
			} else {
				g.Lost = append(g.Lost, 0)
			}
		}
		groups = append(groups, g)
	}
	return groups
}

// Tasks that are always or never solved get few episodes, those in between many; predictions are right on average, and
// nine in ten lie in their interval. What is known of tasks goes through a checkpoint.
func TestBudgetLearnsTasks(t *testing.T) {
	w := world{rand.New(rand.NewPCG(8, 9)), []float64{0, 1, 0.5, 0.02, 0.4, 0.98, 0.6, 0}}
	const memory, groups, size = 0.9, 8, 8
	s, last := &State{}, Planned{}
	var predicted, realised float64
	for batch := 1; batch <= 400; batch++ {
		var places []Place
		var tasks []int
		for g := range groups {
			tasks = append(tasks, (batch+g*3)%len(w.chances))
			places = append(places, Place{Size: size, Task: string(rune('a' + tasks[g]))})
		}
		s.Plan(batch, places, 2)
		last = s.At(batch)
		played := w.play(places, tasks, last.Sizes)
		m := s.Compare(last, played, groups*size, memory)
		s.Learn(played, memory)
		s.Forget(batch)
		if m.Predicted != nil && batch > 20 {
			predicted, realised = predicted+*m.Predicted, realised+*m.Realised
			if *m.Predicted > *m.Equal*(1+1e-9) {
				t.Fatalf("batch %d: %v expected of the sizes %v, %v of equal ones", batch, *m.Predicted, last.Sizes, *m.Equal)
			}
		}
		if batch < 400 {
			continue
		}
		for g, n := range last.Sizes {
			if p := w.chances[tasks[g]]; (p > 0.3 && p < 0.7) != (n > size) {
				t.Errorf("a task of success %v has %d episodes of %v", p, n, last.Sizes)
			}
		}
		if ratio := realised / predicted; ratio < 0.93 || ratio > 1.07 {
			t.Errorf("realised over predicted: %v", ratio)
		}
		if *m.Coverage < 0.85 || *m.Coverage > 0.95 {
			t.Errorf("coverage %v, want 0.9", *m.Coverage)
		}
	}
	data, err := json.Marshal(s)
	back := &State{Planned: []Planned{}}
	if err := errors.Join(err, json.Unmarshal(data, back)); err != nil || !reflect.DeepEqual(s, back) {
		t.Errorf("%v: the state is another one after it was saved", err)
	}
}

// Of tasks that do not come back, the source tells how they differ: it does not take a mixture of easy and hard ones
// for tasks of middling success.
func TestSourceTellsHowTasksDiffer(t *testing.T) {
	w := world{rand.New(rand.NewPCG(3, 4)), []float64{0.03, 0.97, 0.5}}
	s := &State{}
	for batch := range 50 {
		var places []Place
		var tasks []int
		for g := range 16 {
			places, tasks = append(places, Place{Source: g % 2, Size: 6}), append(tasks, []int{(batch + g/2) % 2, 2}[g%2])
		}
		s.Learn(w.play(places, tasks, nil), 0.9)
	}
	mixed, _ := s.posterior(Place{Source: 0})
	even, _ := s.posterior(Place{Source: 1})
	if math.Abs(mixed.variance()-0.029) > 0.012 || math.Abs(even.variance()-0.25) > 0.02 {
		t.Errorf("variance %v of tasks of 0.03 and 0.97, %v of those of 0.5: want 0.029 and 0.25", mixed.variance(),
			even.variance())
	}
	if _, known := s.posterior(Place{Source: 2}); known {
		t.Error("something is known of a source that was not played")
	}
}
