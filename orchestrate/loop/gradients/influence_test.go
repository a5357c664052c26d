package gradients

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gyre/orchestrate/loop/train"
	"gyre/torch"
)

const influenceRate = 1e-2

// warmed is the fixture with an optimizer that has made two steps: the same weights and moments each time.
func warmed(t *testing.T, how train.Optimization, aggregation string) *Influence {
	t.Helper()
	f := newFixture(t)
	l, err := train.NewLearner(f.Policy.Model.Share(), train.Placement{PassTokens: 1000}, &how)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	in := &Influence{Subject: f.Subject, How: how, Rate: influenceRate, Epochs: 1, MiniBatch: f.Batch.Len(),
		Aggregation: aggregation, Width: 5}
	in.Policy = l
	for _, g := range f.groups {
		in.Units = append(in.Units, g.Rows)
	}
	for range 2 {
		in.makeStep(t, train.All(f.Batch.Len()))
	}
	return in
}

// makeStep is an update on some rows.
func (in *Influence) makeStep(t *testing.T, rows []int) {
	t.Helper()
	b := in.Batch.Take(rows)
	b.Weigh(in.Aggregation, in.Width)
	if _, err := in.Policy.Backward(t.Context(), b, in.Objective, train.Terms(in.Policy.Gradients(), false)); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Policy.Step(in.Rate); err != nil {
		t.Fatal(err)
	}
}

func (in *Influence) weights(t *testing.T) (out [][]float32) {
	t.Helper()
	parameters, err := in.Policy.Model.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	defer torch.CloseParameters(parameters)
	for _, p := range parameters {
		values, err := p.Tensor.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, values)
	}
	return out
}

// What leaving a unit out is said to change of the weights is what the optimizer makes of the batch without it.
func TestInfluenceIsTheOptimizers(t *testing.T) {
	adamw := torch.AdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}
	for name, c := range map[string]struct {
		how         train.Optimization
		aggregation string
	}{
		"clipped":   {train.Optimization{AdamW: adamw, ClipGrad: 0.05}, "token-mean"},
		"unclipped": {train.Optimization{AdamW: adamw}, "seq-mean-token-mean"},
		"norm":      {train.Optimization{AdamW: adamw, ClipGrad: 1}, "seq-mean-token-sum-norm"},
	} {
		t.Run(name, func(t *testing.T) {
			in := warmed(t, c.how, c.aggregation)
			before := in.weights(t)
			r := rand.New(rand.NewPCG(1, 2))
			for _, w := range before {
				q := make([]float32, len(w))
				for k := range q {
					q[k] = float32(r.NormFloat64())
				}
				in.Quantity = append(in.Quantity, q)
			}
			without, update, err := in.Measure(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			moved := func(rows []int) (sum float64) {
				other := warmed(t, c.how, c.aggregation)
				other.makeStep(t, rows)
				for i, w := range other.weights(t) {
					for k := range w {
						sum += float64(in.Quantity[i][k]) * (float64(w[k]) - float64(before[i][k]))
					}
				}
				return sum
			}
			whole := moved(train.All(in.Batch.Len()))
			if math.Abs(update-whole) > 1e-3*math.Abs(whole)+1e-5 {
				t.Errorf("the update moves the quantity by %v, want %v", update, whole)
			}
			for u, unit := range in.Units {
				rest := slices.DeleteFunc(train.All(in.Batch.Len()), func(row int) bool { return slices.Contains(unit, row) })
				if want := moved(rest) - whole; math.Abs(without[u]-want) > 1e-3*math.Abs(want)+3e-5 {
					t.Errorf("unit %d: without it %v, want %v", u, without[u], want)
				}
			}
		})
	}
}
